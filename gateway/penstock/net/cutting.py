"""Cutting a client's connection from any task that works for it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NoReturn

import trio

__all__ = ["CUT_CONNECTION", "SILENCE_SECONDS", "cut_connection", "cut_off", "silence"]

CUT_CONNECTION: ContextVar[Callable[[], None] | None] = ContextVar("penstock.cut", default=None)
"""Callable that closes the socket of the client's connection that the current task works for, as if the process had
died. None if the gateway works for itself."""
SILENCE_SECONDS: Final = 60.0
"""Seconds after which a client is cut off that waits for an answer that is never sent, so that nothing is held for
ever."""


def cut_off() -> None:
    """Cut the connection that the current task works for, at the next checkpoint. There must be a connection."""
    end = CUT_CONNECTION.get()
    assert end is not None, "the gateway works for itself"
    end()


async def cut_connection() -> NoReturn:
    """Cut the connection that the current task works for, now. There must be a connection."""
    cut_off()
    await trio.sleep_forever()
    raise AssertionError("the connection's scope was cancelled")


async def silence() -> NoReturn:
    """Send nothing until the client goes away; cut its connection after SILENCE_SECONDS."""
    await trio.sleep(SILENCE_SECONDS)
    await cut_connection()
