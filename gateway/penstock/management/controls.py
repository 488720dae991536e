"""What operators may ask of the running process: filled in by the server, used by the management listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from penstock.config import Config

__all__ = ["Controls"]


async def _alone() -> Sequence[bytes]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """`config`: what is in force now. `draining`: whether it is about to stop. `not_ready`: why new clients should go
    elsewhere, whatever the backs say, in plain words, each naming what is wrong (a drain); empty: ready. `drain`: as
    SIGTERM does. `reload`: as SIGHUP does: a line that says what changed; raises CannotReload, which says why all stays
    as it was. `set_log_level`: debug, info, warning or error, from now on and until the next reload; raises ValueError.
    `close_connection`: a client's, by its number; whether there was one. `snapshots`: what the other processes of this
    gateway count (`penstock.metrics.merging.snapshot`).
    """

    config: Callable[[], Config]
    draining: Callable[[], bool]
    not_ready: Callable[[], Sequence[str]]
    drain: Callable[[], None]
    reload: Callable[[], Awaitable[str]]
    set_log_level: Callable[[str], None]
    close_connection: Callable[[int], bool]
    snapshots: Callable[[], Awaitable[Sequence[bytes]]] = _alone
