"""Who may append next: first come, first served, while there is room for what is in flight.

Those who must wait are started by whoever makes room, in that very moment: so appends are sequenced in the order
in which they were handed over, waiting or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio

__all__ = ["Admission", "Applicant"]


class Applicant(Protocol):
    """Something of `size` bytes that wants to be in flight."""

    @property
    def size(self) -> int:
        """Bytes that it takes while it is in flight."""

    def start(self) -> bool:
        """There is room. False: it needs none any more; True: it does, until `Admission.leave`."""


class _Room:
    """An applicant that somebody waits for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted = trio.Event()

    def start(self) -> bool:
        self.granted.set()
        return True


class Admission:
    """A budget of bytes. One that is larger than the whole budget is let in when nothing else is in flight."""

    def __init__(self, capacity: int) -> None:
        self.in_flight = 0
        self._capacity = capacity
        self._queue: deque[Applicant] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._queue)

    def enter(self, applicant: Applicant) -> None:
        """Start it now, or when those before it have been started and there is room."""
        self._queue.append(applicant)
        self._start()

    def leave(self, size: int) -> None:
        """So much is no longer in flight."""
        self.in_flight -= size
        self._start()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """So much is in flight while the block runs, which begins when there is room for it."""
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
        """One that waits no longer wants to."""
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
