"""Marks in memory, as columns of numbers: 32 bytes per mark, searched by bisection on any coordinate.

Packed, they are the four columns of 8-byte little-endian numbers, one after the other, compressed by zstd: some 5 bytes
per mark of a stream with a mark every few ms.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from penstock.core.marks import Mark
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp
from penstock.wire.compression import Compression, DecompressionError, compress, decompress

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

    def __iter__(self) -> Iterator[Mark]:
        return map(Mark, self._seq_nums, self._timestamps, self._places, self._offsets)

    def append(self, mark: Mark) -> None:
        """Add the newest mark."""
        self._seq_nums.append(mark.seq_num)
        self._timestamps.append(mark.timestamp)
        self._places.append(mark.place)
        self._offsets.append(mark.offset)

    def packed(self) -> bytes:
        """Return all marks, packed."""
        columns = b"".join(map(_little, (self._seq_nums, self._timestamps, self._places, self._offsets)))
        return compress(Compression.ZSTD, columns)

    @classmethod
    def unpacked(cls, data: bytes, most: int) -> MarkColumns:
        """Return the marks of `packed`. Raises STORAGE if it is not that, or of more than `most` marks."""
        try:
            columns = decompress(Compression.ZSTD, data, 4 * 8 * most)
        except DecompressionError as error:
            raise fail(FailureCode.STORAGE, f"a page of positions cannot be unpacked: {error}") from None
        count, rest = divmod(len(columns), 4 * 8)
        if rest:
            raise fail(FailureCode.STORAGE, f"a page of positions has {len(columns)} bytes")
        marks = cls()
        for at, column in enumerate((marks._seq_nums, marks._timestamps, marks._places, marks._offsets)):
            column.frombytes(columns[at * 8 * count : (at + 1) * 8 * count])
            _swap(column)
        return marks

    def behind(self, index: int) -> MarkColumns:
        """Return a copy of the marks from an index on."""
        marks = MarkColumns()
        marks._seq_nums = self._seq_nums[index:]
        marks._timestamps = self._timestamps[index:]
        marks._places = self._places[index:]
        marks._offsets = self._offsets[index:]
        return marks

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


def _little(column: array[int]) -> bytes:
    copy = column[:]
    _swap(copy)
    return copy.tobytes()


def _swap(column: array[int]) -> None:
    """Turn the machine's order of bytes into little-endian, or back."""
    if sys.byteorder == "big":
        column.byteswap()
