"""Deciding appends: checking conditions, and giving numbers, timestamps and offsets.

S2 fact sheet 5.2, S3P 0.2.0 section 12, segment fact sheet 1.4.

All functions are pure: of the stream's head, its configuration and the time of arrival.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from penstock.model.byte_layout import BYTES, Layout, Run, byte_length, to_bytes
from penstock.model.byte_operations import AppendBytes, WriterPosition
from penstock.model.commands import Fence, TrimTo, parse_command
from penstock.model.envelope import ENVELOPE_MARK
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import Append
from penstock.model.record_encoding import RECORDS, encode_records
from penstock.model.records import (
    U64_MAX,
    BatchPart,
    Columns,
    Headers,
    RecordBatch,
    RecordId,
    WireBytes,
    add_event_times,
    is_command,
    metered_size,
    next_record_id,
    parts_within,
)
from penstock.model.streams import StreamConfig, TimestampingMode
from penstock.store.batches import BatchRow, ByteSpan, encoding_named, is_large
from penstock.store.heads import StreamHead

__all__ = [
    "Commands",
    "Sequenced",
    "SequencedBatch",
    "check_bytes",
    "check_sealed",
    "check_writer",
    "keep_event_times",
    "parts_of",
    "sequence",
    "sequence_bytes",
    "validate",
]

Commands = Sequence[tuple[int, Fence | TrimTo]]
"""Command records of a batch, by index."""


class SequencedBatch(NamedTuple):
    """One batch as readers see it, and its stored form."""

    batch: RecordBatch
    row: BatchRow
    span: ByteSpan
    last_id: RecordId


class Sequenced(NamedTuple):
    """A decided append: its batches, which are stored together or not at all, and the head after it."""

    parts: Sequence[SequencedBatch]
    head: StreamHead


def parts_of(append: Append) -> Sequence[BatchPart]:
    """Return the parts of an append that are a batch each, within the limits of every protocol's readers.

    Metered sizes are those of plain records, so an append that will be encrypted is cut before.
    """
    count = len(append.bodies)
    if count <= MAX_BATCH_RECORDS and append.metered <= MAX_BATCH_BYTES:
        return (BatchPart(0, count, append.metered),)
    return tuple(parts_within(append.bodies, append.headers, MAX_BATCH_RECORDS, MAX_BATCH_BYTES))


def validate(append: Append) -> Commands:
    """Check an append as far as it does not depend on a stream, and return its command records.

    Fronts check the sizes of batches and records, since protocols differ in these limits. Raises
    OperationFailed(INVALID) for an empty batch or a malformed command record.
    """
    if not append.bodies:
        raise fail(FailureCode.INVALID, "record batch must not be empty")
    return _commands(append.bodies, append.headers)


def _commands(bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> Commands:
    marked = sorted(index for index, some in headers.items() if is_command(some))
    return [
        (index, command) for index in marked if (command := parse_command(headers[index], bodies[index])) is not None
    ]


def sequence(
    append: Append,
    commands: Commands,
    head: StreamHead,
    config: StreamConfig,
    arrived_at: int,
    envelopes: Layout = Layout.PLAIN,
    parts: Sequence[BatchPart] = (),
) -> Sequenced:
    """Decide an append on top of `head`; `config` is resolved, `arrived_at` in ms.

    `envelopes`: the records that are in an envelope as bytes. `parts`: of the plain append, if this one is
    encrypted. Raises OperationFailed, checked in this order: STREAM_SEALED, FENCING_TOKEN_MISMATCH, SEQ_NUM_MISMATCH,
    INVALID or NON_MONOTONIC_TIMESTAMP (timestamps), INVALID (no sequence numbers are left).
    """
    check_sealed(head)
    _check_conditions(append.match_seq_num, append.fencing_token, head)
    timestamps = _timestamps(append, head, config, arrived_at)
    columns = Columns(_numbers(append.bodies, head), timestamps, append.bodies, append.headers)
    kept = _kept(append, timestamps, head.next_seq)
    if kept is not None:
        parts = (BatchPart(0, len(append.bodies), append.metered),)
    after = head
    batches: list[SequencedBatch] = []
    for start, stop, metered in parts or parts_of(append):
        records = columns.part(start, stop)
        batch, after = _part(records, metered, _layout_of(records, envelopes), after, arrived_at, kept=kept)
        batches.append(batch)
    return Sequenced(batches, _apply(commands, after, head.next_seq) if commands else after)


def _kept(append: Append, timestamps: Sequence[int], first_seq_num: int) -> WireBytes | None:
    """Return the records in the encoding in which they came; None if it is no codec's, cannot spell their place, or has
    too many of them."""
    if append.wire is None or is_large(len(append.bodies), append.metered, Layout.PLAIN):
        return None
    name, payload = append.wire.encoding, append.wire.data
    changed = None if timestamps == append.timestamps and not append.event_times else timestamps
    placed = encoding_named(name).place(payload, first_seq_num, changed, append.event_times)
    return None if placed is None else WireBytes(name, (placed,))


def keep_event_times(append: Append, head: StreamHead, config: StreamConfig, arrived_at: int) -> Append:
    """Return an append of event times with the timestamps that its records get, and its own ones as headers where they
    differ.

    In mode `arrival`, and if a record has none, the stream's timestamps replace them. Arguments as for `sequence`.
    """
    own = append.timestamps
    if own is None or None in own or config.timestamping_mode is TimestampingMode.ARRIVAL:
        return replace(append, event_times=False)
    event_times = cast("Sequence[int]", own)
    timestamps = _timestamps(append, head, config, arrived_at)
    if timestamps == event_times:
        return append
    headers = add_event_times(append.bodies, append.headers, timestamps, event_times)
    return replace(append, timestamps=timestamps, headers=headers, metered=metered_size(append.bodies, headers))


def check_bytes(append: AppendBytes, head: StreamHead, position: int) -> None:
    """Check the conditions of an append of bytes; `position`: the last position of its writer.

    Raises OperationFailed, checked in this order: STREAM_SEALED, STALE_WRITER_POSITION, OFFSET_MISMATCH.
    """
    check_sealed(head)
    check_writer(append.writer, position)
    if append.match_offset is not None and append.match_offset != head.next_offset:
        raise fail(
            FailureCode.OFFSET_MISMATCH, f"the stream's length is {head.next_offset} bytes", offset=head.next_offset
        )


def check_writer(writer: WriterPosition | None, position: int) -> None:
    """Check the writer of an append, if it has one; `position`: its last position. Raises STALE_WRITER_POSITION."""
    if writer is not None and (writer.position <= position or writer.after not in (None, position)):
        expected = f"before {writer.position}" if writer.after is None else f"at {writer.after}"
        raise fail(FailureCode.STALE_WRITER_POSITION, f"the writer is at {position}, not {expected}", position=position)


def sequence_bytes(runs: Iterable[Run], head: StreamHead, arrived_at: int) -> Sequenced:
    """Decide an append of bytes on top of `head`. All its records have one timestamp in ms, normally that of arrival.

    Raises OperationFailed: STREAM_SEALED, INVALID (no sequence numbers are left).
    """
    check_sealed(head)
    timestamp = arrived_at if head.last_id is None else max(arrived_at, head.last_id.ms)
    parts = []
    for run in runs:
        bodies, headers = run.bodies, run.headers
        columns = Columns(_numbers(bodies, head), [timestamp] * len(bodies), bodies, headers)
        part, head = _part(columns, metered_size(bodies, headers), run.layout, head, arrived_at, run.data)
        if headers:  # the records came in envelopes
            head = _apply(_commands(bodies, headers), head, part.row.first_seq)
        parts.append(part)
    return Sequenced(parts, head)


def _numbers(bodies: Sequence[bytes], head: StreamHead) -> range:
    end = head.next_seq + len(bodies)
    if end > U64_MAX:
        raise fail(FailureCode.INVALID, "the stream has no sequence numbers left")
    return range(head.next_seq, end)


def _part(
    columns: Columns,
    metered: int,
    layout: Layout,
    head: StreamHead,
    arrived_at: int,
    data: bytes | None = None,
    kept: WireBytes | None = None,
) -> tuple[SequencedBatch, StreamHead]:
    """Append records to `head`; return them as a part, and the head after them. `data`: their bytes, if available.
    `kept`: the records in the encoding of a codec, to be stored in it.

    Measured per event of 100 B: using given bytes takes 0.01 us, rendering them 0.06 us.
    """
    count = len(columns.bodies)
    last_seq = head.next_seq + count - 1
    first_id = next_record_id(head.last_id, columns.timestamps[0])
    length = byte_length(columns, layout) if data is None else len(data)
    if layout.is_exact:
        wire = WireBytes(BYTES, (to_bytes(columns, layout) if data is None else data,))
    else:
        wire = kept or WireBytes(RECORDS, (encode_records(columns),))
    row = BatchRow(last_seq, count, metered, first_id, layout, wire.data, RECORDS if kept is None else kept.encoding)
    span = ByteSpan(head.next_offset, head.next_offset + length, layout)
    batch = RecordBatch(columns, first_id=first_id, metered=metered)
    batch.wire = wire
    last_id = _last_id(columns.timestamps, first_id)
    after = head._replace(
        next_seq=last_seq + 1,
        last_id=last_id,
        next_offset=span.end_offset,
        last_modified=arrived_at,
    )
    return SequencedBatch(batch, row, span, last_id), after


def _layout_of(columns: Columns, envelopes: Layout) -> Layout:
    """Return the layout of records that were not written as bytes: PLAIN if none of them needs an envelope."""
    if envelopes and (columns.headers or not all(columns.bodies) or max(columns.bodies) >= ENVELOPE_MARK):
        return envelopes
    return Layout.PLAIN


def check_sealed(head: StreamHead) -> None:
    """Raise OperationFailed(STREAM_SEALED) if the stream is sealed."""
    if head.sealed:
        raise fail(FailureCode.STREAM_SEALED, "the stream is sealed")


def _check_conditions(match_seq_num: int | None, fencing_token: str | None, head: StreamHead) -> None:
    """Check the conditions of an append. Raises OperationFailed: FENCING_TOKEN_MISMATCH, SEQ_NUM_MISMATCH."""
    if fencing_token is not None and fencing_token != head.fencing_token:
        raise fail(
            FailureCode.FENCING_TOKEN_MISMATCH,
            f"the fencing token is {head.fencing_token!r}",
            fencing_token_mismatch=head.fencing_token,
        )
    if match_seq_num is not None and match_seq_num != head.next_seq:
        raise fail(
            FailureCode.SEQ_NUM_MISMATCH,
            f"the next sequence number is {head.next_seq}",
            seq_num_mismatch=head.next_seq,
        )


def _timestamps(append: Append, head: StreamHead, config: StreamConfig, arrived_at: int) -> Sequence[int]:
    count = len(append.bodies)
    last = 0 if head.last_id is None else head.last_id.ms
    if append.exact_timestamp is not None:
        if append.exact_timestamp < last:
            raise fail(
                FailureCode.NON_MONOTONIC_TIMESTAMP,
                f"timestamp {append.exact_timestamp} is before {last}, that of the last record",
                last=last,
            )
        return [append.exact_timestamp] * count
    requested = append.timestamps
    if config.timestamping_mode is TimestampingMode.ARRIVAL:
        requested = None
    elif config.timestamping_mode is TimestampingMode.CLIENT_REQUIRE and (requested is None or None in requested):
        raise fail(FailureCode.INVALID, "record timestamp was required but was missing")
    if requested is None:
        return [max(arrived_at, last)] * count
    cap = U64_MAX if config.timestamping_uncapped else arrived_at
    return _raised(requested, last, cap, arrived_at)


def _raised(requested: Sequence[int | None], last: int, cap: int, arrived_at: int) -> list[int]:
    """Return the clients' timestamps, lowered to `cap` and then raised so that they never decrease."""
    if None not in requested:
        risen = cast("list[int]", [last, *requested, cap])
        if risen == sorted(risen):  # as nearly always
            return risen[1:-1]
    timestamps = []
    for timestamp in requested:
        wanted = arrived_at if timestamp is None else min(timestamp, cap)
        last = max(last, wanted)
        timestamps.append(last)
    return timestamps


def _last_id(timestamps: Sequence[int], first_id: RecordId) -> RecordId:
    last = timestamps[-1]
    if last == timestamps[0]:
        return RecordId(last, first_id.seq + len(timestamps) - 1)
    return RecordId(last, len(timestamps) - 1 - bisect_left(timestamps, last))


def _apply(commands: Commands, head: StreamHead, first_seq: int) -> StreamHead:
    """Return the head with the effects of command records, which apply to later batches (S2 fact sheet, 5.3)."""
    for index, command in commands:
        if isinstance(command, Fence):
            head = head._replace(fencing_token=command.token)
        else:
            trim_point = min(command.seq_num, first_seq + index + 1)
            head = head._replace(trim_point=max(head.trim_point, trim_point))
    return head
