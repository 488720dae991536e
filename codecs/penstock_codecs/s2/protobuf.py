"""S2's protobuf messages to and from the record model (S2 fact sheet, sections 4 and 5.1).

Decoding is done by the protobuf library with a schema made for columns (`s2_columns.proto`), and with the full
schema only where a record has headers. Encoding writes the bytes from columns (`record_bytes`).

`S2_RECORDS`, the `records` field of a ReadBatch without its tail, is also how the embedded store keeps payloads:
two of them one after the other are a valid third, since protobuf merges repeated fields by concatenation.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS
from penstock_codecs.model import (
    NO_HEADERS,
    Columns,
    Header,
    Headers,
    RecordBatch,
    StreamPosition,
    StreamRef,
    Wire,
    metered_size,
)
from penstock_codecs.operations import Append, Appended
from penstock_codecs.s2.record_bytes import append_records, bare_append_sizes, field, sequenced_records, varint
from penstock_proto import s2_columns_pb2 as columns_pb2
from penstock_proto import s2_pb2

__all__ = [
    "S2_READ_BATCH",
    "S2_RECORDS",
    "decode_append_ack",
    "decode_append_input",
    "decode_bodies",
    "decode_read_batch",
    "decode_records",
    "encode_append_ack",
    "encode_append_input",
    "encode_heartbeat",
    "encode_read_batch",
    "encode_records",
    "read_batch_pieces",
]

S2_RECORDS: Final = "s2.v1.ReadBatch.records"
"""Wire encoding: the `records` field of a ReadBatch, without a tail. Concatenations are valid."""
S2_READ_BATCH: Final = "s2.v1.ReadBatch"
"""Wire encoding: a whole ReadBatch with the tail that it came with."""

Payload = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)


# ---- append --------------------------------------------------------------------------------------------------


def decode_append_input(payload: Payload, stream: StreamRef) -> Append:
    """An AppendInput as an operation on `stream`; `validation.validate_append` is left to do.

    Raises OperationFailed: BAD_PROTO for bytes that are not an AppendInput; INVALID for so many records or
    headers that no valid batch can have them, before any object is made of them.
    """
    probe = _parse(columns_pb2.AppendInput, payload)
    if len(probe.records) > S2_MAX_BATCH_RECORDS:
        raise fail(FailureCode.INVALID, "record batch must not exceed 1000 records")
    bodies = [record.body for record in probe.records]
    headers, timestamps = NO_HEADERS, None
    match_seq_num = probe.match_seq_num if probe.HasField("match_seq_num") else None
    fencing_token = probe.fencing_token if probe.HasField("fencing_token") else None
    body_bytes = sum(map(len, bodies))
    if _bare_size(bodies, match_seq_num, fencing_token) == len(payload):
        metered = 8 * len(bodies) + body_bytes
    else:
        headers, timestamps = _extras(probe, payload)
        metered = metered_size(bodies, headers)
    return Append(
        stream,
        bodies,
        metered,
        headers=headers,
        timestamps=timestamps,
        match_seq_num=match_seq_num,
        fencing_token=fencing_token,
    )


def _bare_size(bodies: list[bytes], match_seq_num: int | None, fencing_token: str | None) -> int:
    """How many bytes an AppendInput of these values takes when no record has a timestamp or headers.

    A payload of exactly this size holds nothing else, so that no record need be asked for its headers and
    timestamp: 0.19 us a record instead of 0.33 (100 B records).
    """
    size = sum(map(bare_append_sizes.__getitem__, map(len, bodies)))
    return size + len(_conditions(match_seq_num, fencing_token))


def _extras(probe: columns_pb2.AppendInput, payload: Payload) -> tuple[dict[int, Headers], list[int | None] | None]:
    """Headers and timestamps of an AppendInput that may have any."""
    timestamps: list[int | None] = []
    with_headers = []
    for index, record in enumerate(probe.records):
        if record.HasField("headers"):
            with_headers.append(index)
        timestamps.append(record.timestamp if record.HasField("timestamp") else None)
    headers: dict[int, Headers] = {}
    if with_headers:
        full = list(_parse(s2_pb2.AppendInput, payload).records)  # iterated once: indexing makes an object each time
        if 2 * sum(len(full[index].headers) for index in with_headers) > S2_MAX_BATCH_BYTES:
            raise fail(FailureCode.INVALID, "record batch must not exceed a metered size of 1 MiB")
        headers = {index: _headers(full[index]) for index in with_headers}
    given = timestamps.count(None) < len(timestamps)
    return headers, timestamps if given else None


def encode_append_input(append: Append) -> bytes:
    """An AppendInput; `exact_timestamp` becomes every record's timestamp."""
    timestamps = append.timestamps
    if append.exact_timestamp is not None:
        timestamps = [append.exact_timestamp] * len(append.bodies)
    records = append_records(append.bodies, append.headers, timestamps)
    return records + _conditions(append.match_seq_num, append.fencing_token)


def _conditions(match_seq_num: int | None, fencing_token: str | None) -> bytes:
    sequence = b"" if match_seq_num is None else b"\x10" + varint(match_seq_num)
    return sequence if fencing_token is None else sequence + field(b"\x1a", fencing_token.encode())


def encode_append_ack(appended: Appended) -> bytes:
    """An AppendAck: all three positions are present even where they are zero (S2 fact sheet, 2.3)."""
    return (
        field(b"\x0a", _position(appended.start))
        + field(b"\x12", _position(appended.end))
        + field(b"\x1a", _position(appended.tail))
    )


def decode_append_ack(payload: Payload) -> Appended:
    """An acknowledgement. Raises OperationFailed(BAD_PROTO), also where a position is missing."""
    ack = _parse(s2_pb2.AppendAck, payload)
    for name in ("start", "end", "tail"):
        if not ack.HasField(name):
            raise fail(FailureCode.BAD_PROTO, f"AppendAck has no {name!r}")
    return Appended(_to_position(ack.start), _to_position(ack.end), _to_position(ack.tail))


# ---- read ----------------------------------------------------------------------------------------------------


def encode_records(columns: Columns) -> bytes:
    """The `records` field of a ReadBatch, in encoding `S2_RECORDS`."""
    return sequenced_records(columns.seq_nums, columns.timestamps, columns.bodies, columns.headers)


def decode_records(payload: Payload) -> Columns:
    """The records of a ReadBatch, whatever else it holds. Raises OperationFailed(BAD_PROTO)."""
    return _columns(_parse(columns_pb2.ReadBatch, payload), payload)


def decode_bodies(payload: Payload) -> list[bytes]:
    """The bodies alone: 0.17 us a record instead of 0.39 (100 B records). Raises OperationFailed(BAD_PROTO)."""
    return [record.body for record in _parse(columns_pb2.ReadBatch, payload).records]


def read_batch_pieces(batch: RecordBatch) -> list[bytes]:
    """A ReadBatch in pieces, uncopied: the bytes that the batch came in are used where they are of this spelling."""
    wire = batch.wire
    if wire is not None and wire.encoding == S2_READ_BATCH:
        return [wire.data]
    if wire is not None and wire.encoding == S2_RECORDS:
        records = wire.data
    else:
        records = batch.encoded(S2_RECORDS, lambda some: encode_records(some.columns))
    return [records] if batch.tail is None else [records, encode_heartbeat(batch.tail)]


def encode_read_batch(batch: RecordBatch) -> bytes:
    """A ReadBatch in one piece."""
    pieces = read_batch_pieces(batch)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def encode_heartbeat(tail: StreamPosition) -> bytes:
    """A ReadBatch without records (S2 fact sheet, 2.4): the `tail` field alone."""
    return field(b"\x12", _position(tail))


def decode_read_batch(payload: Payload) -> RecordBatch | StreamPosition:
    """A batch, or the tail that a heartbeat tells.

    Raises OperationFailed(BAD_PROTO) for other bytes, for sequence numbers that are not consecutive, and for a
    message with neither records nor tail.
    """
    data = bytes(payload)
    probe = _parse(columns_pb2.ReadBatch, data)
    tail = _to_position(probe.tail) if probe.HasField("tail") else None
    if not probe.records:
        if tail is None:
            raise fail(FailureCode.BAD_PROTO, "ReadBatch has neither records nor tail")
        return tail
    columns = _columns(probe, data)
    if not isinstance(columns.seq_nums, range):
        raise fail(FailureCode.BAD_PROTO, "ReadBatch's sequence numbers are not consecutive")
    batch = RecordBatch(columns, tail=tail)
    batch.wire = Wire(S2_RECORDS if tail is None else S2_READ_BATCH, data)
    return batch


def _columns(probe: columns_pb2.ReadBatch, payload: Payload) -> Columns:
    seq_nums: list[int] = []
    timestamps: list[int] = []
    bodies: list[bytes] = []
    with_headers: list[int] = []
    for record in probe.records:
        if record.HasField("headers"):
            with_headers.append(len(bodies))
        seq_nums.append(record.seq_num)
        timestamps.append(record.timestamp)
        bodies.append(record.body)
    headers: dict[int, Headers] = {}
    if with_headers:
        full = list(_parse(s2_pb2.ReadBatch, payload).records)
        headers = {index: _headers(full[index]) for index in with_headers}
    first = seq_nums[0] if seq_nums else 0
    dense = range(first, first + len(seq_nums))
    return Columns(dense if seq_nums == list(dense) else seq_nums, timestamps, bodies, headers)


# ---- both ----------------------------------------------------------------------------------------------------


def _position(position: StreamPosition) -> bytes:
    seq_num, timestamp = position
    sequence = b"\x08" + varint(seq_num) if seq_num else b""
    return sequence + b"\x10" + varint(timestamp) if timestamp else sequence


def _to_position(position: s2_pb2.StreamPosition | columns_pb2.StreamPosition) -> StreamPosition:
    return StreamPosition(position.seq_num, position.timestamp)


def _headers(record: s2_pb2.AppendRecord | s2_pb2.SequencedRecord) -> Headers:
    return tuple([Header(header.name, header.value) for header in record.headers])


def _parse(message: type[M], payload: Payload) -> M:
    try:
        return message.FromString(payload)  # type: ignore[arg-type]  # takes any buffer, and copies out of it
    except DecodeError as error:
        raise _undecodable(message, error) from None


def _undecodable(message: type[Message], error: DecodeError) -> OperationFailed:
    return fail(FailureCode.BAD_PROTO, f"not a valid {message.DESCRIPTOR.name}: {error}")
