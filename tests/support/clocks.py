"""A clock that jumps ahead once all tasks and threads are idle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

__all__ = ["threads_hold"]


def threads_hold(clock: MockClock, patch: pytest.MonkeyPatch) -> MockClock:
    """The clock jumps only while no thread works for a task: to trio such a task waits, but a disk needs some real
    milliseconds, and on a busy machine many."""
    under_way = 0
    run_sync: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync
    jump = clock._autojump

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal under_way
        under_way += 1
        try:
            return await run_sync(*args, **options)
        finally:
            under_way -= 1

    def jump_unless_held() -> None:
        if not under_way:
            jump()

    patch.setattr(trio.to_thread, "run_sync", counted)
    patch.setattr(clock, "_autojump", jump_unless_held)
    clock.autojump_threshold = 0.01
    return clock
