"""The thread that uses the connection for writing.

Each commit of small appends is a hop to a thread and back. `trio.to_thread` copies the context, tracks the thread and
holds a limiter and a cancel scope for each: beside a thread that stays, it took twice the processor time (150 to 200 us
and 70 to 100).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import trio

__all__ = ["CommitThread"]

T = TypeVar("T")


class _Job(Generic[T]):
    """A function that a task waits for. `error`: what it raised."""

    __slots__ = ("_function", "_task", "_token", "error", "result")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()
        self.result: T
        self.error: BaseException | None = None

    def work(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # the task raises it
            self.error = error
        with contextlib.suppress(trio.RunFinishedError):  # the task is gone
            self._token.run_sync_soon(trio.lowlevel.reschedule, self._task)


class CommitThread:
    """Runs functions in one thread, one after the other. The first use starts it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._started = False

    async def run(self, function: Callable[[], T]) -> T:
        """Return what `function` returns, or raise what it raises. A cancellation does not end the wait for it."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name="penstock commits", daemon=True).start()
        job = _Job(function)
        self._jobs.put(job)
        await trio.lowlevel.wait_task_rescheduled(lambda _raise_cancel: trio.lowlevel.Abort.FAILED)
        if job.error is not None:
            raise job.error
        return job.result

    def end(self) -> None:
        """End the thread. Nothing may be running in it, nor be run afterwards."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work()
            del job  # what it writes is not needed while this waits
