"""Timers that include intervals still in progress when scraped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from penstock.observe.metrics.series import Count, Family, Sample

__all__ = ["RunningTimer", "running_samples", "running_timer"]

_known: Final[dict[tuple[str, tuple[str, ...]], tuple[Family[Count], RunningTimer]]] = {}


class RunningTimer:
    """The timer of one series: seconds of any number of concurrent waits."""

    __slots__ = ("_began", "_count", "_done")

    def __init__(self, done: Count) -> None:
        self._done = done  # seconds of waits that have ended
        self._count = 0
        self._began = 0.0  # the sum of the times at which the waits in progress began

    @property
    def seconds(self) -> float:
        """Seconds that the waits in progress have lasted so far, added up."""
        return self._count * perf_counter() - self._began if self._count else 0.0

    @contextmanager
    def still(self) -> Iterator[None]:
        """Count the time of the block as a wait."""
        began = perf_counter()
        self._count += 1
        self._began += began
        try:
            yield
        finally:
            self._count -= 1
            self._began -= began
            self._done.value += perf_counter() - began


def running_timer(family: Family[Count], *labels: str) -> RunningTimer:
    """Return the timer of a series."""
    key = family.name, labels
    timer = _known.get(key)
    if timer is None:
        timer = _known[key] = family, RunningTimer(family.child(*labels))
    return timer[1]


def running_samples() -> Iterator[Sample]:
    """Yield the seconds of all waits in progress; a `Source`."""
    for (_, labels), (family, timer) in _known.items():
        yield Sample(family, labels, timer.seconds)
