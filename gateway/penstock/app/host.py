"""The services that the host process provides to a gateway: listening sockets and the embedded store."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from penstock.app.bootstrap import open_store
from penstock.app.config import Config
from penstock.app.systemd import Notifier
from penstock.core.back import Back
from penstock.net.upstream import Watch

__all__ = ["ALONE", "HostServices", "OpenEmbedded"]

OpenEmbedded = Callable[[Config, Watch], AbstractAsyncContextManager[Back]]
"""Opens the embedded store with the configured basins, or what a server keeps in its place; `Watch` is called with each
connection to that. Raises CannotStart."""


class HostServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services of the host process. `sockets`: sockets that already listen, by listener (`listeners.s2`,
    `management`), from the system (socket activation); they are used instead of binding, and the gateway owns them
    from then on. `open_embedded`: opens the embedded store. `reread`: reads the configuration again in a thread, for a
    reload; raises CannotReload. None: it was not read from a file. `notifier`: reports the gateway's state to the
    service manager."""

    sockets: Mapping[str, Sequence[socket.socket]] = msgspec.field(default_factory=dict)
    open_embedded: OpenEmbedded = open_store
    reread: Callable[[], Config] | None = None
    notifier: Notifier = msgspec.field(default_factory=Notifier)


ALONE = HostServices()
"""A single process that binds its own sockets and has the store."""
