"""Work on one request in turns, so that a request of many elements does not hold up other clients.

Theory of operation. A loop over elements that a client has named (topics, groups, names, keys) may take seconds, and
nothing in it need pass through the scheduler: elements that are refused do not wait for anything. So each such loop
gets its elements from `Work.each`, or from `in_turns`, which looks at the clock before each element and rests once
TURN_SECONDS of work are over. The first FREE_TURNS of a request only let other tasks run. After these, the request is
long: the client's connections rest one after the other (`ClientQuota.turns`), for a millisecond while other clients
are served, and each further FREE_TURNS count as a request in the client's rate. A rest is a checkpoint, so work ends
with its client: an HTTP exchange is cancelled when its client has gone, and other fronts watch their connection in
`pause`.

Only work counts, no waits: `carry_out` meters the steps of a handler that waits for other tasks between its elements.
Loops that never wait need no meter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from functools import partial
from time import perf_counter
from types import coroutine
from typing import Any, Final, Generic, TypeVar

import trio

from penstock.net.limits.limiter import ConnectionQuota, current_quota

__all__ = ["FREE_TURNS", "TURN_SECONDS", "Work", "in_turns"]

T = TypeVar("T")

TURN_SECONDS: Final = 0.00025
"""Seconds of work after which others have their turn, as for HTTP's frames."""
FREE_TURNS: Final = 8
"""Turns of a request in which it has no more than its share: honest requests of a hundred elements take as many. Also
the turns that count as a further request."""
_STEPS: Final = 16
"""Steps of a generator between two looks at the clock."""


class Work:
    """The work on one request. A connection that has one request in progress may use it for all, one after the other
    (`begin`). `pause(seconds)` waits at the end of a turn of a long request."""

    __slots__ = ("_ends_at", "_pause", "_quota", "turns")

    def __init__(self, quota: ConnectionQuota, pause: Callable[[float], Awaitable[object]] = trio.sleep) -> None:
        self._quota = quota
        self._pause = pause
        self.begin()

    def begin(self) -> None:
        """Begin with the next request."""
        self.turns = 0
        """Turns that are over."""
        self._ends_at = perf_counter() + TURN_SECONDS

    def each(self, elements: Iterable[T]) -> AsyncIterator[T]:
        """Return the elements, with a rest before one if a turn is over."""
        return _Elements(self, iter(elements))

    @property
    def is_due(self) -> bool:
        """True if the turn is over."""
        return perf_counter() >= self._ends_at

    async def rest(self) -> None:
        """End the turn: let others run."""
        self.turns += 1
        if self.turns <= FREE_TURNS:
            await trio.lowlevel.checkpoint()
        else:
            if not self.turns % FREE_TURNS and (seconds := self._quota.worked()):
                await self._pause(seconds)
            await self._quota.rest_in_work(self._pause)
        self._ends_at = perf_counter() + TURN_SECONDS

    async def finish(self, steps: Generator[None, None, T]) -> T:
        """Run a generator, with a rest after a step if a turn is over; return its result."""
        while True:
            try:
                for _ in range(_STEPS):
                    next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_due:
                await self.rest()

    @coroutine
    def carry_out(self, handler: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run a handler and return its result. While it waits for other tasks, its turn does not go on."""
        step: Callable[[], Any] = partial(handler.send, None)
        self._ends_at = perf_counter() + TURN_SECONDS
        try:
            while True:
                try:
                    trap = step()
                except StopIteration as end:
                    result: T = end.value
                    return result
                remaining = self._ends_at - perf_counter()
                try:
                    step = partial(handler.send, (yield trap))
                except BaseException as error:
                    step = partial(handler.throw, error)
                self._ends_at = perf_counter() + remaining
        finally:
            del step  # it may hold the error that holds this frame


class _Elements(Generic[T]):
    """See `Work.each`. No generator, which would have to be closed where its loop ends early."""

    __slots__ = ("_elements", "_work")

    def __init__(self, work: Work, elements: Iterable[T]) -> None:
        self._work = work
        self._elements = elements

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._work.is_due:
            await self._work.rest()
        for element in self._elements:
            return element
        raise StopAsyncIteration


def in_turns(elements: Iterable[T]) -> AsyncIterator[T]:
    """Return the elements with rests, as work of their own for the current connection."""
    return Work(current_quota()).each(elements)
