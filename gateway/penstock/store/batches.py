"""Cutting and joining record batches, and positions within them.

Timestamps never decrease and identifiers always increase along a batch, so every search is a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.model.byte_layout import BYTES, Layout, bodies_of, starts_of, to_bytes
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB, MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MIB
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp, Located
from penstock.model.record_encoding import RECORDS, cut_records, decode_records
from penstock.model.records import (
    Columns,
    Headers,
    JoinedBatch,
    RecordBatch,
    RecordId,
    StreamPosition,
    WireBytes,
    id_at,
    next_record_id,
    parts_within,
)
from penstock.wire.codec import RecordEncoding, installed_encoding

__all__ = [
    "BatchRow",
    "ByteSpan",
    "all_have_bytes",
    "batch_of_payloads",
    "batch_of_rows",
    "batches_within",
    "broken",
    "bytes_of",
    "decode_stored",
    "encoding_named",
    "index_of",
    "index_of_id",
    "is_large",
    "join",
    "located",
    "seq_num_at",
]


MOST_WHOLE: Final = 10_000
MOST_WHOLE_BYTES: Final = 4 * MIB
"""Most records, and their most metered bytes, of a row that is decoded as a whole. Appends are cut so that none has
more; an older gateway stored half a million small records in one row, whose columns take 290 MB."""
_EXACT: Final = (Layout.SENT, Layout.RAW)
_LARGE: Final = 16 * KIB
"""Mean bytes of payloads that are not joined: joining costs 40 us a MiB, and sending 64 pieces no more than one."""


class BatchRow(NamedTuple):
    """The stored row of one append, except for its place in the stream's bytes, which is a `ByteSpan`.

    The payload is the bytes themselves if the layout `is_exact` (then all records have one timestamp), else the
    records in `encoding`: the waist's, the form that most readers want, or that of a codec, in which they came.
    """

    last_seq: int
    records: int
    metered: int
    first_id: RecordId
    layout: Layout
    payload: bytes
    encoding: str = RECORDS

    @property
    def first_seq(self) -> int:
        """Number of its first record."""
        return self.last_seq - self.records + 1


class ByteSpan(NamedTuple):
    """The place of a stored batch in the stream's bytes; the two offsets are equal if it has no bytes."""

    first_offset: int
    end_offset: int
    layout: Layout


def batch_of_rows(rows: Sequence[BatchRow], tail: StreamPosition | None = None) -> RecordBatch:
    """Join adjacent rows into one batch. Rows of one encoding are not decoded, since joined payloads are a payload."""
    first_id, metered = rows[0].first_id, sum(row.metered for row in rows)
    encoding = rows[0].encoding
    if any(row.layout.is_exact or row.encoding != encoding for row in rows):
        columns = [_decoded(list(some)) for _, some in groupby(rows, attrgetter("layout", "encoding"))]
        return RecordBatch(_joined(columns), first_id=first_id, tail=tail, metered=metered)
    count = sum(row.records for row in rows)
    payloads = [row.payload for row in rows]
    return batch_of_payloads(payloads, encoding, rows[0].first_seq, count, metered, first_id, tail)


def batch_of_payloads(
    payloads: list[bytes],
    encoding: str,
    first_seq_num: int,
    count: int,
    metered: int,
    first_id: RecordId | None,
    tail: StreamPosition | None = None,
    joined: Sequence[JoinedBatch] = (),
) -> RecordBatch:
    """Return adjacent payloads in one encoding as one batch, which is not decoded yet; see `RecordBatch.from_wire`."""
    large = sum(map(len, payloads)) >= _LARGE * len(payloads)
    return RecordBatch.from_wire(
        WireBytes(encoding, tuple(payloads) if large else (b"".join(payloads),)),
        partial(decode_stored, encoding=encoding),
        count=count,
        first_seq_num=first_seq_num,
        metered=metered,
        first_id=first_id,
        tail=tail,
        joined=joined,
    )


def is_large(records: int, metered: int, layout: int) -> bool:
    """Return whether a row is read in parts; rows of bytes never are so large."""
    return (records > MOST_WHOLE or metered > MOST_WHOLE_BYTES) and layout not in _EXACT


def batches_within(row: BatchRow, start: int = 0) -> Iterator[RecordBatch]:
    """Yield the records of a row from index `start` on: a large row in batches of at most 1,000, others as a whole.

    Of a large one in the waist's encoding, only the last batch is in memory.
    """
    if not is_large(row.records, row.metered, row.layout):
        yield batch_of_rows([row]).part(start, row.records)
        return
    index, last = 0, RecordId(0, 0)
    for columns in _cut(row):
        count = len(columns.bodies)
        first_id = next_record_id(last, columns.timestamps[0]) if index else row.first_id
        last = id_at(columns.timestamps, first_id, count - 1)
        if index + count > start:
            yield RecordBatch(columns, first_id=first_id).part(max(start - index, 0), count)
        index += count
    if index != row.records:
        raise broken(f"it has {index} records instead of {row.records}")


def _cut(row: BatchRow) -> Iterator[Columns]:
    """Yield the records of a row, at most 1,000 at once."""
    if row.encoding != RECORDS:
        columns = decode_stored(row.payload, row.first_id, row.encoding)
        for start, stop, _ in parts_within(columns.bodies, columns.headers, MAX_BATCH_RECORDS, MAX_BATCH_BYTES):
            yield columns.part(start, stop)
        return
    try:
        for payload in cut_records(row.payload, MAX_BATCH_RECORDS):
            yield decode_records(payload)
    except OperationFailed as error:
        raise broken(error.failure.message) from error


def join(batches: Sequence[RecordBatch], tail: StreamPosition | None) -> RecordBatch:
    """Join adjacent batches of the store into one, with another tail."""
    first, metered = batches[0], sum(batch.metered for batch in batches)
    encodings = {None if batch.wire is None else batch.wire.encoding for batch in batches}
    encoding = encodings.pop()
    if encodings or encoding in (None, BYTES):
        columns = _joined([batch.columns for batch in batches])
        return RecordBatch(columns, first_id=first.first_id, tail=tail, metered=metered)
    count = sum(batch.count for batch in batches)
    payloads = [batch.wire.data for batch in batches if batch.wire is not None]
    return batch_of_payloads(payloads, encoding, first.first_seq_num, count, metered, first.first_id, tail)


def _decoded(rows: Sequence[BatchRow]) -> Columns:
    """Return the columns of adjacent rows of one layout and encoding."""
    if rows[0].layout.is_exact:
        return _columns(rows)
    return decode_stored(_together(rows), rows[0].first_id, rows[0].encoding)


def _together(rows: Sequence[BatchRow]) -> bytes:
    return rows[0].payload if len(rows) == 1 else b"".join([row.payload for row in rows])


def encoding_named(name: str) -> RecordEncoding:
    """Return the encoding of a codec. Raises OperationFailed(STORAGE) if no installed codec has it."""
    encoding = installed_encoding(name)
    if encoding is None:
        raise fail(FailureCode.STORAGE, f"records are stored in encoding {name}, which no installed codec has")
    return encoding


def decode_stored(payload: bytes, first_id: RecordId | None, encoding: str = RECORDS) -> Columns:
    """Decode stored records; `first_id`: of the first one. Raises OperationFailed: DAMAGED if they are malformed,
    STORAGE if no installed codec has their encoding."""
    codec = None if encoding == RECORDS else encoding_named(encoding)
    try:
        return decode_records(payload) if codec is None else codec.decode(payload, first_id.ms if first_id else 0)
    except OperationFailed as error:  # the fault of the store, not of a client
        raise broken(error.failure.message) from error


def _columns(rows: Sequence[BatchRow]) -> Columns:
    """Return the columns of adjacent rows of one layout, which `is_exact`."""
    try:
        bodies = bodies_of([row.payload for row in rows], rows[0].layout)
    except ValueError as error:
        raise broken(str(error)) from error
    timestamps: list[int] = []
    for row in rows:
        timestamps += [row.first_id.ms] * row.records
    if len(bodies) != len(timestamps):
        raise broken(f"it has {len(bodies)} records instead of {len(timestamps)}")
    first = rows[0].first_seq
    return Columns(range(first, first + len(bodies)), timestamps, bodies)


def bytes_of(row: BatchRow) -> bytes:
    """Return the bytes of a stored batch."""
    if row.layout.is_exact:
        return row.payload
    return b"".join([to_bytes(batch.columns, row.layout) for batch in batches_within(row)])


def _joined(columns: Sequence[Columns]) -> Columns:
    """Join the columns of adjacent batches."""
    if len(columns) == 1:
        return columns[0]
    bodies: list[bytes] = []
    timestamps: list[int] = []
    headers: dict[int, Headers] = {}
    for column in columns:
        headers.update({len(bodies) + index: record_headers for index, record_headers in column.headers.items()})
        timestamps += column.timestamps
        bodies += column.bodies
    first = columns[0].seq_nums[0]
    return Columns(range(first, first + len(bodies)), timestamps, bodies, headers)


def broken(what: str) -> OperationFailed:
    """Return the DAMAGED error for a row that differs from what was written."""
    return fail(FailureCode.DAMAGED, f"a stored batch is damaged: {what}")


def all_have_bytes(span: ByteSpan, metered: int) -> bool:
    """Return whether each record of a batch is known to have bytes, without decoding it; `metered`: its metered size.

    A plain batch that leaves something out has fewer bytes than metered ones; with envelopes the sizes tell nothing.
    """
    if span.layout & (Layout.RAW | Layout.SENT):
        return True
    return not span.layout and span.end_offset - span.first_offset == metered


def index_of(
    start: FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset, batch: RecordBatch, span: ByteSpan
) -> int:
    """Return the index of the first record at or after `start`, or the batch's count if there is none."""
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


def seq_num_at(offset: int, batch: RecordBatch, span: ByteSpan) -> int:
    """Return the number of the record that holds the byte at `offset`, or of the first record for bytes before it."""
    starts = starts_of(batch.columns, span.layout)
    return batch.first_seq_num + max(bisect_right(starts, offset - span.first_offset) - 1, 0)


def located(batch: RecordBatch, index: int, span: ByteSpan) -> Located:
    """Return the position of one record of a batch."""
    assert batch.first_id is not None
    timestamps = batch.columns.timestamps
    offset = span.first_offset + (starts_of(batch.columns, span.layout)[index] if index else 0)
    record_id = id_at(timestamps, batch.first_id, index)
    return Located(batch.first_seq_num + index, timestamps[index], record_id, False, offset)


def index_of_id(timestamps: Sequence[int], first_id: RecordId, wanted: RecordId) -> int:
    """Return the index of the first record whose identifier is `wanted` or later, or the length if there is none."""
    index = bisect_left(timestamps, wanted.ms)
    if index == len(timestamps) or timestamps[index] != wanted.ms:
        return index
    within = wanted.seq - id_at(timestamps, first_id, index).seq
    end = bisect_left(timestamps, wanted.ms + 1, index)
    return min(index + max(within, 0), end)
