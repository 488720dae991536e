"""Marks in memory, as columns of numbers: 32 bytes a mark, and a bisection by any coordinate."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.positions.marks import Mark
from penstock_codecs.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp

__all__ = ["MarkColumns", "Sought"]

Sought = FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset
"""A start that does not depend on where the stream ends."""


class MarkColumns:
    """Marks, oldest first; all coordinates rise or stay."""

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
        """Forget the oldest ones."""
        for column in (self._seq_nums, self._timestamps, self._places, self._offsets):
            del column[:count]

    def before(self, start: Sought) -> int:
        """The index of the last mark from which on what is sought can be found by reading; -1 where there is none.

        Of byte offsets it is the last one with a smaller offset, since records without bytes share theirs.
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
