"""The operations on the running process that the management listener offers; the server supplies them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from penstock.app.config import Config

__all__ = ["Controls"]


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """Operations on the running process. `config`: the configuration in force. `draining`: whether it is about to
    stop. `not_ready`: why new clients should go elsewhere, apart from the state of the backs, one plain sentence per
    problem (a drain, a full disk); empty: ready. `warnings`: what is wrong although new clients are welcome.
    `drain`: as SIGTERM does. `reload`: as SIGHUP does; returns a line that says what changed; raises CannotReload
    with the reason why nothing did. `set_log_level`: debug, info, warning or error, until the next reload; raises
    ValueError. `close_connection`: closes a client's connection by its number; returns whether it existed."""

    config: Callable[[], Config]
    draining: Callable[[], bool]
    not_ready: Callable[[], Sequence[str]]
    warnings: Callable[[], Sequence[str]]
    drain: Callable[[], None]
    reload: Callable[[], Awaitable[str]]
    set_log_level: Callable[[str], None]
    close_connection: Callable[[int], bool]
