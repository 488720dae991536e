"""Positions in the terms of all protocols: sequence number, timestamp, record id, byte offset.

All four increase together along a stream, so each finds the row (`seeking`), and a bisection in the row the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from penstock.model.byte_layout import byte_length
from penstock.model.operations import (
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Located,
    Start,
)
from penstock.model.records import RecordBatch, RecordId
from penstock.store.batches import ByteSpan, batches_within, index_of, located, seq_num_at
from penstock.store.heads import StoredStream, StreamHead
from penstock.store.reader import ReaderThreads, row_from_sql
from penstock.store.schema import ReaderConnection
from penstock.store.seeking import first_reaching
from penstock.store.u64 import from_sql, to_sql

__all__ = ["at_tail", "find_byte", "find_position", "first_offset", "is_beyond", "next_id"]

Found = FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset

_COLUMNS: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding,
  payload, file, file_offset, file_bytes, checksum, first_offset, end_offset
FROM batches
"""
# Two rows: an offset at the end of a row belongs to its last records if they are without bytes, else to the next row.
_FROM: Final = f"{_COLUMNS} INDEXED BY batches_by_seq WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT 2"


def next_id(head: StreamHead) -> RecordId:
    """Return the least identifier that the next record can have."""
    return RecordId(0, 0) if head.last_id is None else RecordId(head.last_id.ms, head.last_id.seq + 1)


def at_tail(head: StreamHead) -> Located:
    """Return the position of the next record."""
    return Located(head.next_seq, head.tail.timestamp, next_id(head), at_tail=True, offset=head.next_offset)


def is_beyond(start: Found, head: StreamHead) -> bool:
    """Return whether no record appended so far is at or after `start`. For an offset at the end, it returns False."""
    match start:
        case FromSeqNum(seq_num):
            return seq_num >= head.next_seq
        case FromTimestamp(timestamp):
            return head.last_id is None or timestamp > head.last_id.ms
        case FromRecordId(record_id):
            return head.last_id is None or record_id > head.last_id
        case FromByteOffset(offset):
            return offset > head.next_offset


async def find_position(reader: ReaderThreads, stream: StoredStream, start: Start) -> Located:
    """Return the position of the first durable and retained record at or after `start`, or of the tail.

    Raises OperationFailed.
    """
    head = stream.durable
    if isinstance(start, FromTailOffset):
        start = FromSeqNum(max(head.next_seq - start.offset, 0))
    if is_beyond(start, head):
        return at_tail(head)
    recent = stream.recent
    position = recent.find(start)
    if (
        (position is None or position.seq_num < head.trim_point)
        and recent.first_seq_num <= head.trim_point
        and not isinstance(start, FromByteOffset)  # records without bytes may share one
    ):
        position = recent.find(FromSeqNum(head.trim_point))  # the first record that is kept
    if position is None or position.seq_num < head.trim_point:
        position = await reader.run(partial(_find, stream=stream.id, start=start, trim_point=head.trim_point))
    return position if position is not None and position.seq_num < head.next_seq else at_tail(head)


async def first_offset(reader: ReaderThreads, stream: StoredStream) -> int:
    """Return the offset of the first durable byte that is kept. Raises OperationFailed."""
    head = stream.durable
    if not head.trim_point:
        return head.truncated_at
    trim_point, offset = stream.trimmed
    if trim_point != head.trim_point:
        position = await find_position(reader, stream, FromSeqNum(head.trim_point))
        assert position.offset is not None
        offset = position.offset
        stream.trimmed = (position.seq_num, offset)
    return max(offset, stream.durable.truncated_at)


async def find_byte(reader: ReaderThreads, stream: StoredStream, offset: int) -> int:
    """Return the number of the durable record that holds a byte, or of a later one if it is gone.

    `offset` must lie before the end. Raises OperationFailed.
    """
    head = stream.durable
    seq_num = stream.recent.seq_num_at(offset)
    if seq_num is None:
        seq_num = await reader.run(partial(_find_byte, stream=stream.id, offset=offset))
    return head.next_seq if seq_num is None else seq_num


def _find(db: ReaderConnection, stream: int, start: Found, trim_point: int) -> Located | None:
    position = _find_stored(db, stream, start)
    if position is not None and position.seq_num < trim_point:  # not purged yet
        return _find_stored(db, stream, FromSeqNum(trim_point))
    return position


def _find_stored(db: ReaderConnection, stream: int, start: Found) -> Located | None:
    match start:
        case FromSeqNum(seq_num):
            number: int | None = seq_num
        case FromTimestamp(timestamp):
            number = first_reaching(db, stream, "id", (timestamp, 0))
        case FromRecordId(record_id):
            number = first_reaching(db, stream, "id", record_id)
        case FromByteOffset(offset):
            number = first_reaching(db, stream, "offset", (offset, 0))
    if number is None:
        return None
    for row in db.execute(_FROM, (stream, to_sql(number))):
        first = _first_record(row)
        if _is_at_or_after(first, start):
            return first
        for batch, span in _stored(db, stream, row):
            index = index_of(start, batch, span)
            if index < batch.count:
                return located(batch, index, span)
    return None


def _find_byte(db: ReaderConnection, stream: int, offset: int) -> int | None:
    number = first_reaching(db, stream, "offset", (offset + 1, 0))
    if number is None:
        return None
    row = db.execute(_FROM, (stream, to_sql(number))).fetchone()
    for batch, span in _stored(db, stream, row):
        if offset < span.end_offset:
            return seq_num_at(offset, batch, span)
    return None


def _first_record(row: tuple[Any, ...]) -> Located:
    """Return the position of a row's first record, which needs no payload."""
    last_seq, count, _, first_ts, first_id_seq = row[:5]
    record_id = RecordId(from_sql(first_ts), from_sql(first_id_seq))
    return Located(from_sql(last_seq) - count + 1, record_id.ms, record_id, False, row[-2])


def _is_at_or_after(position: Located, start: Found) -> bool:
    match start:
        case FromSeqNum(seq_num):
            return position.seq_num >= seq_num
        case FromTimestamp(timestamp):
            return position.timestamp >= timestamp
        case FromRecordId(record_id):
            return position.record_id is not None and position.record_id >= record_id
        case FromByteOffset(offset):
            return position.offset is not None and position.offset >= offset


def _stored(db: ReaderConnection, stream: int, row: tuple[Any, ...]) -> Iterator[tuple[RecordBatch, ByteSpan]]:
    *columns, first, end = row
    stored = row_from_sql(db, stream, tuple(columns))
    for batch in batches_within(stored):
        is_last = batch.next_seq_num > stored.last_seq
        offset = end if is_last else first + byte_length(batch.columns, stored.layout)
        yield batch, ByteSpan(first, offset, stored.layout)
        first = offset
