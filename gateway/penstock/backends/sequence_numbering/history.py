"""Reading the part of a stream whose records have numbers, and finding records in it.

Other clients of the server may trim a stream at any time. Numbers must not slip then, and a server may not say
that records are missing: it returns the first ones that it has. So a read begins with a known record, the last one of
the read before, unless this gateway uses the stream exclusively.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.backends.positions.columns import Sought
from penstock.backends.sequence_numbering.numbered import (
    NumberedRecords,
    end_of,
    join_scans,
    records_before,
    without_records,
)
from penstock.backends.sequence_numbering.state import IndexedStream, is_beyond
from penstock.backends.sequence_numbering.trimmed import is_there, note_trim, truncated_at
from penstock.core.marks import Mark
from penstock.core.native import Scanned
from penstock.model.failures import OperationFailed
from penstock.model.limits import MAX_BATCH_RECORDS
from penstock.model.operations import FromByteOffset, FromSeqNum

__all__ = ["ScanStart", "cursor_at", "cursor_in", "cursor_to", "read"]


class ScanStart(NamedTuple):
    """A place to read from: records from `at` on, found by scanning from `begin`, a known record at or before it.

    `begin` is None if `at` was the end of the stream once, and the record that came there is not known.
    """

    at: Mark
    begin: Mark | None


async def cursor_to(stream: IndexedStream, start: Sought) -> ScanStart:
    """Return a cursor at the first retained record at or after `start`, or at the tail.

    Scans for records without numbers only if the numbered ones do not suffice. Raises OperationFailed.
    """
    await stream.catch_up(start)
    return await cursor_at(stream, start)


async def cursor_at(stream: IndexedStream, start: Sought) -> ScanStart:
    """Return a cursor at the first retained and numbered record at or after `start`, or at the last number's end.

    Raises OperationFailed.
    """
    if is_beyond(start, stream.end):
        return ScanStart(stream.end, None)
    at = await stream.index.before(FromByteOffset(start.offset + 1) if isinstance(start, FromByteOffset) else start)
    cursor = ScanStart(at, at)
    if isinstance(start, FromSeqNum) and at.seq_num >= start.seq_num:
        return cursor
    while len(numbered := await read(stream, cursor)):
        index = numbered.first_at(start)
        if index < len(numbered):
            return cursor_in(stream, numbered, index)
        cursor = cursor_in(stream, numbered, len(numbered))
    return ScanStart(stream.end, None)


def cursor_in(stream: IndexedStream, numbered: NumberedRecords, index: int) -> ScanStart:
    """Return a cursor at one of these records, or behind the last one."""
    if index == len(numbered):
        if stream.has_offsets or stream.settings.exclusive:
            return ScanStart(numbered.end, numbered.end)
        return ScanStart(numbered.end, numbered.mark(index - 1))
    first = index
    while first in numbered.records.inner:
        first -= 1
    return ScanStart(numbered.mark(index), numbered.mark(first))


async def read(stream: IndexedStream, cursor: ScanStart, max_records: int = MAX_BATCH_RECORDS) -> NumberedRecords:
    """Return numbered records from `cursor` on, or from the first retained one after it; none at the stream's end.

    Raises OperationFailed.
    """
    while True:
        stream.check()
        at, begin = cursor
        first = stream.index.first
        if at.seq_num <= first.seq_num:
            at = begin = first
        if at.seq_num >= stream.end.seq_num:
            return NumberedRecords(stream.end.seq_num, Scanned([]), [], [])
        if begin is None:
            cursor = await cursor_at(stream, FromSeqNum(at.seq_num))
            continue
        numbered = await _read_once(stream, at, begin, max_records)
        if numbered is not None:
            return numbered
        cursor = ScanStart(at, begin)


async def _scan_beyond(stream: IndexedStream, begin: Mark, skipped: int, max_records: int) -> Scanned:
    """Scan from `begin` until there are more than `skipped` records, or the stream ends.

    A server may return fewer records than requested. Those of a second scan follow the first ones without a
    gap if `begin` is still there afterwards. If it is not, return what is there now.
    """
    scanned = await stream.scan(begin, max_records + skipped)
    while 0 < len(scanned.bodies) <= skipped and not scanned.at_tail:
        more = await stream.scan(end_of(scanned), max_records)
        first = await stream.scan(begin, 1)
        if not is_there(stream, first, begin):
            return first
        if not more.bodies:
            break
        scanned = join_scans(scanned, more)
    return scanned


async def _read_once(stream: IndexedStream, at: Mark, begin: Mark, max_records: int) -> NumberedRecords | None:
    """Return numbered records from `at` on, scanned from `begin`, or None if the stream begins later now."""
    skipped, end = at.seq_num - begin.seq_num, stream.end
    try:
        scanned = await _scan_beyond(stream, begin, skipped, max_records)
    except OperationFailed as error:
        await note_trim(stream, begin._replace(offset=truncated_at(error)), None, end)
        return None
    if stream.index.first.seq_num > at.seq_num:
        return None
    if not is_there(stream, scanned, begin):
        await note_trim(stream, begin, scanned, end)
        return None
    wanted = without_records(scanned, skipped)
    count = min(len(wanted.bodies), stream.end.seq_num - at.seq_num, records_before(wanted, stream.end))
    return await stream.recall(at.seq_num, wanted, count)
