"""Reading the part of a stream whose records have numbers, and finding records in it.

Whoever else uses the server may trim a stream at any time. Numbers must not slip then, and a server of S3P does not
say that records are missing: it gives the first that it has. So a read begins with a record that is known, the last
one of what was read before, unless this gateway has the stream to itself.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.backs.indexed.numbered import Numbered, end_of, joined, records_before, without
from penstock.backs.indexed.state import StreamState, is_beyond
from penstock.backs.indexed.trimmed import is_there, note_trim, truncated_at
from penstock.backs.native import Scanned
from penstock.positions.columns import Sought
from penstock.positions.marks import Mark
from penstock_codecs.failures import OperationFailed
from penstock_codecs.limits import S2_MAX_BATCH_RECORDS
from penstock_codecs.operations import FromByteOffset, FromSeqNum

__all__ = ["Cursor", "cursor_at", "cursor_in", "cursor_to", "read"]


class Cursor(NamedTuple):
    """Where to read on: at `at`, and for that from `begin` on, which is a known record at or before it.

    None: `at` is where the stream ended once; which record came there is not known.
    """

    at: Mark
    begin: Mark | None


async def cursor_to(stream: StreamState, start: Sought) -> Cursor:
    """The first retained record at or after `start`, or the tail. Looks for records that have no numbers yet only where
    those that have do not tell. Raises OperationFailed."""
    await stream.catch_up(start)
    return await cursor_at(stream, start)


async def cursor_at(stream: StreamState, start: Sought) -> Cursor:
    """The first retained record at or after `start`; the stream's end where none that has a number is. Raises
    OperationFailed."""
    if is_beyond(start, stream.end):
        return Cursor(stream.end, None)
    at = await stream.index.before(FromByteOffset(start.offset + 1) if isinstance(start, FromByteOffset) else start)
    cursor = Cursor(at, at)
    if isinstance(start, FromSeqNum) and at.seq_num >= start.seq_num:
        return cursor
    while len(numbered := await read(stream, cursor)):
        index = numbered.first_at(start)
        if index < len(numbered):
            return cursor_in(stream, numbered, index)
        cursor = cursor_in(stream, numbered, len(numbered))
    return Cursor(stream.end, None)


def cursor_in(stream: StreamState, numbered: Numbered, index: int) -> Cursor:
    """At one of these records, or behind the last."""
    if index == len(numbered):
        if stream.has_offsets or stream.settings.exclusive:
            return Cursor(numbered.end, numbered.end)
        return Cursor(numbered.end, numbered.mark(index - 1))
    first = index
    while first in numbered.records.inner:
        first -= 1
    return Cursor(numbered.mark(index), numbered.mark(first))


async def read(stream: StreamState, cursor: Cursor, max_records: int = S2_MAX_BATCH_RECORDS) -> Numbered:
    """Records with numbers from `cursor` on, or from the first retained one that follows; none at the stream's end.

    Raises OperationFailed.
    """
    while True:
        stream.check()
        at, begin = cursor
        first = stream.index.first
        if at.seq_num <= first.seq_num:
            at = begin = first
        if at.seq_num >= stream.end.seq_num:
            return Numbered(stream.end.seq_num, Scanned([]), [], [])
        if begin is None:
            cursor = await cursor_at(stream, FromSeqNum(at.seq_num))
            continue
        numbered = await _read_once(stream, at, begin, max_records)
        if numbered is not None:
            return numbered
        cursor = Cursor(at, begin)


async def _scan_beyond(stream: StreamState, begin: Mark, skipped: int, max_records: int) -> Scanned:
    """Records from `begin` on: more than `skipped` where there are more. A server may give fewer than were asked for
    (S3P 8.3); what is behind those is next to them if the first is still there afterwards. Where it is not, gives
    what is there."""
    scanned = await stream.scan(begin, max_records + skipped)
    while 0 < len(scanned.bodies) <= skipped and not scanned.at_tail:
        more = await stream.scan(end_of(scanned), max_records)
        first = await stream.scan(begin, 1)
        if not is_there(stream, first, begin):
            return first
        if not more.bodies:
            break
        scanned = joined(scanned, more)
    return scanned


async def _read_once(stream: StreamState, at: Mark, begin: Mark, max_records: int) -> Numbered | None:
    """None: the stream begins later now."""
    skipped = at.seq_num - begin.seq_num
    try:
        scanned = await _scan_beyond(stream, begin, skipped, max_records)
    except OperationFailed as error:
        await note_trim(stream, begin._replace(offset=truncated_at(error)), None)
        return None
    if stream.index.first.seq_num > at.seq_num:
        return None
    if not is_there(stream, scanned, begin):
        await note_trim(stream, begin, scanned)
        return None
    wanted = without(scanned, skipped)
    count = min(len(wanted.bodies), stream.end.seq_num - at.seq_num, records_before(wanted, stream.end))
    return await stream.recall(at.seq_num, wanted, count)
