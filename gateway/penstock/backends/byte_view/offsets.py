"""The index from records of another server to byte offsets: marks, and the end of the records counted so far.

The index has two coordinates only, since the server numbers its records itself. Counts stay after the records are
trimmed. Marks become durable when they are made, and the end when the stream becomes idle.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from penstock.tables.byte_table import ByteTable

__all__ = ["Offsets", "RecordOffset"]

MOST_MARKS: Final = 16_384
"""Approximate bound on the marks of a stream, 16 bytes each: in long streams they are farther apart."""

_PLACE: Final = struct.Struct(">QQ")
_KEY: Final = struct.Struct(">cQ")
_END: Final = b"e"


class RecordOffset(NamedTuple):
    """The position of a record, present or next: its number, and the offset at which its bytes begin."""

    seq_num: int
    offset: int


class Offsets:
    """The marks of one stream, oldest first."""

    def __init__(self, table: ByteTable, every: int) -> None:
        self._table = table
        self._every = every
        self._seq_nums = array("Q", [0])
        self._offsets = array("Q", [0])
        self._saved = 1  # number of durable marks: the first is implied
        self._saved_end = self.end = RecordOffset(0, 0)

    @classmethod
    async def load(cls, table: ByteTable, every: int) -> Offsets:
        """Load the marks of a stream from its table. `every` is the least distance between marks in bytes."""
        offsets = cls(table, every)
        async for key, value in table.items():
            place = RecordOffset(*_PLACE.unpack(value))
            if key == _END:
                offsets._saved_end = offsets.end = place
            else:
                offsets._add(place)
        offsets._saved = len(offsets._seq_nums)
        last = RecordOffset(offsets._seq_nums[-1], offsets._offsets[-1])
        offsets.end = max(offsets.end, last)
        return offsets

    @property
    def is_saved(self) -> bool:
        """True if the end of what is counted is durable."""
        return self._saved_end == self.end

    @property
    def must_save(self) -> bool:
        """True if there are marks that are not durable yet."""
        return self._saved < len(self._seq_nums)

    def advance(self, place: RecordOffset) -> None:
        """Count all records before `place`. Does nothing if they are counted already."""
        if place <= self.end:
            return
        if self.end.offset - self._offsets[-1] >= max(self._every, self.end.offset // MOST_MARKS):
            self._add(self.end)
        self.end = place

    async def save(self) -> None:
        """Make the marks and the end durable."""
        count, end = len(self._seq_nums), self.end
        new = range(self._saved, count)
        items = [
            (_KEY.pack(b"m", self._seq_nums[at]), _PLACE.pack(self._seq_nums[at], self._offsets[at])) for at in new
        ]
        await self._table.put(*items, (_END, _PLACE.pack(*end)))
        self._saved, self._saved_end = max(self._saved, count), end

    def before_offset(self, offset: int) -> RecordOffset:
        """Return the nearest known place before this offset, or the first place."""
        if self.end.offset < offset:
            return self.end
        at = max(bisect_left(self._offsets, offset) - 1, 0)
        return RecordOffset(self._seq_nums[at], self._offsets[at])

    def after_seq_num(self, seq_num: int) -> RecordOffset:
        """Return the first mark at or after this record, or the end if there is none."""
        at = bisect_left(self._seq_nums, seq_num)
        return RecordOffset(self._seq_nums[at], self._offsets[at]) if at < len(self._seq_nums) else self.end

    def before_seq_num(self, seq_num: int) -> RecordOffset:
        """Return the last mark at or before this record, or the end if the record is not counted yet."""
        if self.end.seq_num <= seq_num:
            return self.end
        at = bisect_right(self._seq_nums, seq_num) - 1
        return RecordOffset(self._seq_nums[at], self._offsets[at])

    def _add(self, place: RecordOffset) -> None:
        self._seq_nums.append(place.seq_num)
        self._offsets.append(place.offset)
