"""The succession of one stream's segments: key ranges, epochs, successors, cuts. No I/O.

A stream's keys are the numbers from 0 up to 1. At each time, an *epoch*, its segments divide them without gaps and
without overlap. Scaling replaces some segments with others for the same keys and begins the next epoch. A *cut* is a
set of segments, perhaps of several epochs, that divides the keys in the same way, and so divides the stream in two. A
cut of a reader group may lack keys: those of a segment that cannot be read yet, since only some of its predecessors are
finished.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

__all__ = [
    "CutOrder",
    "Epoch",
    "KeyRange",
    "Segment",
    "Segments",
    "before",
    "between",
    "compare",
    "covering",
    "equal_ranges",
    "followers",
    "greatest",
    "history",
    "initial",
    "is_cut",
    "least",
    "of_epoch",
    "replaced",
]


class KeyRange(NamedTuple):
    """Keys from `low` up to, not including, `high`; 1.0 includes the last key."""

    low: float
    high: float

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether they have keys in common."""
        return self.low < other.high and other.low < self.high

    def contains(self, other: KeyRange) -> bool:
        """Return whether all keys of `other` are in this range."""
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
        """The id that clients use: the epoch in the upper 32 bits, the number in the lower."""
        return self.epoch << 32 | self.number

    @property
    def keys(self) -> KeyRange:
        """The range of its keys."""
        return KeyRange(self.low, self.high)

    def is_in(self, epoch: int) -> bool:
        """Return whether it is a segment of that epoch."""
        return self.epoch <= epoch and (self.until is None or epoch < self.until)


Segments = tuple[Segment, ...]
"""All segments that a stream has had, in the order of their numbers."""


def equal_ranges(count: int) -> list[KeyRange]:
    """Return all keys in `count` ranges of the same size. The last ends at exactly 1.0.

    The other edges are multiples of a rounded size, as in Pravega: its clients compute the ranges of segments that they
    scale in the same way, and 3 * (1 / 5) is not 3 / 5.
    """
    size = 1.0 / count
    edges = [index * size for index in range(count)] + [1.0]
    return [KeyRange(low, high) for low, high in itertools.pairwise(edges)]


def initial(count: int, first: int = 0) -> Segments:
    """Return the segments of a new stream, numbered from `first` on."""
    return tuple(Segment(number, 0, *keys) for number, keys in enumerate(equal_ranges(count), first))


def of_epoch(segments: Segments, epoch: int) -> list[Segment]:
    """Return the segments of that epoch, in the order of their keys."""
    return sorted((segment for segment in segments if segment.is_in(epoch)), key=lambda segment: segment.low)


def replaced(segments: Segments, epoch: int, old: Collection[int], new: Sequence[KeyRange]) -> Segments | None:
    """Return the segments with the next epoch: segments for the `new` ranges in place of those with the ids `old`.

    Returns None unless `old` are of this epoch and `new` has exactly their keys, without overlap.
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


class Epoch(NamedTuple):
    """An epoch: its segments in the order of their numbers, how many segments before it were split, and how many of its
    segments have the keys of several."""

    segments: list[Segment]
    splits: int
    merges: int


def history(segments: Segments, epochs: int) -> Iterator[Epoch]:
    """Yield the first `epochs` epochs of a stream, in order."""
    going: defaultdict[int | None, list[Segment]] = defaultdict(list)
    coming: defaultdict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        going[segment.until].append(segment)
        coming[segment.epoch].append(segment)
    now: list[Segment] = []
    for epoch in range(epochs):
        old, new = going[epoch], coming[epoch]
        now = [segment for segment in now if segment.until != epoch] + new
        yield Epoch(now, _dividing(old, new), _dividing(new, old))


def _dividing(segments: Iterable[Segment], others: Sequence[Segment]) -> int:
    """Return how many of the segments have keys in common with several of the others, which do not overlap."""
    lows, highs = sorted(candidate.low for candidate in others), sorted(candidate.high for candidate in others)
    return sum(bisect_left(lows, segment.high) - bisect_right(highs, segment.low) > 1 for segment in segments)


def followers(segments: Segments, segment: Segment) -> list[tuple[Segment, list[Segment]]]:
    """Return the segments that took over its keys, each with all its predecessors; none if it has not been replaced."""
    if segment.until is None:
        return []
    heirs = [candidate for candidate in of_epoch(segments, segment.until) if candidate.keys.overlaps(segment.keys)]
    return [(heir, _followed(segments, heir)) for heir in heirs]


def is_cut(segments: Segments, cut: Mapping[int, int]) -> bool:
    """Return whether offsets, by segments' ids, divide the stream in two.

    Segments with an offset of 0 or above divide the keys without overlap. Keys that they lack must be in segments after
    them, which have an offset below 0: reading these has to wait until all segments before them are finished.
    """
    begun = [segment for segment in segments if cut.get(segment.id, -1) >= 0]
    waiting = [segment for segment in segments if cut.get(segment.id, 0) < 0]
    if not begun or len(begun) + len(waiting) != len(cut) or _runs(segment.keys for segment in begun) is None:
        return False
    successors = _successors(_predecessors(segments))
    after_begun = _reachable(successors, [segment.id for segment in begun])
    after_waiting = _reachable(successors, [segment.id for segment in waiting])
    return (
        all(segment.id in after_begun for segment in waiting)
        and after_waiting.isdisjoint(segment.id for segment in begun)
        and _covered(KeyRange(0.0, 1.0), (segment.keys for segment in (*begun, *waiting)))
    )


def before(segments: Segments, cut: Collection[int]) -> list[Segment]:
    """Return the segments that are wholly before a cut, given as segments' ids."""
    earlier = _reachable(_predecessors(segments), cut)
    return [segment for segment in segments if segment.id in earlier and segment.id not in cut]


def between(segments: Segments, start: Collection[int], end: Collection[int]) -> list[Segment]:
    """Return the segments that have events between two cuts, given as segments' ids, these included.

    Cuts may lack keys; for these, everything at or after the start and before the end counts.
    """
    successors = _successors(_predecessors(segments))
    ids = _reachable(successors, start) - (_reachable(successors, end) - set(end))
    return [segment for segment in segments if segment.id in ids]


class CutOrder(Enum):
    """The order of a cut and another one."""

    BEFORE = "before"
    """For all keys it is before the other one or at it, and for some before."""
    AFTER = "after"
    """For all keys it is after the other one or at it."""
    OVERLAPS = "overlaps"
    """For some keys it is before the other one, and for some after."""


def compare(segments: Segments, cut: Mapping[int, int], other: Mapping[int, int]) -> CutOrder:
    """Return the order of two cuts, given as offsets by segments' ids. Of segments that share keys the one with the
    lower number is the earlier one."""
    before = after = False
    others = [(candidate, other[candidate.id]) for candidate in segments if candidate.id in other]
    for segment in segments:
        if segment.id in cut:
            here = (segment.number, cut[segment.id])
            for candidate, offset in others:
                if candidate.keys.overlaps(segment.keys):
                    before |= here < (candidate.number, offset)
                    after |= here > (candidate.number, offset)
    if before and after:
        return CutOrder.OVERLAPS
    return CutOrder.BEFORE if before else CutOrder.AFTER


def least(segments: Segments, cuts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the position that is at or before all cuts, for all keys, given as offsets by segments' ids.

    It may be no cut (`is_cut`), if the cuts are of epochs that divide the keys quite differently.
    """
    lowest: dict[int, int] = {}
    for cut in cuts:
        for segment_id, offset in cut.items():
            lowest[segment_id] = min(offset, lowest.get(segment_id, offset))
    known = sorted(
        (candidate for candidate in segments if candidate.id in lowest), key=lambda candidate: candidate.number
    )
    begun: list[Segment] = []
    for segment in known:
        if lowest[segment.id] >= 0 and not any(candidate.keys.overlaps(segment.keys) for candidate in begun):
            begun.append(segment)
    waiting = [
        segment
        for segment in known
        if lowest[segment.id] < 0 and not _covered(segment.keys, (candidate.keys for candidate in begun))
    ]
    return {segment.id: lowest[segment.id] for segment in (*begun, *waiting)}


def greatest(segments: Segments, cuts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return a cut that is at or after all these positions, for all keys, given as offsets by segments' ids. Keys that
    no position has come from the beginnings of segments of the latest epoch among them."""
    highest: dict[int, int] = {}
    for cut in cuts:
        for segment_id, offset in cut.items():
            highest[segment_id] = max(offset, highest.get(segment_id, 0))
    chosen: list[Segment] = []

    def take(candidates: Iterable[Segment]) -> None:
        for segment in sorted(candidates, key=lambda candidate: -candidate.number):
            if not any(
                candidate.keys.overlaps(segment.keys) and candidate.number >= segment.number for candidate in chosen
            ):
                chosen[:] = [candidate for candidate in chosen if not candidate.keys.overlaps(segment.keys)]
                chosen.append(segment)

    take(candidate for candidate in segments if candidate.id in highest)
    while not _covered(KeyRange(0.0, 1.0), (candidate.keys for candidate in chosen)):
        latest = of_epoch(segments, max(candidate.epoch for candidate in chosen))
        take(candidate for candidate in latest if not _covered(candidate.keys, (other.keys for other in chosen)))
    return {segment.id: highest.get(segment.id, 0) for segment in chosen}


def covering(segments: Iterable[Segment], keys: KeyRange) -> Segment | None:
    """Return the segment that has all these keys, or None."""
    return next((segment for segment in segments if segment.keys.contains(keys)), None)


def _same_keys(old: Iterable[KeyRange], new: Iterable[KeyRange]) -> bool:
    return _runs(old) == (runs := _runs(new)) and runs is not None


def _covered(keys: KeyRange, ranges: Iterable[KeyRange]) -> bool:
    """Return whether all of the keys are in the ranges."""
    at = keys.low
    for low, high in sorted(ranges):
        if low <= at < high:
            at = high
    return at >= keys.high


def _runs(ranges: Iterable[KeyRange]) -> list[KeyRange] | None:
    """Join adjacent ranges. Returns None if one is empty, overlaps another, or is not within 0 and 1."""
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
    return [candidate for candidate in of_epoch(segments, segment.epoch - 1) if candidate.keys.overlaps(segment.keys)]


def _predecessors(segments: Segments) -> dict[int, list[int]]:
    replaced_by: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.until is not None:
            replaced_by.setdefault(segment.until, []).append(segment)
    return {
        segment.id: [old.id for old in replaced_by.get(segment.epoch, ()) if old.keys.overlaps(segment.keys)]
        for segment in segments
    }


def _successors(predecessors: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    successors: dict[int, list[int]] = {segment: [] for segment in predecessors}
    for segment, followed in predecessors.items():
        for each in followed:
            successors[each].append(segment)
    return successors


def _reachable(edges: Mapping[int, Sequence[int]], start: Iterable[int]) -> set[int]:
    reached: set[int] = set()
    waiting = list(start)
    while waiting:
        if (segment := waiting.pop()) not in reached:
            reached.add(segment)
            waiting += edges[segment]
    return reached
