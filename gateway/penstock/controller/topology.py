"""How the segments of one stream follow one another: key ranges, epochs, successors, cuts. No I/O.

A stream's keys are the numbers from 0 up to 1. At each time, an *epoch*, its segments share them without gaps and
without overlap. Scaling replaces some segments with others for the same keys and begins the next epoch. A *cut* is a
set of segments, perhaps of several epochs, that shares the keys in the same way, so it parts the stream in two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

__all__ = [
    "KeyRange",
    "Segment",
    "Segments",
    "before",
    "between",
    "covering",
    "equal_ranges",
    "fills",
    "followers",
    "initial",
    "is_cut",
    "of_epoch",
    "replaced",
]


class KeyRange(NamedTuple):
    """Keys from `low` up to, not including, `high`; 1.0 stands for the last key too."""

    low: float
    high: float

    def overlaps(self, other: KeyRange) -> bool:
        """Whether they have keys in common."""
        return self.low < other.high and other.low < self.high

    def contains(self, other: KeyRange) -> bool:
        """Whether all keys of `other` are in this one."""
        return self.low <= other.low and other.high <= self.high


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """One segment: it exists from its `epoch` on, until epoch `until` replaced it, if one did."""

    number: int
    epoch: int
    low: float
    high: float
    until: int | None = None

    @property
    def id(self) -> int:
        """What clients call it: the epoch in the upper 32 bits, the number in the lower."""
        return self.epoch << 32 | self.number

    @property
    def keys(self) -> KeyRange:
        """Its keys."""
        return KeyRange(self.low, self.high)

    def is_in(self, epoch: int) -> bool:
        """Whether it is a segment of that epoch."""
        return self.epoch <= epoch and (self.until is None or epoch < self.until)


Segments = tuple[Segment, ...]
"""All segments that a stream has had, in the order of their numbers."""


def equal_ranges(count: int) -> list[KeyRange]:
    """All keys in `count` ranges of the same size. The last ends at exactly 1.0."""
    return [KeyRange(index / count, (index + 1) / count) for index in range(count)]


def initial(count: int) -> Segments:
    """The segments of a new stream."""
    return tuple(Segment(number, 0, *keys) for number, keys in enumerate(equal_ranges(count)))


def of_epoch(segments: Segments, epoch: int) -> list[Segment]:
    """The segments of that epoch, in the order of their keys."""
    return sorted((segment for segment in segments if segment.is_in(epoch)), key=lambda segment: segment.low)


def replaced(segments: Segments, epoch: int, old: Collection[int], new: Sequence[KeyRange]) -> Segments | None:
    """With the next epoch: segments for the `new` ranges in place of those with the ids `old`.

    None unless `old` are of this epoch and `new` has exactly their keys, without overlap.
    """
    leaving = [segment for segment in segments if segment.is_in(epoch) and segment.id in old]
    if not leaving or len(leaving) != len(set(old)) or not _same_keys([segment.keys for segment in leaving], new):
        return None
    following, gone = epoch + 1, frozenset(old)
    kept = (
        msgspec.structs.replace(segment, until=following) if segment.id in gone else segment for segment in segments
    )
    number = segments[-1].number + 1
    made = (Segment(number + index, following, *keys) for index, keys in enumerate(sorted(new)))
    return (*kept, *made)


def followers(segments: Segments, segment: Segment) -> list[tuple[Segment, list[Segment]]]:
    """The segments that took over its keys, each with all those that it follows; none while nothing replaced it."""
    if segment.until is None:
        return []
    heirs = [other for other in of_epoch(segments, segment.until) if other.keys.overlaps(segment.keys)]
    return [(heir, _followed(segments, heir)) for heir in heirs]


def is_cut(segments: Iterable[Segment]) -> bool:
    """Whether they share all keys without gaps and without overlap."""
    return fills([segment.keys for segment in segments], KeyRange(0.0, 1.0))


def before(segments: Segments, cut: Collection[int]) -> list[Segment]:
    """The segments that are wholly before a cut, given as segments' ids."""
    earlier = _reachable(_predecessors(segments), cut)
    return [segment for segment in segments if segment.id in earlier and segment.id not in cut]


def between(segments: Segments, start: Collection[int], end: Collection[int]) -> list[Segment]:
    """The segments that have events between two cuts, given as segments' ids, these included."""
    predecessors = _predecessors(segments)
    successors: dict[int, list[int]] = {segment.id: [] for segment in segments}
    for segment, followed in predecessors.items():
        for each in followed:
            successors[each].append(segment)
    found = _reachable(successors, start) & _reachable(predecessors, end)
    return [segment for segment in segments if segment.id in found]


def covering(segments: Iterable[Segment], keys: KeyRange) -> Segment | None:
    """The one of these segments that has all these keys, if one has."""
    return next((segment for segment in segments if segment.keys.contains(keys)), None)


def fills(ranges: Iterable[KeyRange], whole: KeyRange) -> bool:
    """Whether the ranges, none of them empty, make up `whole` without gaps and without overlap."""
    at = whole.low
    for low, high in sorted(ranges):
        if low != at or not low < high:
            return False
        at = high
    return at == whole.high


def _same_keys(old: Iterable[KeyRange], new: Iterable[KeyRange]) -> bool:
    return _runs(old) == (runs := _runs(new)) and runs is not None


def _runs(ranges: Iterable[KeyRange]) -> list[KeyRange] | None:
    """Adjacent ranges joined; None where one is empty, overlaps another, or is not within 0 and 1."""
    runs: list[KeyRange] = []
    for keys in sorted(ranges):
        if not 0.0 <= keys.low < keys.high <= 1.0 or (runs and keys.low < runs[-1].high):
            return None
        if runs and keys.low == runs[-1].high:
            runs[-1] = KeyRange(runs[-1].low, keys.high)
        else:
            runs.append(keys)
    return runs


def _followed(segments: Segments, segment: Segment) -> list[Segment]:
    if segment.epoch == 0:
        return []
    return [other for other in of_epoch(segments, segment.epoch - 1) if other.keys.overlaps(segment.keys)]


def _predecessors(segments: Segments) -> dict[int, list[int]]:
    replaced_by: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.until is not None:
            replaced_by.setdefault(segment.until, []).append(segment)
    return {
        segment.id: [old.id for old in replaced_by.get(segment.epoch, ()) if old.keys.overlaps(segment.keys)]
        for segment in segments
    }


def _reachable(edges: Mapping[int, Sequence[int]], start: Iterable[int]) -> set[int]:
    found: set[int] = set()
    waiting = list(start)
    while waiting:
        if (segment := waiting.pop()) not in found:
            found.add(segment)
            waiting += edges[segment]
    return found
