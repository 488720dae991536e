"""Where the bytes of another server's records are: marks from record to offset, and how far is counted.

An index of two coordinates only: the server numbers its records itself. What was counted once stays, also where the
records go later; marks are durable when they are made, and the end whenever the stream rests.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from penstock.backs.bytes_on_records.tables import Table

__all__ = ["Offsets", "Place"]

MOST_MARKS: Final = 16_384
"""About so many marks a stream has, 16 bytes each: of long streams they are farther apart."""

_PLACE: Final = struct.Struct(">QQ")
_KEY: Final = struct.Struct(">cQ")
_END: Final = b"e"


class Place(NamedTuple):
    """Where a record is, or will be: how many were before it, and where its bytes begin."""

    seq_num: int
    offset: int


class Offsets:
    """The marks of one stream, oldest first."""

    def __init__(self, table: Table, every: int) -> None:
        self._table = table
        self._every = every
        self._seq_nums = array("Q", [0])
        self._offsets = array("Q", [0])
        self._saved = 1  # so many marks are durable: the first is there by itself
        self._saved_end = self.end = Place(0, 0)

    @classmethod
    async def load(cls, table: Table, every: int) -> Offsets:
        """What was counted before. `every`: bytes between marks, at least."""
        offsets = cls(table, every)
        async for key, value in table.items():
            place = Place(*_PLACE.unpack(value))
            if key == _END:
                offsets._saved_end = offsets.end = place
            else:
                offsets._add(place)
        offsets._saved = len(offsets._seq_nums)
        last = Place(offsets._seq_nums[-1], offsets._offsets[-1])
        offsets.end = max(offsets.end, last)
        return offsets

    @property
    def is_saved(self) -> bool:
        """Whether all that was counted is durable."""
        return self._saved_end == self.end

    @property
    def must_save(self) -> bool:
        """Whether there are marks that are not durable yet."""
        return self._saved < len(self._seq_nums)

    def advance(self, place: Place) -> None:
        """The records before this one are counted. What is before the end already changes nothing."""
        if place <= self.end:
            return
        if self.end.offset - self._offsets[-1] >= max(self._every, self.end.offset // MOST_MARKS):
            self._add(self.end)
        self.end = place

    async def save(self) -> None:
        """Make durable what was counted."""
        count, end = len(self._seq_nums), self.end
        new = range(self._saved, count)
        items = [
            (_KEY.pack(b"m", self._seq_nums[at]), _PLACE.pack(self._seq_nums[at], self._offsets[at])) for at in new
        ]
        await self._table.put(*items, (_END, _PLACE.pack(*end)))
        self._saved, self._saved_end = max(self._saved, count), end

    def before_offset(self, offset: int) -> Place:
        """A place, the first or one whose bytes are before this offset: as near as is known."""
        if self.end.offset < offset:
            return self.end
        at = max(bisect_left(self._offsets, offset) - 1, 0)
        return Place(self._seq_nums[at], self._offsets[at])

    def after_seq_num(self, seq_num: int) -> Place:
        """The first mark at or behind this record, or the end."""
        at = bisect_left(self._seq_nums, seq_num)
        return Place(self._seq_nums[at], self._offsets[at]) if at < len(self._seq_nums) else self.end

    def before_seq_num(self, seq_num: int) -> Place:
        """The last mark at or before this record; the end where that is before it."""
        if self.end.seq_num <= seq_num:
            return self.end
        at = bisect_right(self._seq_nums, seq_num) - 1
        return Place(self._seq_nums[at], self._offsets[at])

    def _add(self, place: Place) -> None:
        self._seq_nums.append(place.seq_num)
        self._offsets.append(place.offset)
