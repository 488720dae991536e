"""Seconds that go on: what stands still now counts at each scrape, not only when it moves again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from penstock.metrics.series import Count, Family, Sample

__all__ = ["Standing", "standing", "standing_samples"]


class Standing:
    """The seconds of one series, of any number that stand still at the same time."""

    __slots__ = ("_began", "_count", "_done")

    def __init__(self, done: Count) -> None:
        self._done = done  # of those that move again
        self._count = 0
        self._began = 0.0  # the sum of the times at which the others stopped

    @property
    def seconds(self) -> float:
        """For how long those that stand still have done so, added up."""
        return self._count * perf_counter() - self._began if self._count else 0.0

    @contextmanager
    def still(self) -> Iterator[None]:
        """Something stands still while the block waits."""
        began = perf_counter()
        self._count += 1
        self._began += began
        try:
            yield
        finally:
            self._count -= 1
            self._began -= began
            self._done.value += perf_counter() - began


_known: Final[dict[tuple[str, tuple[str, ...]], tuple[Family[Count], Standing]]] = {}


def standing(family: Family[Count], *labels: str) -> Standing:
    """That of a series."""
    key = family.name, labels
    found = _known.get(key)
    if found is None:
        found = _known[key] = family, Standing(family.child(*labels))
    return found[1]


def standing_samples() -> Iterator[Sample]:
    """A `Source`."""
    for (_, labels), (family, one) in _known.items():
        yield Sample(family, labels, one.seconds)
