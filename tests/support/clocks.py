"""A clock that jumps ahead once all tasks and threads are idle."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from penstock.store.commit_thread import CommitThread

__all__ = ["threads_hold"]


def threads_hold(clock: MockClock, patch: pytest.MonkeyPatch) -> MockClock:
    """The clock jumps at once when all tasks are idle, and only while no thread works for a task: to trio such a task
    waits, but a disk needs some real milliseconds, and on a busy machine many."""
    under_way = 0

    def counted(run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run_counted(*args: Any, **options: Any) -> Any:
            nonlocal under_way
            under_way += 1
            clock.autojump_threshold = math.inf
            try:
                return await run(*args, **options)
            finally:
                under_way -= 1
                if not under_way:
                    clock.autojump_threshold = 0

        return run_counted

    patch.setattr(trio.to_thread, "run_sync", counted(trio.to_thread.run_sync))
    patch.setattr(CommitThread, "run", counted(CommitThread.run))
    clock.autojump_threshold = 0
    return clock
