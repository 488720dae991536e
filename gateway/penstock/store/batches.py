"""Record batches cut and joined, and positions within them.

Timestamps never fall and identifiers always rise along a batch, so every search is a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from penstock_codecs.byte_layout import Layout, starts_of
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import Columns, RecordBatch, RecordId, StreamPosition, Wire, id_at, metered_size
from penstock_codecs.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp, Located
from penstock_codecs.s2.protobuf import S2_RECORDS, decode_records

__all__ = [
    "Row",
    "Span",
    "all_have_bytes",
    "batch_of_rows",
    "fitting",
    "index_of",
    "index_of_id",
    "join",
    "located",
    "seq_num_at",
]


class Row(NamedTuple):
    """What is stored of one append, but for its place among the stream's bytes, which is a `Span`."""

    last_seq: int
    records: int
    metered: int
    first_id: RecordId
    payload: bytes

    @property
    def first_seq(self) -> int:
        """The number of its first record."""
        return self.last_seq - self.records + 1


class Span(NamedTuple):
    """Where a stored batch stands in the stream's bytes; the two offsets are the same where it has none."""

    first_offset: int
    end_offset: int
    layout: Layout


def batch_of_rows(rows: Sequence[Row], tail: StreamPosition | None = None) -> RecordBatch:
    """Adjacent rows as one batch; nothing is decoded, since payloads joined are a payload."""
    first = rows[0]
    payload = first.payload if len(rows) == 1 else b"".join([row.payload for row in rows])
    return RecordBatch.from_wire(
        Wire(S2_RECORDS, payload),
        _decode,
        count=sum(row.records for row in rows),
        first_seq_num=first.first_seq,
        metered=sum(row.metered for row in rows),
        first_id=first.first_id,
        tail=tail,
    )


def _decode(payload: bytes) -> Columns:
    try:
        return decode_records(payload)
    except OperationFailed as error:  # it is not a client that sent this
        raise fail(FailureCode.STORAGE, f"a stored batch is broken: {error.failure.message}") from error


def join(batches: Sequence[RecordBatch], tail: StreamPosition | None) -> RecordBatch:
    """Adjacent batches of the store as one, with another tail."""
    rows = []
    for batch in batches:
        assert batch.wire is not None and batch.first_id is not None
        rows.append(Row(batch.next_seq_num - 1, batch.count, batch.metered, batch.first_id, batch.wire.data))
    return batch_of_rows(rows, tail)


def fitting(batch: RecordBatch, max_bytes: int) -> int:
    """How many of the first records have no more than `max_bytes` metered bytes together."""
    columns = batch.columns
    used = 0
    for index, body in enumerate(columns.bodies):
        used += metered_size((body,), {0: columns.headers.get(index, ())})
        if used > max_bytes:
            return index
    return batch.count


def all_have_bytes(span: Span, metered: int) -> bool:
    """Whether each record of a batch is known to have bytes, without looking at it; `metered` is its metered size.

    What is left out of plain records makes the bytes fewer than the metered ones; an envelope could make up for it.
    """
    if span.layout & (Layout.RAW | Layout.SENT):
        return True
    return not span.layout and span.end_offset - span.first_offset == metered


def index_of(start: FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset, batch: RecordBatch, span: Span) -> int:
    """The index of the first record at or after `start`; the batch's count where there is none."""
    timestamps = batch.columns.timestamps
    match start:
        case FromSeqNum(seq_num):
            return min(max(seq_num - batch.first_seq_num, 0), batch.count)
        case FromTimestamp(timestamp):
            return bisect_left(timestamps, timestamp)
        case FromRecordId(record_id):
            assert batch.first_id is not None
            return index_of_id(timestamps, batch.first_id, record_id)
        case FromByteOffset(offset):
            starts = starts_of(batch.columns, span.layout)
            return bisect_left(starts, offset - span.first_offset, 0, batch.count)


def seq_num_at(offset: int, batch: RecordBatch, span: Span) -> int:
    """The number of the record that a byte of this batch belongs to; of the first one for bytes before it."""
    starts = starts_of(batch.columns, span.layout)
    return batch.first_seq_num + max(bisect_right(starts, offset - span.first_offset) - 1, 0)


def located(batch: RecordBatch, index: int, span: Span) -> Located:
    """The position of one record of a batch."""
    assert batch.first_id is not None
    timestamps = batch.columns.timestamps
    offset = span.first_offset + (starts_of(batch.columns, span.layout)[index] if index else 0)
    record_id = id_at(timestamps, batch.first_id, index)
    return Located(batch.first_seq_num + index, timestamps[index], record_id, False, offset)


def index_of_id(timestamps: Sequence[int], first_id: RecordId, wanted: RecordId) -> int:
    """The index of the first record whose identifier is `wanted` or later; the length where there is none."""
    index = bisect_left(timestamps, wanted.ms)
    if index == len(timestamps) or timestamps[index] != wanted.ms:
        return index
    within = wanted.seq - id_at(timestamps, first_id, index).seq
    end = bisect_left(timestamps, wanted.ms + 1, index)
    return min(index + max(within, 0), end)
