"""Admission of appends in order of arrival, within a budget of bytes in flight.

Waiting appends are started by the call that makes room, synchronously: so appends are sequenced in the order in which
they were handed over, waiting or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

__all__ = ["Applicant", "ByteBudget"]


class Applicant(Protocol):
    """A request for room in the budget, which is started when there is some."""

    @property
    def size(self) -> int:
        """Bytes that it takes of the budget while it is in flight."""

    def start(self) -> bool:
        """Start, since there is room. Return whether it takes the room, which then lasts until `ByteBudget.leave`."""


class _Room:
    """An applicant that sets an event when there is room."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted = trio.Event()

    def start(self) -> bool:
        self.granted.set()
        return True


class ByteBudget:
    """A budget of bytes. An applicant larger than the whole budget is started when nothing else is in flight."""

    def __init__(self, capacity: int) -> None:
        self.in_flight = 0
        self._capacity = capacity
        self._queue: deque[Applicant] = deque()

    @property
    def waiting(self) -> int:
        """Number of applicants that wait for room."""
        return len(self._queue)

    def enter(self, applicant: Applicant) -> None:
        """Start an applicant now, or when all before it have been started and there is room."""
        self._queue.append(applicant)
        self._start()

    def leave(self, size: int) -> None:
        """Return `size` bytes to the budget, and start applicants that fit now."""
        self.in_flight -= size
        self._start()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait for room, and take `size` bytes of the budget until the block ends."""
        room = _Room(size)
        self.enter(room)
        try:
            await room.granted.wait()
            yield
        finally:
            if room.granted.is_set():
                self.leave(size)
            else:
                self.withdraw(room)

    def withdraw(self, applicant: Applicant) -> None:
        """Remove a waiting applicant from the queue."""
        self._queue.remove(applicant)
        self._start()

    def _start(self) -> None:
        while self._queue and self._fits(self._queue[0].size):
            applicant = self._queue.popleft()
            self.in_flight += applicant.size
            if not applicant.start():
                self.in_flight -= applicant.size

    def _fits(self, size: int) -> bool:
        return self.in_flight == 0 or self.in_flight + size <= self._capacity
