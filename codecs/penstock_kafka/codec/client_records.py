"""Records of streams as batches that are produced, and batches that were fetched as records of streams.

Offsets are sequence numbers. They have gaps: control records, records of transactions that were aborted, and what
compaction has removed are no records of a stream. So fetched records come in runs without a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import lt
from typing import Final, NamedTuple

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_RECORD_BYTES, MIB
from penstock.model.records import Columns, Headers, WireBytes, metered_size
from penstock_kafka.codec.batches import (
    LARGEST,
    MOST_BYTES,
    KafkaBatch,
    KafkaHeaders,
    header_of,
    read_batch,
    whole_batches,
)
from penstock_kafka.codec.carrying import check_names, from_headers, to_headers
from penstock_kafka.codec.kept import keep
from penstock_kafka.codec.record_messages import AbortedTransaction

__all__ = ["FetchedRecords", "FetchedRun", "ProducedRecords", "read_fetched", "to_produced"]

_ABORT: Final = b"\0\0\0\0"
"""The key of a control record that ends a transaction without its records: version 0, type 0."""
_TOGETHER_RECORDS: Final = 50_000
_TOGETHER_BYTES: Final = 16 * MIB
"""Records and decompressed bytes of an answer after which no further batch is decoded: brokers bound what they send by
its compressed size."""


class ProducedRecords(NamedTuple):
    """Keys, values and headers of records, as columns of a `KafkaBatch`. `event_times`: of records whose header tells
    one, by index."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: dict[int, KafkaHeaders]
    event_times: dict[int, int]


class FetchedRun(NamedTuple):
    """Records without a gap between their numbers. `kept`: the batch that they came in, if they are all of it and it
    can be handed out as it is."""

    columns: Columns
    kept: WireBytes | None = None


class FetchedRecords(NamedTuple):
    """Records of one answer. `runs`: in order. `next_offset`: the offset to read on from, behind what was left out; the
    answer may have records from there on, which were not decoded."""

    runs: list[FetchedRun]
    next_offset: int


def to_produced(bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> ProducedRecords:
    """Return records as columns of a batch. Raises NOT_REPRESENTABLE for a header that Kafka cannot carry."""
    count = len(bodies)
    columns = ProducedRecords([None] * count, list(bodies), {}, {})
    for index, some in headers.items():
        key, value, own_headers, event_time = from_headers(index, some, bodies[index])
        columns.keys[index], columns.values[index] = key, value
        if event_time is not None:
            columns.event_times[index] = event_time
        if own_headers:
            check_names(index, own_headers)  # such a record could not be read again
            columns.headers[index] = own_headers
    return columns


def read_fetched(
    data: bytes, start: int, aborted: Sequence[AbortedTransaction] = (), *, max_bytes: int = MOST_BYTES
) -> FetchedRecords:
    """Return the records from offset `start` on, without those of aborted transactions: those of all batches, or the
    first ones if they decompress to very many, also of one batch.

    `max_bytes`: most decompressed bytes of a batch. Records at offsets that were passed already are left out. Raises
    BAD_FORMAT for batches that are damaged, LIMIT_EXCEEDED for one that decompresses to more, and NOT_REPRESENTABLE for
    a record that streams cannot carry, unless others come before it.
    """
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    skipped: set[int] = set()  # producers whose transaction was aborted
    fetched = FetchedRecords([], start)
    records = size = 0
    for begin, stop in whole_batches(data):
        if records >= _TOGETHER_RECORDS or size >= _TOGETHER_BYTES:
            break
        batch = read_batch(data[begin:stop], begin, max_bytes=max_bytes, start=fetched.next_offset)
        records, size = records + len(batch), size + batch.decompressed
        end = min(batch.next_offset, LARGEST)
        dense = batch.dense and end == batch.next_offset
        if not dense and not all(map(lt, batch.offsets, [*batch.offsets[1:], end])):
            reason = f"the offsets of the batch at {batch.base_offset} do not rise up to its end, {batch.next_offset}"
            raise fail(FailureCode.BAD_FORMAT, reason)
        while pending and pending[-1].first_offset < batch.next_offset:
            skipped.add(pending.pop().producer_id)
        if batch.control:
            if batch.keys and (batch.keys[0] or b"").startswith(_ABORT):
                skipped.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in skipped):
            try:
                _add(fetched.runs, batch)
            except OperationFailed:
                if not fetched.runs:
                    raise
                break
        fetched = fetched._replace(next_offset=max(fetched.next_offset, batch.next_offset))
        if batch.next_offset <= batch.base_offset + header_of(batch.data).last:  # a part: the rest is asked for again
            break
    return fetched


def _add(runs: list[FetchedRun], batch: KafkaBatch) -> None:
    """Add the records of a batch: all of them, or none if one cannot be carried."""
    offsets = batch.offsets
    kept = keep(batch) if len(batch) else None
    headers = _headers(batch)
    first = 0
    while first < len(batch):
        distance = offsets[first] - first
        stop = first + 1
        if offsets[-1] - distance == len(batch) - 1:  # nearly all batches have no gap
            stop = len(batch)
        while stop < len(batch) and offsets[stop] - stop == distance:
            stop += 1
        columns = Columns(
            offsets[first:stop],
            batch.timestamps[first:stop],
            [value or b"" for value in batch.values[first:stop]],
            {index - first: some for index, some in headers.items() if first <= index < stop},
        )
        runs.append(FetchedRun(columns, kept))
        first = stop


def _headers(batch: KafkaBatch) -> dict[int, Headers]:
    """Return the headers of the records. Raises NOT_REPRESENTABLE, LIMIT_EXCEEDED."""
    headers: dict[int, Headers] = {}
    for index in range(len(batch)):
        key, value = batch.keys[index], batch.values[index] or b""
        some: Headers = ()
        if key is not None or batch.values[index] is None or index in batch.headers:
            some = headers[index] = to_headers(
                batch.offsets[index], key, batch.values[index], batch.headers.get(index, ())
            )
        elif len(value) + 8 <= MAX_RECORD_BYTES:  # as nearly all
            continue
        if metered_size((value,), {0: some}) > MAX_RECORD_BYTES:
            offset = batch.offsets[index]
            reason = f"record {offset} has more than {MAX_RECORD_BYTES} bytes with its headers, which no stream carries"
            raise fail(FailureCode.NOT_REPRESENTABLE, reason, seq_num=offset)
    return headers
