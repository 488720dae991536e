"""Batches that are stored and handed out as they came: compressed, with keys, nulls and headers.

As with a broker of Kafka, only their header changes: the number of the first record and the epoch of the leader, which
the checksum leaves out, and, with a new checksum, what the stream decides. CreateTime stays, also where the stream's
timestamps, which never fall, differ from it. Each was decoded when it was produced, so
that nothing damaged is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from penstock.model.limits import MIB
from penstock.model.records import RecordBatch, WireBytes
from penstock_kafka.codec.batches import (
    APPEND_TIME,
    LARGEST,
    TRANSACTIONAL,
    KafkaBatch,
    compression_of,
    count_of,
    encode_batch,
    header_of,
    numbered,
    read_batches,
    resealed,
    whole_batches,
)
from penstock_kafka.codec.compression import KafkaCompression

__all__ = [
    "KAFKA_BATCHES",
    "MOST_KEPT",
    "as_producer",
    "keep",
    "kept_in",
    "leading",
    "place",
    "timestamps_of",
]

KAFKA_BATCHES: Final = "kafka.batches"
"""Wire encoding: whole batches of format 2; offsets are sequence numbers."""
MOST_KEPT: Final = 64 * MIB
"""Most bytes of a kept batch once it is decompressed: the most that `max_batch_bytes` of a listener allows."""

_COMPRESSION: Final = 0x07
_KNOWN: Final = _COMPRESSION | APPEND_TIME | TRANSACTIONAL
"""The attributes of kept batches: also the compression."""


def keep(batch: KafkaBatch) -> WireBytes | None:
    """Return the bytes that a batch was read from, to be kept; None if its header is not true to its records, of which
    the batch may be a part.

    A batch of a transaction, which is stored when that is committed, becomes one outside of transactions. The epoch of
    a cluster's leader is left out: the gateway's clients know of its own only.
    """
    data, header = batch.data, header_of(batch.data)
    if (
        not batch.dense
        or header.records != len(batch)
        or header.attributes & ~_KNOWN
        or header.newest != max(batch.timestamps)
    ):
        return None
    if batch.transactional:
        data = resealed(data, header._replace(attributes=header.attributes & ~TRANSACTIONAL))
    if batch.leader_epoch >= 0:
        data = numbered(data, batch.base_offset)
    return WireBytes(KAFKA_BATCHES, (data,))


def place(
    payload: bytes, first_seq_num: int, timestamps: Sequence[int] | None, event_times: bool = False
) -> bytes | None:
    """Return one batch with the number of its first record, and with these timestamps; see `RecordEncoding`.

    Event times are those of the batch, and stay; the largest timestamp in its header bounds the timestamps, see
    `timestamps_of`. Without them, a single timestamp for all records is in the header, and for others the batch is
    encoded again, with its compression.
    """
    header = header_of(payload)
    if first_seq_num + header.records > LARGEST or (timestamps and timestamps[-1] > LARGEST):
        return None
    if timestamps is not None and event_times:
        if header.newest > timestamps[-1]:
            payload = resealed(payload, header._replace(newest=timestamps[-1]))
    elif timestamps is not None and timestamps[0] == timestamps[-1]:
        payload = resealed(payload, header._replace(attributes=header.attributes | APPEND_TIME, newest=timestamps[0]))
    elif timestamps is not None:
        [batch] = read_batches(payload, max_bytes=MOST_KEPT)
        payload = encode_batch(replace(batch, timestamps=timestamps, append_time=False))
    return numbered(payload, first_seq_num)


def timestamps_of(batch: KafkaBatch, least: int) -> Sequence[int]:
    """Return the stream's timestamps of the records of a placed batch; `least`: of the record before it, or its own
    first one.

    They are CreateTime, lowered to the largest timestamp in the header and raised so that they never fall.
    """
    own, most = batch.timestamps, header_of(batch.data).newest
    risen = [least, *own, most]
    if risen == sorted(risen):  # as nearly always
        return own
    return list(accumulate([min(timestamp, most) for timestamp in own], max, initial=least))[1:]


def as_producer(payload: bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes | None:
    """Return one kept batch as another producer's, to be sent to a broker; None if a stream has stamped its records,
    which brokers take from no producer."""
    header = header_of(payload)
    if header.attributes & APPEND_TIME:
        return None
    own = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": base_sequence}
    return numbered(resealed(payload, header._replace(**own)), 0)


def leading(pieces: Sequence[bytes], max_bytes: int, *, least: int) -> tuple[list[bytes], int]:
    """Return the first batches in `pieces` that have at most `max_bytes` together, but at least `least` of them, and
    how many records these have. Pieces of which all batches are wanted are not copied."""
    leading_pieces: list[bytes] = []
    batches = records = 0
    for piece in pieces:
        for start, end in whole_batches(piece):
            max_bytes -= end - start
            if max_bytes < 0 and batches >= least:
                return ([*leading_pieces, piece[:start]] if start else leading_pieces), records
            batches += 1
            records += count_of(piece, start)
        leading_pieces.append(piece)
    return leading_pieces, records


def kept_in(records: RecordBatch, *, zstd: bool) -> Sequence[bytes] | None:
    """Return the kept batches that records of a stream are in; None if they are in another encoding, or compressed with
    zstd, which a client without `zstd` does not know."""
    wire = records.wire
    if wire is None or wire.encoding != KAFKA_BATCHES:
        return None
    compressed = (compression_of(piece, at) for piece in wire.pieces for at, _ in whole_batches(piece))
    return wire.pieces if zstd or KafkaCompression.ZSTD not in compressed else None
