"""Tasks that wait for something to change: for a stream, or for the progress of a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

__all__ = ["Waiters"]


class Waiters:
    """The tasks that wait, in order. trio's `ParkingLot` takes 0.4 KiB more for each (a coroutine, a closure, a linked
    list), and 240 bytes while none waits, as at most connections."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[_Wait, None] | None = None  # an empty set takes 150 bytes more

    def park(self, is_ready: Callable[[], bool] | None = None) -> Awaitable[None]:
        """Wait until `unpark_all` is called and `is_ready()`, if given, returns True: to ask costs a tenth of waking a
        task. To be awaited at once, by the calling task."""
        if self._waits is None:
            self._waits = {}
        return trio.lowlevel.wait_task_rescheduled(_Wait(self._waits, is_ready))  # noqa: ASYNC105 - the caller awaits it

    def unpark_all(self) -> None:
        """Wake all tasks that wait, in order, except those that are not ready."""
        for wait in tuple(self._waits or ()):
            if wait.is_ready is None or wait.is_ready():
                del wait.waits[wait]
                trio.lowlevel.reschedule(wait.task)


class _Wait:
    """One task's wait, which trio calls to end it when the task is cancelled."""

    __slots__ = ("is_ready", "task", "waits")

    def __init__(self, waits: dict[_Wait, None], is_ready: Callable[[], bool] | None) -> None:
        self.task = trio.lowlevel.current_task()
        self.is_ready = is_ready
        self.waits = waits
        waits[self] = None

    def __call__(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        del self.waits[self]
        return trio.lowlevel.Abort.SUCCEEDED
