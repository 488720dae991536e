"""S2's records, acknowledgements and tails as JSON and protobuf: those that a server decodes, and those that a client
decodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from fuzz.laws import chosen, cuts
from google.protobuf.message import DecodeError

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.operations import Append, Appended
from penstock.model.records import Columns, Header, RecordBatch, StreamPosition, StreamRef, metered_size
from penstock_s2.codec import json_records, protobuf
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.record_count import count_records
from penstock_s2.codec.validation import validate_append

STREAM: Final = StreamRef("fuzzed-basin", "fuzzed")
RAW, BASE64 = BytesFormat
Batch = tuple[RecordBatch | None, StreamPosition | None]


def _batch_of_protobuf(body: bytes) -> Batch:
    found = protobuf.decode_read_batch(body)
    return (found, found.tail) if isinstance(found, RecordBatch) else (None, found)


def _protobuf_of_batch(value: Batch) -> bytes:
    batch, tail = value
    if batch is not None:
        again = RecordBatch(batch.columns, tail=tail)
        encoded = protobuf.encode_read_batch(again)
        for pieces in cuts(encoded):
            assert count_records(pieces) == batch.count
        return encoded
    assert tail is not None
    return protobuf.encode_heartbeat(tail)


FORMS: Final[tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...]] = (
    (
        lambda body: json_records.decode_append_input(body, RAW, STREAM),
        lambda value: json_records.encode_append_input(value, RAW),
    ),
    (
        lambda body: json_records.decode_append_input(body, BASE64, STREAM),
        lambda value: json_records.encode_append_input(value, BASE64),
    ),
    (lambda body: protobuf.decode_append_input(body, STREAM), protobuf.encode_append_input),
    (json_records.decode_append_ack, json_records.encode_append_ack),
    (protobuf.decode_append_ack, protobuf.encode_append_ack),
    (json_records.decode_tail, json_records.encode_tail),
    (
        lambda body: json_records.decode_read_batch(body, RAW),
        lambda value: json_records.encode_read_batch(value[0], RAW, value[1]),
    ),
    (
        lambda body: json_records.decode_read_batch(body, BASE64),
        lambda value: json_records.encode_read_batch(value[0], BASE64, value[1]),
    ),
    (_batch_of_protobuf, _protobuf_of_batch),
)
"""Each form's decoder, and the encoder of what it returns."""
APPENDS: Final = FORMS[:3]

WORDS: Final = (
    b'"records":[',
    b'"body":"',
    b'"headers":[["',
    b'"timestamp":',
    b'"seq_num":',
    b'"match_seq_num":',
    b'"fencing_token":"',
    b'"tail":{',
    b'"start":{',
    b'"end":{',
    b"18446744073709551615",
    b"\\u0000",
    b"\\ud800",
)


def seeds() -> Iterator[bytes]:
    """Yield an append, an acknowledgement, a tail and a batch, each in every form."""
    headers = {0: (Header(b"", b"fence"),), 2: (Header(b"name", b"value"), Header(b"x", b""))}
    bodies = [b"token", b"", b"body", b"x" * 130]
    append = Append(
        STREAM,
        bodies,
        metered_size(bodies, headers),
        headers=headers,
        timestamps=[None, 1, 2**64 - 1, None],
        match_seq_num=7,
        fencing_token="token",
    )
    position = StreamPosition(2**63, 1000)
    batch = RecordBatch(Columns(range(4), [1, 2, 3, 2**64 - 1], bodies, headers), tail=position)
    ack = Appended(StreamPosition(0, 0), position, position)
    values = (append, append, append, ack, ack, position, (batch, position), (batch, position), (batch, position))
    for index, ((_, encode), value) in enumerate(zip(FORMS, values, strict=True)):
        yield bytes([index]) + encode(value)
    yield bytes([2]) + protobuf.encode_append_input(Append(STREAM, [b"plain"] * 3, 39))
    yield bytes([8]) + protobuf.encode_heartbeat(position)


def check(data: bytes) -> None:
    """Check that bytes are refused with an error of the codec, or give a value that is encoded to bytes that give it
    again; an append is also carried by the other forms."""
    form, body = chosen(FORMS, data)
    decode, encode = form
    if decode is _batch_of_protobuf:
        _count(body)
    try:
        value = decode(body)
    except (OperationFailed, RemoteProtocolError):
        return
    forms = APPENDS if isinstance(value, Append) else [form]
    for decode, encode in forms:
        try:
            encoded = encode(value)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.NOT_REPRESENTABLE and encode is APPENDS[0][1]
            continue
        try:
            again = decode(encoded)
        except OperationFailed:
            assert isinstance(value, Append) and form not in forms[:2] and not _valid(value)
            continue
        assert _plain(again) == _plain(value), f"{value} became {again}"


def _count(body: bytes) -> None:
    with contextlib.suppress(DecodeError):
        count_records([body])


def _valid(append: Append) -> bool:
    try:
        validate_append(append)
    except OperationFailed:
        return False
    return True


def _plain(value: Any) -> Any:
    """Return a value that can be compared."""
    if isinstance(value, tuple) and isinstance(value[0], RecordBatch):
        batch, tail = value
        return list(batch.records()), tail, batch.metered
    return value
