"""Marks in memory, as columns of numbers: 32 bytes per mark, searched by bisection on any coordinate."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.core.marks import Mark
from penstock_codecs.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp

__all__ = ["MarkColumns", "Sought"]

Sought = FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset
"""A start that does not depend on the end of the stream."""


class MarkColumns:
    """Marks, oldest first; no coordinate decreases."""

    __slots__ = ("_offsets", "_places", "_seq_nums", "_timestamps")

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._seq_nums = array("Q")
        self._timestamps = array("Q")
        self._places = array("Q")
        self._offsets = array("Q")
        for mark in marks:
            self.append(mark)

    def __len__(self) -> int:
        return len(self._seq_nums)

    def __getitem__(self, index: int) -> Mark:
        return Mark(self._seq_nums[index], self._timestamps[index], self._places[index], self._offsets[index])

    def append(self, mark: Mark) -> None:
        """Add the newest mark."""
        self._seq_nums.append(mark.seq_num)
        self._timestamps.append(mark.timestamp)
        self._places.append(mark.place)
        self._offsets.append(mark.offset)

    def drop(self, count: int) -> None:
        """Drop the `count` oldest marks."""
        for column in (self._seq_nums, self._timestamps, self._places, self._offsets):
            del column[:count]

    def before(self, start: Sought) -> int:
        """Return the index of the last mark from which reading on finds `start`, or -1 if there is none.

        For a byte offset it is the last mark with a smaller offset, since records without bytes share theirs.
        """
        match start:
            case FromSeqNum(seq_num):
                return bisect_right(self._seq_nums, seq_num) - 1
            case FromTimestamp(timestamp):
                return self._by_id((timestamp, 0))
            case FromRecordId((timestamp, place)):
                return self._by_id((timestamp, place))
            case FromByteOffset(offset):
                return bisect_left(self._offsets, offset) - 1

    def _by_id(self, wanted: tuple[int, int]) -> int:
        timestamps, places = self._timestamps, self._places
        return bisect_right(range(len(timestamps)), wanted, key=lambda at: (timestamps[at], places[at])) - 1
