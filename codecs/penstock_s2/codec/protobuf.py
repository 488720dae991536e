"""S2's protobuf messages to and from the record model (S2 fact sheet, sections 4 and 5.1).

The protobuf library decodes with a schema made for columns (`records.proto`). `record_bytes` encodes from columns.
"""

from __future__ import annotations

from typing import Final

from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_BATCH_RECORDS
from penstock.model.operations import Append, Appended
from penstock.model.record_bytes import append_records, field, uniform_records, varint
from penstock.model.record_encoding import RECORDS, Payload, appended_columns, columns_of, encode_records, parse
from penstock.model.records import RecordBatch, StreamPosition, StreamRef, WireBytes, metered_size
from penstock_proto import records_pb2, s2_pb2

__all__ = [
    "S2_READ_BATCH",
    "decode_append_ack",
    "decode_append_input",
    "decode_read_batch",
    "encode_append_ack",
    "encode_append_input",
    "encode_heartbeat",
    "encode_read_batch",
    "read_batch_pieces",
]

S2_READ_BATCH: Final = "s2.v1.ReadBatch"
"""Wire encoding: a whole ReadBatch with the tail that it came with."""


# ---- append --------------------------------------------------------------------------------------------------


def decode_append_input(payload: Payload, stream: StreamRef) -> Append:
    """Decode an AppendInput as an operation on `stream`; the caller must run `validation.validate_append`.

    Raises OperationFailed: BAD_PROTO for bytes that are not an AppendInput; INVALID for more records or headers than
    any valid batch has, before objects are made of them.
    """
    probe = parse(records_pb2.AppendInput, payload)
    if len(probe.records) > MAX_BATCH_RECORDS:
        raise fail(FailureCode.INVALID, "record batch must not exceed 1000 records")
    match_seq_num = probe.match_seq_num if probe.HasField("match_seq_num") else None
    fencing_token = probe.fencing_token if probe.HasField("fencing_token") else None
    size = len(payload) - len(_conditions(match_seq_num, fencing_token))
    bodies, headers, timestamps = appended_columns(probe, payload, size)
    metered = metered_size(bodies, headers) if headers else 8 * len(bodies) + sum(map(len, bodies))
    return Append(
        stream,
        bodies,
        metered,
        headers=headers,
        timestamps=timestamps,
        match_seq_num=match_seq_num,
        fencing_token=fencing_token,
    )


def encode_append_input(append: Append) -> bytes:
    """Encode an AppendInput; `exact_timestamp` becomes every record's timestamp."""
    timestamps = append.timestamps
    if append.exact_timestamp is not None:
        timestamps = [append.exact_timestamp] * len(append.bodies)
    records = append_records(append.bodies, append.headers, timestamps)
    return records + _conditions(append.match_seq_num, append.fencing_token)


def _conditions(match_seq_num: int | None, fencing_token: str | None) -> bytes:
    sequence = b"" if match_seq_num is None else b"\x10" + varint(match_seq_num)
    return sequence if fencing_token is None else sequence + field(b"\x1a", fencing_token.encode())


def encode_append_ack(appended: Appended) -> bytes:
    """Encode an AppendAck: all three positions are present even if they are zero (S2 fact sheet, 2.3)."""
    end = _position(appended.end)
    tail = end if appended.tail == appended.end else _position(appended.tail)
    return field(b"\x0a", _position(appended.start)) + field(b"\x12", end) + field(b"\x1a", tail)


def decode_append_ack(payload: Payload) -> Appended:
    """Decode an acknowledgement. Raises OperationFailed(BAD_PROTO), also if a position is missing."""
    ack = parse(s2_pb2.AppendAck, payload)
    for name in ("start", "end", "tail"):
        if not ack.HasField(name):
            raise fail(FailureCode.BAD_PROTO, f"AppendAck has no {name!r}")
    return Appended(_to_position(ack.start), _to_position(ack.end), _to_position(ack.tail))


# ---- read ----------------------------------------------------------------------------------------------------


def read_batch_pieces(batch: RecordBatch) -> list[bytes]:
    """Return a ReadBatch in pieces, uncopied: the batch's wire bytes are used if they are in this encoding."""
    wire = batch.wire
    if wire is not None and wire.encoding == S2_READ_BATCH:
        return [*wire.pieces]
    if wire is not None and wire.encoding == RECORDS:
        records = [*wire.pieces]
    else:
        records = [batch.encoded(RECORDS, lambda some: encode_records(some.columns))]
    return records if batch.tail is None else [*records, encode_heartbeat(batch.tail)]


def encode_read_batch(batch: RecordBatch) -> bytes:
    """Return a ReadBatch in one piece."""
    pieces = read_batch_pieces(batch)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def encode_heartbeat(tail: StreamPosition) -> bytes:
    """Encode a ReadBatch without records (S2 fact sheet, 2.4): the `tail` field alone."""
    return field(b"\x12", _position(tail))


def decode_read_batch(payload: Payload) -> RecordBatch | StreamPosition:
    """Decode a batch, or the tail that a heartbeat reports.

    Raises OperationFailed(BAD_PROTO) for other bytes, for sequence numbers that are not consecutive, and for a message
    with neither records nor tail.
    """
    data = bytes(payload)
    uniform = uniform_records(data)
    if uniform is not None:
        batch = RecordBatch(uniform)
        batch.wire = WireBytes(RECORDS, (data,))
        return batch
    probe = parse(records_pb2.ReadBatch, data)
    tail = _to_position(probe.tail) if probe.HasField("tail") else None
    if not probe.records:
        if tail is None:
            raise fail(FailureCode.BAD_PROTO, "ReadBatch has neither records nor tail")
        return tail
    columns = columns_of(probe, data, len(data) - (0 if tail is None else len(encode_heartbeat(tail))))
    if not isinstance(columns.seq_nums, range):
        raise fail(FailureCode.BAD_PROTO, "ReadBatch's sequence numbers are not consecutive")
    batch = RecordBatch(columns, tail=tail)
    batch.wire = WireBytes(RECORDS if tail is None else S2_READ_BATCH, (data,))
    return batch


# ---- both ----------------------------------------------------------------------------------------------------


def _position(position: StreamPosition) -> bytes:
    seq_num, timestamp = position
    sequence = b"\x08" + varint(seq_num) if seq_num else b""
    return sequence + b"\x10" + varint(timestamp) if timestamp else sequence


def _to_position(position: s2_pb2.StreamPosition | records_pb2.StreamPosition) -> StreamPosition:
    return StreamPosition(position.seq_num, position.timestamp)
