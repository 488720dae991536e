"""What operators may ask of the running process: filled in by the server, used by the management listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from penstock.config import Config

__all__ = ["Controls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """`config`: what is in force now. `not_ready`: why new clients should go elsewhere, in plain words, each naming
    what is wrong (a back that is down, a drain); empty: ready. `drain`: as SIGTERM does. `reload`: as SIGHUP does: a
    line that says what changed; raises CannotReload, which says why all stays as it was. `set_log_level`: debug, info,
    warning or error, from now on and until the next reload. `close_connection`: by its number; whether there was one.
    """

    config: Callable[[], Config]
    not_ready: Callable[[], Sequence[str]]
    drain: Callable[[], None]
    reload: Callable[[], Awaitable[str]]
    set_log_level: Callable[[str], None]
    close_connection: Callable[[int], bool]
