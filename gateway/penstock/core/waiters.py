"""Tasks that wait for something to change: for a stream, or for the progress of a connection."""

from __future__ import annotations

from collections.abc import Awaitable

import trio

__all__ = ["Waiters"]


class Waiters:
    """The tasks that wait, in order. trio's `ParkingLot` takes 0.4 KiB more for each (a coroutine, a closure, a linked
    list), and 240 bytes while none waits, as at most connections."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[_Wait, None] | None = None  # an empty set takes 150 bytes more

    def park(self) -> Awaitable[None]:
        """Wait until `unpark_all` is called. To be awaited at once, by the calling task."""
        if self._waits is None:
            self._waits = {}
        return trio.lowlevel.wait_task_rescheduled(_Wait(self._waits))  # noqa: ASYNC105 - the caller awaits it

    def unpark_all(self) -> None:
        """Wake all tasks that wait, in order."""
        if self._waits:
            for wait in self._waits:
                trio.lowlevel.reschedule(wait.task)
            self._waits.clear()


class _Wait:
    """One task's wait, which trio calls to end it when the task is cancelled."""

    __slots__ = ("_waits", "task")

    def __init__(self, waits: dict[_Wait, None]) -> None:
        self.task = trio.lowlevel.current_task()
        self._waits = waits
        waits[self] = None

    def __call__(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        del self._waits[self]
        return trio.lowlevel.Abort.SUCCEEDED
