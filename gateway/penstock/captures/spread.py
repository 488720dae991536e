"""How durations are spread, in memory that does not grow with their number."""

from __future__ import annotations

from typing import Final

__all__ = ["Spread"]

_STEPS: Final = 32
"""So many classes for each doubling: what is told is at most 1/32 too large."""


class Spread:
    """Counts durations by size. At most 2,000 classes."""

    __slots__ = ("_classes", "count", "most")

    def __init__(self) -> None:
        self._classes: dict[int, int] = {}
        self.count = 0
        self.most = 0
        """The longest one."""

    def add(self, value: int) -> None:
        """One more, in whatever unit; negative ones count as 0."""
        value = max(0, value)
        self.count += 1
        self.most = max(self.most, value)
        place = _class_of(value)
        self._classes[place] = self._classes.get(place, 0) + 1

    def percentile(self, percent: float) -> int | None:
        """The value that so many of a hundred do not exceed; None where there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for place in sorted(self._classes):
            seen += self._classes[place]
            if seen >= wanted:
                return min(_largest(place), self.most)
        return None


def _class_of(value: int) -> int:
    if value < 2 * _STEPS:
        return value
    shift = value.bit_length() - _STEPS.bit_length()
    return shift * _STEPS + (value >> shift)


def _largest(place: int) -> int:
    """The largest value of a class."""
    if place < 2 * _STEPS:
        return place
    shift = place // _STEPS - 1
    return ((place - shift * _STEPS + 1) << shift) - 1
