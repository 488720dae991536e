"""Pauses of this process: SIGSTOP, a machine that is suspended, a host without processor time.

Time-outs of clients are over then although the clients were alive: what they sent lies unread in the sockets.
"""

from __future__ import annotations

from typing import Final

import trio

__all__ = ["sleep_unpaused"]

_LATE: Final = 1.0
"""Seconds by which a task that waits for a time is later than a busy event loop makes it."""
_READING: Final = 3.0
"""Seconds after a pause in which the process reads what came meanwhile."""


async def sleep_unpaused(until: float) -> None:
    """Sleep until a time of trio's clock; after a pause of this process, until it has read what came meanwhile."""
    await trio.sleep_until(until)
    while trio.current_time() - until > _LATE:
        until = trio.current_time() + _READING
        await trio.sleep_until(until)
