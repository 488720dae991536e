"""What the process that runs a gateway gives it: sockets that listen already, and where the embedded store is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from penstock.backs.base import Back
from penstock.config import Config
from penstock.systemd import Notifier
from penstock.wiring import open_store

__all__ = ["ALONE", "OpenEmbedded", "Surroundings"]

OpenEmbedded = Callable[[Config], AbstractAsyncContextManager[Back]]
"""Opens the embedded store, with the configured basins in it. Raises CannotStart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`sockets`: for some listeners (`listeners.s2`, `management`) the sockets that listen for them already: the
    system's (socket activation) or the supervisor's (workers). They are used instead of binding, and belong to the
    gateway from then on. `open_embedded`: the store in this process, or the way to the process that has it. `reread`:
    the configuration as it is now, read in a thread, for a reload: raises CannotReload; None: it was never read.
    `notifier`: who is told how the gateway fares.
    """

    sockets: Mapping[str, Sequence[socket.socket]] = field(default_factory=dict)
    open_embedded: OpenEmbedded = open_store
    reread: Callable[[], Config] | None = None
    notifier: Notifier = field(default_factory=Notifier)


ALONE = Surroundings()
"""One process that binds for itself and has the store."""
