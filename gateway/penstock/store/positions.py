"""Positions in every protocol's terms: sequence number, timestamp, S3P identifier. One look-up by index each.

All three rise together along a stream, so each finds the row, and a bisection in the row finds the record.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Final

from penstock.store.batches import batch_of_rows, index_of, located
from penstock.store.heads import Stream, StreamHead
from penstock.store.reader import Reader, row_from_sql
from penstock.store.u64 import to_sql
from penstock_codecs.model import RecordId
from penstock_codecs.operations import FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Located, Start

__all__ = ["at_tail", "find", "is_beyond", "next_id"]

_COLUMNS: Final = "SELECT last_seq, count, metered, first_ts, first_id_seq, payload FROM batches"
_BY_SEQ: Final = f"{_COLUMNS} INDEXED BY batches_by_seq WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT 1"
_BY_ID: Final = f"""
{_COLUMNS} INDEXED BY batches_by_id
WHERE stream = ? AND (last_ts, last_id_seq) >= (?, ?) ORDER BY last_ts, last_id_seq LIMIT 1
"""


def next_id(head: StreamHead) -> RecordId:
    """The least identifier that the next record can have."""
    return RecordId(0, 0) if head.last_id is None else RecordId(head.last_id.ms, head.last_id.seq + 1)


def at_tail(head: StreamHead) -> Located:
    """The position of the record that comes next."""
    return Located(head.next_seq, head.tail.timestamp, next_id(head), at_tail=True)


def is_beyond(start: FromSeqNum | FromTimestamp | FromRecordId, head: StreamHead) -> bool:
    """Whether no record that was appended so far is at or after `start`."""
    match start:
        case FromSeqNum(seq_num):
            return seq_num >= head.next_seq
        case FromTimestamp(timestamp):
            return head.last_id is None or timestamp > head.last_id.ms
        case FromRecordId(record_id):
            return head.last_id is None or record_id > head.last_id


async def find(reader: Reader, stream: Stream, start: Start) -> Located:
    """The first durable and retained record at or after `start`, or the tail. Raises OperationFailed."""
    head = stream.durable
    if isinstance(start, FromTailOffset):
        start = FromSeqNum(max(head.next_seq - start.offset, 0))
    if is_beyond(start, head):
        return at_tail(head)
    found = stream.recent.find(start)
    if found is None or found.seq_num < head.trim_point:
        found = await reader.run(partial(_find, stream=stream.id, start=start, trim_point=head.trim_point))
    return found if found is not None and found.seq_num < head.next_seq else at_tail(head)


def _find(
    db: sqlite3.Connection, stream: int, start: FromSeqNum | FromTimestamp | FromRecordId, trim_point: int
) -> Located | None:
    found = _find_stored(db, stream, start)
    if found is not None and found.seq_num < trim_point:  # not purged yet
        return _find_stored(db, stream, FromSeqNum(trim_point))
    return found


def _find_stored(
    db: sqlite3.Connection, stream: int, start: FromSeqNum | FromTimestamp | FromRecordId
) -> Located | None:
    match start:
        case FromSeqNum(seq_num):
            found = db.execute(_BY_SEQ, (stream, to_sql(seq_num)))
        case FromTimestamp(timestamp):
            found = db.execute(_BY_ID, (stream, to_sql(timestamp), 0))
        case FromRecordId((ms, seq)):
            found = db.execute(_BY_ID, (stream, to_sql(ms), to_sql(seq)))
    row = found.fetchone()
    if row is None:
        return None
    batch = batch_of_rows([row_from_sql(row)])
    return located(batch, index_of(start, batch))
