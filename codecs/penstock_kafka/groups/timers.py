"""Timers as values: when each is due. Restarting a timer costs one dictionary entry, since every heartbeat does it."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

__all__ = ["KeyedTimers"]

K = TypeVar("K", bound=Hashable)

_SPARE: Final = 64
"""Stale entries that are accepted before the heap is rebuilt."""


class KeyedTimers(Generic[K]):
    """At most one timer for each key. Times are seconds of any clock.

    The heap has an entry for each key; it may be earlier than the timer, and is then put back when it is reached.
    Entries of timers that were stopped or moved ahead are dropped when they are reached, or outnumber the others.
    """

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._queued: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serials = count()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def start(self, key: K, when: float) -> None:
        """Start a timer, or restart it."""
        self._due[key] = when
        if when < self._queued.get(key, float("inf")):
            self._push(key, when)

    def stop(self, key: K) -> None:
        """Stop a timer, if it runs."""
        self._due.pop(key, None)

    def next(self) -> float | None:
        """Return a time before which no timer is due, None if no timer runs."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> K | None:
        """Stop a timer that is due, the earliest, and return its key; None if none is."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heappop(self._heap)
        del self._queued[key], self._due[key]
        return key

    def _push(self, key: K, when: float) -> None:
        if len(self._heap) > 2 * len(self._due) + _SPARE:
            self._queued = dict(self._due)
            self._heap = sorted((due, next(self._serials), timer) for timer, due in self._due.items())
            return
        self._queued[key] = when
        heappush(self._heap, (when, next(self._serials), key))

    def _settle(self) -> None:
        """Make the first entry of the heap that of a timer, with its time."""
        while self._heap:
            when, _, key = self._heap[0]
            due = self._due.get(key)
            if due == when == self._queued.get(key):
                return
            heappop(self._heap)
            if when == self._queued.get(key):
                del self._queued[key]
                if due is not None:
                    self._push(key, due)
