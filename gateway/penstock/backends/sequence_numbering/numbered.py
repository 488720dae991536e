"""Records of a scan with their positions in the terms of all protocols, and drafts of updates to an index."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.backends.positions.columns import Sought
from penstock.core.marks import Mark
from penstock.core.native import Scanned
from penstock.model.limits import MIB
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp
from penstock.model.records import U64_MAX, Columns, RecordBatch, RecordId, StreamPosition, metered_size

__all__ = [
    "Draft",
    "NumberedRecords",
    "behind",
    "end_of",
    "from_marks",
    "join_scans",
    "records_before",
    "without_records",
]

MARK_RECORDS: Final = 1000
MARK_BYTES: Final = 1 * MIB
"""Bounds of the distance between marks, exceeded by at most one append or scan: what a read from the middle skips."""


def behind(timestamp: int, place: int) -> tuple[int, int]:
    """Return the next larger identifier; the largest one is returned unchanged."""
    if place < U64_MAX:
        return timestamp, place + 1
    return (timestamp + 1, 0) if timestamp < U64_MAX else (timestamp, place)


class NumberedRecords(msgspec.Struct):
    """Consecutive records, perhaps none, from sequence number `first` on.

    `timestamps` and `places` are complete even if the server has none; see `penstock.core.native.Scanned` for the rest.
    """

    first: int
    records: Scanned
    timestamps: Sequence[int]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.timestamps)

    def mark(self, index: int) -> Mark:
        """Return the position of the record at this index."""
        offsets = self.records.offsets
        return Mark(
            self.first + index, self.timestamps[index], self.places[index], 0 if offsets is None else offsets[index]
        )

    @property
    def end(self) -> Mark:
        """The position after the last record; there must be one."""
        offsets = self.records.offsets
        return Mark(
            self.first + len(self),
            *behind(self.timestamps[-1], self.places[-1]),
            0 if offsets is None else offsets[len(self)],
        )

    def find(self, mark: Mark) -> int | None:
        """Return the index of the record with the offset or identifier of `mark`, or None; ignores `mark.seq_num`."""
        offsets, size = self.records.offsets, len(self)
        if offsets is not None:
            at = bisect_left(offsets, mark.offset, 0, size)
            return at if at < size and offsets[at] == mark.offset else None
        ids = (mark.timestamp, mark.place)
        at = bisect_left(range(size), ids, key=self._id)
        return at if at < size and self._id(at) == ids else None

    def first_at(self, start: Sought) -> int:
        """Return the index of the first record at or after `start`, or the number of records if there is none."""
        size = len(self)
        match start:
            case FromSeqNum(seq_num):
                return min(max(seq_num - self.first, 0), size)
            case FromTimestamp(timestamp):
                return bisect_left(self.timestamps, timestamp, 0, size)
            case FromRecordId(record_id):
                return bisect_left(range(size), tuple(record_id), key=self._id)
            case FromByteOffset(offset):
                assert self.records.offsets is not None, "asked for by those alone that have them"
                return bisect_left(self.records.offsets, offset, 0, size)

    def _id(self, index: int) -> tuple[int, int]:
        return self.timestamps[index], self.places[index]

    def batch(self, tail: StreamPosition | None = None) -> RecordBatch:
        """Return all records as a batch for readers; there must be at least one."""
        count = len(self)
        headers = self.records.headers
        if headers and count < len(self.records.bodies):
            headers = {index: some for index, some in headers.items() if index < count}
        bodies = self.records.bodies[:count]
        columns = Columns(range(self.first, self.first + count), self.timestamps, bodies, headers)
        first_id = RecordId(self.timestamps[0], self.places[0])
        return RecordBatch(columns, first_id=first_id, tail=tail, metered=metered_size(bodies, headers))


def records_before(scanned: Scanned, end: Mark) -> int:
    """Return how many of these records lie before `end`."""
    if scanned.offsets is not None:
        return bisect_left(scanned.offsets, end.offset, 0, len(scanned.bodies))
    assert scanned.timestamps is not None and scanned.places is not None
    timestamps, places = scanned.timestamps, scanned.places
    wanted = (end.timestamp, end.place)
    return bisect_left(range(len(timestamps)), wanted, key=lambda at: (timestamps[at], places[at]))


def without_records(scanned: Scanned, count: int) -> Scanned:
    """Return a scan without its first `count` records."""
    if not count:
        return scanned
    return Scanned(
        scanned.bodies[count:],
        {index - count: some for index, some in scanned.headers.items() if index >= count},
        None if scanned.timestamps is None else scanned.timestamps[count:],
        None if scanned.places is None else scanned.places[count:],
        None if scanned.offsets is None else scanned.offsets[count:],
        scanned.at_tail,
        scanned.end,
        frozenset(index - count for index in scanned.inner if index >= count),
    )


def end_of(scanned: Scanned) -> Mark:
    """Return the position after the last record of a scan, without its number; there must be a record."""
    if scanned.offsets is not None:
        return Mark(0, 0, 0, scanned.offsets[-1])
    assert scanned.timestamps is not None and scanned.places is not None
    return Mark(0, *behind(scanned.timestamps[-1], scanned.places[-1]), 0)


def join_scans(first: Scanned, second: Scanned) -> Scanned:
    """Join two scans; the second must begin where the first ended."""
    count = len(first.bodies)
    return Scanned(
        first.bodies + second.bodies,
        {**first.headers, **{index + count: some for index, some in second.headers.items()}},
        None if first.timestamps is None or second.timestamps is None else first.timestamps + second.timestamps,
        None if first.places is None or second.places is None else first.places + second.places,
        None if first.offsets is None or second.offsets is None else first.offsets[:-1] + second.offsets,
        second.at_tail,
        second.end,
        first.inner | {index + count for index in second.inner},
    )


def from_marks(marks: Sequence[Mark], first: int, count: int) -> tuple[list[int], list[int]]:
    """Return timestamps and places of `count` records from sequence number `first` on.

    The first mark must be at or before `first`. Records between two marks have the earlier one's timestamp.
    """
    timestamps: list[int] = []
    places: list[int] = []
    for mark, end in zip(marks, [*(mark.seq_num for mark in marks[1:]), first + count], strict=True):
        begin = max(mark.seq_num, first)
        number = min(end, first + count) - begin
        if number > 0:
            timestamps += [mark.timestamp] * number
            place = mark.place + begin - mark.seq_num
            places += range(place, place + number)
    return timestamps, places


class Draft:
    """An update to an index: the new end of the stream, and new marks.

    `last_mark`: the newest mark of the index. `size`: bytes of bodies since that mark. `version`: that of the index.
    `stamped`: True if the gateway gave timestamps that the server does not know.
    """

    def __init__(self, end: Mark, last_mark: Mark | None, size: int, version: int) -> None:
        self.version = version
        self.end = end
        self.marks: list[Mark] = []
        self.size = size
        self.stamped = False
        self._last_mark = last_mark

    def stamp(self, wanted: Sequence[int | None], now: int, inner: frozenset[int] = frozenset()) -> list[int]:
        """Return timestamps for the next records: those wanted, else `now`, but never decreasing.

        Pieces of one event (`inner`) have the timestamp of its first piece.
        """
        last = self.end.timestamp
        timestamps: list[int] = []
        for index, timestamp in enumerate(wanted):
            if index not in inner:
                last = max(last, now if timestamp is None else timestamp)
            timestamps.append(last)
        return timestamps

    def place(self, timestamps: Sequence[int]) -> list[int]:
        """Return the places of the next records within their timestamps."""
        last, place = self.end.timestamp, self.end.place
        places: list[int] = []
        for timestamp in timestamps:
            if timestamp != last:
                last, place = timestamp, 0
            places.append(place)
            place += 1
        return places

    def number(
        self, scanned: Scanned, count: int, now: int, wanted: Sequence[int | None] | None = None
    ) -> NumberedRecords:
        """Number the first `count` records of a scan; `wanted`: their timestamps if the server has none, else `now`."""
        if scanned.timestamps is None or scanned.places is None:
            self.stamped = True
            timestamps = self.stamp([None] * count if wanted is None else wanted, now, scanned.inner)
            places = self.place(timestamps)
        else:
            timestamps, places = scanned.timestamps[:count], scanned.places[:count]
        numbered = NumberedRecords(self.end.seq_num, scanned, timestamps, places)
        self._take(numbered)
        return numbered

    def number_acknowledged(self, first: Mark, end: Mark, size: int) -> None:
        """Number records of one timestamp, of which only the ends are known; `size`: bytes of their bodies."""
        changed = self.end.seq_num == 0 or first.timestamp != self.end.timestamp
        if changed or self._is_far(first) or self.size >= MARK_BYTES:
            self._mark(first)
        self.size += size
        self.end = end

    def _take(self, numbered: NumberedRecords) -> None:
        if not len(numbered):
            return
        records = numbered.records
        before = None if self.end.seq_num == 0 else self.end.timestamp
        for index, timestamp in enumerate(numbered.timestamps):
            changed = records.timestamps is None and timestamp != before
            if index not in records.inner and (changed or self._is_far(numbered.mark(index))):
                self._mark(numbered.mark(index))
            before = timestamp
            self.size += len(records.bodies[index])
        self.end = numbered.end

    def _is_far(self, place: Mark) -> bool:
        last = self._last_mark
        return last is None or place.seq_num - last.seq_num >= MARK_RECORDS or self.size >= MARK_BYTES

    def _mark(self, mark: Mark) -> None:
        self.marks.append(mark)
        self._last_mark = mark
        self.size = 0
