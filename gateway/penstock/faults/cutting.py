"""The end of a client's connection, from wherever its work is done."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NoReturn

import trio

__all__ = ["CUT", "SILENCE_SECONDS", "cut", "cut_off", "silence"]

CUT: ContextVar[Callable[[], None] | None] = ContextVar("penstock.cut", default=None)
"""Ends the client's connection that the current task works for: closes its socket, as if the process had died. None
where the gateway works for itself."""
SILENCE_SECONDS: Final = 60.0
"""A client that waits for an answer that is never sent is cut off after this, so that nothing is held for ever."""


def cut_off() -> None:
    """Cut the connection that the current task works for, at the next checkpoint; there must be one."""
    end = CUT.get()
    assert end is not None, "the gateway works for itself"
    end()


async def cut() -> NoReturn:
    """Cut the connection that the current task works for, now; there must be one."""
    cut_off()
    await trio.sleep_forever()
    raise AssertionError("the connection's scope was cancelled")


async def silence() -> NoReturn:
    """Say nothing until the client goes away or SILENCE_SECONDS have passed; then its connection is cut."""
    await trio.sleep(SILENCE_SECONDS)
    await cut()
