"""S2's protobuf messages to and from the record model (S2 fact sheet, sections 4 and 5.1).

The protobuf library decodes with a schema made for columns (`s2_columns.proto`), and with the full schema only if a
record has headers. `record_bytes` encodes from columns.

`S2_RECORDS`, the `records` field of a ReadBatch without its tail, is also how the embedded store keeps payloads: two of
them one after the other are a valid third, since protobuf merges repeated fields by concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock_codecs.model import (
    NO_HEADERS,
    Columns,
    Header,
    Headers,
    RecordBatch,
    StreamPosition,
    StreamRef,
    WireBytes,
    metered_size,
)
from penstock_codecs.operations import Append, Appended
from penstock_codecs.s2.record_bytes import (
    BoundedCache,
    append_records,
    bare_append_sizes,
    common_width,
    field,
    records_size,
    sequenced_records,
    uniform_records,
    varint,
    varint_at,
)
from penstock_proto import s2_columns_pb2 as columns_pb2
from penstock_proto import s2_pb2

__all__ = [
    "S2_READ_BATCH",
    "S2_RECORDS",
    "cut_records",
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

_SEQ_NUM, _TIMESTAMP, _HEADERS, _BODY = map(attrgetter, ("seq_num", "timestamp", "headers", "body"))


# ---- append --------------------------------------------------------------------------------------------------


def decode_append_input(payload: Payload, stream: StreamRef) -> Append:
    """Decode an AppendInput as an operation on `stream`; the caller must run `validation.validate_append`.

    Raises OperationFailed: BAD_PROTO for bytes that are not an AppendInput; INVALID for more records or headers than
    any valid batch has, before objects are made of them.
    """
    probe = _parse(columns_pb2.AppendInput, payload)
    if len(probe.records) > MAX_BATCH_RECORDS:
        raise fail(FailureCode.INVALID, "record batch must not exceed 1000 records")
    records = list(probe.records)  # iterating makes an object for each, every time
    bodies = list(map(_BODY, records))
    headers, timestamps = NO_HEADERS, None
    match_seq_num = probe.match_seq_num if probe.HasField("match_seq_num") else None
    fencing_token = probe.fencing_token if probe.HasField("fencing_token") else None
    size = len(payload) - len(_conditions(match_seq_num, fencing_token))
    if _bare_size(bodies) == size:
        metered = 8 * len(bodies) + sum(map(len, bodies))
    else:
        headers, timestamps = _extras(records, bodies, payload, size)
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


def _bare_size(bodies: list[bytes]) -> int:
    """Return how many bytes the records of an AppendInput take if none has a timestamp or headers.

    Records of exactly this size have nothing else, so they need not be inspected for headers and timestamps: 0.19
    us a record instead of 0.33 (100 B records).
    """
    return sum(map(bare_append_sizes.__getitem__, map(len, bodies)))


def _extras(
    records: list[columns_pb2.AppendRecord], bodies: list[bytes], payload: Payload, size: int
) -> tuple[dict[int, Headers], Sequence[int | None] | None]:
    """Return headers and timestamps of an AppendInput that may have any; `size`: bytes of its records."""
    numbers: list[int] = list(map(_TIMESTAMP, records))
    contents: list[bytes] = list(map(_HEADERS, records))
    width = common_width(numbers)
    if width is not None and records_size(width, contents, bodies) == size:  # so there is no other header
        return _single_headers(contents), numbers if width else None
    timestamps = [record.timestamp if record.HasField("timestamp") else None for record in records]
    has_timestamps = timestamps.count(None) < len(timestamps)
    several = [record.headers for record in _parse(columns_pb2.AppendInputHeaders, payload).records]
    if 2 * sum(map(len, several)) > MAX_BATCH_BYTES:
        raise fail(FailureCode.INVALID, "record batch must not exceed a metered size of 1 MiB")
    return _several_headers(several), timestamps if has_timestamps else None


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
    ack = _parse(s2_pb2.AppendAck, payload)
    for name in ("start", "end", "tail"):
        if not ack.HasField(name):
            raise fail(FailureCode.BAD_PROTO, f"AppendAck has no {name!r}")
    return Appended(_to_position(ack.start), _to_position(ack.end), _to_position(ack.tail))


# ---- read ----------------------------------------------------------------------------------------------------


def encode_records(columns: Columns) -> bytes:
    """Encode the `records` field of a ReadBatch, in encoding `S2_RECORDS`."""
    return sequenced_records(columns.seq_nums, columns.timestamps, columns.bodies, columns.headers)


def decode_records(payload: Payload) -> Columns:
    """Decode the records of a ReadBatch, ignoring its other fields. Raises OperationFailed(BAD_PROTO)."""
    uniform = uniform_records(payload) if isinstance(payload, bytes) else None
    return uniform or _columns(_parse(columns_pb2.ReadBatch, payload), payload)


def cut_records(payload: bytes, max_records: int) -> Iterator[bytes]:
    """Yield the records of a payload in encoding `S2_RECORDS` in payloads of up to `max_records`.

    Raises OperationFailed(BAD_PROTO).
    """
    start = at = count = 0
    end = len(payload)
    try:
        while at < end:
            if payload[at] != 0x0A:
                raise fail(FailureCode.BAD_PROTO, f"byte {at} begins no record")
            size, at = payload[at + 1], at + 2
            if size > 0x7F:
                size, at = varint_at(payload, at - 1)
            at += size
            count += 1
            if count == max_records:
                yield payload[start:at]
                start, count = at, 0
    except IndexError:
        at = end + 1
    if at > end:
        raise fail(FailureCode.BAD_PROTO, "the records end within one")
    if count:
        yield payload[start:]


def decode_bodies(payload: Payload) -> list[bytes]:
    """Decode the bodies alone: 0.17 us a record instead of 0.39 (100 B records). Raises OperationFailed(BAD_PROTO)."""
    return [record.body for record in _parse(columns_pb2.ReadBatch, payload).records]


def read_batch_pieces(batch: RecordBatch) -> list[bytes]:
    """Return a ReadBatch in pieces, uncopied: the batch's wire bytes are used if they are in this encoding."""
    wire = batch.wire
    if wire is not None and wire.encoding == S2_READ_BATCH:
        return [*wire.pieces]
    if wire is not None and wire.encoding == S2_RECORDS:
        records = [*wire.pieces]
    else:
        records = [batch.encoded(S2_RECORDS, lambda some: encode_records(some.columns))]
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
        batch.wire = WireBytes(S2_RECORDS, (data,))
        return batch
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
    batch.wire = WireBytes(S2_RECORDS if tail is None else S2_READ_BATCH, (data,))
    return batch


def _columns(probe: columns_pb2.ReadBatch, payload: Payload) -> Columns:
    records = list(probe.records)
    seq_nums: Sequence[int] = list(map(_SEQ_NUM, records))
    timestamps: list[int] = list(map(_TIMESTAMP, records))
    contents: list[bytes] = list(map(_HEADERS, records))
    bodies: list[bytes] = list(map(_BODY, records))
    width, time_width = common_width(seq_nums), common_width(timestamps)
    size = len(payload) - (len(encode_heartbeat(_to_position(probe.tail))) if probe.HasField("tail") else 0)
    if width is not None and time_width is not None and records_size(width + time_width, contents, bodies) == size:
        headers = _single_headers(contents)  # there is no other header
    else:
        several = _parse(columns_pb2.ReadBatchHeaders, payload).records
        headers = _several_headers(record.headers for record in several)
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


def _several_headers(contents: Iterable[Sequence[bytes]]) -> dict[int, Headers]:
    """Return the headers of records, of this content."""
    return {index: tuple(map(_header, some)) for index, some in enumerate(contents) if some}


def _single_headers(contents: Sequence[bytes]) -> dict[int, Headers]:
    """Return the headers of records that have one each, of this content, or none (b"")."""
    return {index: (_header(content),) for index, content in enumerate(contents) if content}


def _header(content: bytes) -> Header:
    beginning = content[: content[1] + 4] if len(content) > 1 else content
    name, size = _header_beginnings[beginning]
    if size == len(content):
        return Header(name, content[len(beginning) :])
    header = _parse(s2_pb2.Header, content)
    return Header(header.name, header.value)


def _header_beginning(beginning: bytes) -> tuple[bytes, int]:
    """Return the name of a header that begins so, up to its value, and its size; 0 if it is not of the usual form: a
    name of 1 to 127 bytes and a value of at most as many, whose length takes one byte."""
    size = len(beginning)
    usual = size > 4 and beginning[0] == 0x0A and beginning[1] == size - 4 < 128
    if usual and beginning[-2] == 0x12 and beginning[-1] < 128:
        return beginning[2:-2], size + beginning[-1]
    return b"", 0


_header_beginnings: Final = BoundedCache(_header_beginning)


def _parse(message: type[M], payload: Payload) -> M:
    try:
        return message.FromString(payload)  # type: ignore[arg-type]  # takes any buffer, and copies out of it
    except DecodeError as error:
        raise _undecodable(message, error) from None


def _undecodable(message: type[Message], error: DecodeError) -> OperationFailed:
    # The library's message names the type by its package, which is one of Penstock's.
    reason = str(error).replace(message.DESCRIPTOR.full_name, f"s2.v1.{message.DESCRIPTOR.name}")
    return fail(FailureCode.BAD_PROTO, f"not a valid {message.DESCRIPTOR.name}: {reason}")
