"""JSON of records: the bodies of S2's unary appends and reads, and the data of its events (S2 fact sheet, 1.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec
import orjson
import pybase64

from penstock.model.failures import FailureCode, fail
from penstock.model.limits import KIB, MAX_BATCH_RECORDS
from penstock.model.operations import Append, Appended
from penstock.model.records import (
    NO_HEADERS,
    U64_MAX,
    Columns,
    Header,
    Headers,
    RecordBatch,
    StreamPosition,
    StreamRef,
    long_runs,
    metered_size,
)
from penstock_s2.codec.formats import BytesFormat, parse_bytes, spell_bytes, spell_exactly
from penstock_s2.codec.json_values import (
    U64,
    PositionShape,
    check_u64,
    check_unique_keys,
    decode_answer,
    decode_json,
    remote_error,
    remote_position,
    spell_position,
)
from penstock_s2.codec.names import validate_fencing_token

__all__ = [
    "decode_append_ack",
    "decode_append_input",
    "decode_read_batch",
    "decode_tail",
    "encode_append_ack",
    "encode_append_input",
    "encode_read_batch",
    "encode_tail",
    "read_batch_pieces",
]

_AT_ONCE_BYTES: Final = 48 * KIB
"""Bytes that are decoded together; the first escape among them ends the attempt."""
_BLOCK: Final = 10_000
_DIGITS: Final = [b"%d" % number for number in range(_BLOCK)]
_LAST_DIGITS: Final = [b"%04d" % number for number in range(_BLOCK)]


# ---- shapes --------------------------------------------------------------------------------------------------


# Headers are tuples because an empty one costs nothing; a fresh list for each record made decoding 1.2 times slower.
class _AppendRecord(msgspec.Struct, gc=False):
    timestamp: U64 | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


class _AppendInput(msgspec.Struct):
    records: list[_AppendRecord]
    match_seq_num: U64 | None = None
    fencing_token: str | None = None


class _AppendAck(msgspec.Struct):
    start: PositionShape
    end: PositionShape
    tail: PositionShape


class _Tail(msgspec.Struct):
    tail: PositionShape


class _SequencedRecord(msgspec.Struct, gc=False):
    seq_num: U64
    timestamp: U64
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


class _ReadBatch(msgspec.Struct):
    records: list[_SequencedRecord]
    tail: PositionShape | None = None


_append_input: Final = msgspec.json.Decoder(_AppendInput)
_append_ack: Final = msgspec.json.Decoder(_AppendAck)
_tail: Final = msgspec.json.Decoder(_Tail)
_read_batch: Final = msgspec.json.Decoder(_ReadBatch)


class _Record(Protocol):
    headers: tuple[tuple[str, str], ...]
    body: str


def _content(records: Sequence[_Record], data_format: BytesFormat) -> tuple[list[bytes], dict[int, Headers]]:
    """Return bodies and headers as bytes. Raises ValueError for bad base64."""
    parse = parse_bytes[data_format]
    bodies = [parse(record.body) for record in records]
    headers = {
        index: tuple(Header(parse(name), parse(value)) for name, value in record.headers)
        for index, record in enumerate(records)
        if record.headers
    }
    return bodies, headers


# ---- the server's side ---------------------------------------------------------------------------------------


def decode_append_input(body: bytes, data_format: BytesFormat, stream: StreamRef) -> Append:
    """Decode the append in a unary request body.

    Raises OperationFailed: BAD_JSON for malformed JSON, wrong types, missing `records`, numbers beyond 64 bits and a
    fencing token of more than 36 bytes; INVALID for bad base64 and more than 1000 records (S2 fact sheet, 5.1 and
    section 6). `validation.validate_append` checks S2's other rules.
    """
    shape = decode_json(_append_input, body)
    records = shape.records
    if len(records) > MAX_BATCH_RECORDS:
        # Validation would find this too, but 2 MiB of `{},` would by then have cost 0.17 s instead of 0.05.
        raise fail(FailureCode.INVALID, f"record batch must not exceed {MAX_BATCH_RECORDS} records")
    check_unique_keys(body)
    try:
        bodies, headers = _content(records, data_format)
    except ValueError:
        raise fail(FailureCode.INVALID, f"invalid Base64 encoding in {_bad_base64(records)}") from None
    check_u64(shape.match_seq_num, "match_seq_num")
    if shape.fencing_token is not None:
        validate_fencing_token(shape.fencing_token, FailureCode.BAD_JSON)
    return Append(
        stream=stream,
        bodies=bodies,
        metered=metered_size(bodies, headers),
        headers=headers or NO_HEADERS,
        timestamps=_timestamps(records),
        match_seq_num=shape.match_seq_num,
        fencing_token=shape.fencing_token,
    )


def _timestamps(records: list[_AppendRecord]) -> list[int | None] | None:
    stamps = [record.timestamp for record in records]
    if stamps.count(None) == len(stamps):
        return None
    for index, stamp in enumerate(stamps):
        check_u64(stamp, f"records[{index}].timestamp")
    return stamps


def _bad_base64(records: list[_AppendRecord]) -> str:
    """Return the place of the first bad string; only called once decoding has failed."""
    for index, record in enumerate(records):
        strings = [(f"records[{index}].body", record.body)]
        strings += [
            (f"records[{index}].headers[{at}]", text) for at, pair in enumerate(record.headers) for text in pair
        ]
        for where, text in strings:
            try:
                parse_bytes[BytesFormat.BASE64](text)
            except ValueError:
                return where
    raise AssertionError("every string is base64")


def encode_append_ack(appended: Appended) -> bytes:
    """Encode the answer to a unary append."""
    return b'{"start":%b,"end":%b,"tail":%b}' % (
        spell_position(appended.start),
        spell_position(appended.end),
        spell_position(appended.tail),
    )


def encode_tail(tail: StreamPosition) -> bytes:
    """Encode the answer to a check of the tail, which is also the body of 416."""
    return b'{"tail":%b}' % spell_position(tail)


def encode_read_batch(batch: RecordBatch | None, data_format: BytesFormat, tail: StreamPosition | None = None) -> bytes:
    """Encode the answer to a unary read: the batch (None: no records) and the tail, by default the batch's own.

    With RAW, bytes that are not UTF-8 become U+FFFD: a client that asks for text gets that.
    """
    return b"".join(read_batch_pieces(batch, data_format, tail))


def read_batch_pieces(
    batch: RecordBatch | None, data_format: BytesFormat, tail: StreamPosition | None = None, *, omit_empty: bool = True
) -> tuple[bytes, bytes, bytes]:
    """Return the result of `encode_read_batch` unjoined: all readers of the batch share the piece with the records.

    `omit_empty`: False to write empty `headers` and `body`, which S2 omits.
    """
    if batch is None:
        records = b"[]"
    else:
        key = data_format if omit_empty else (data_format, omit_empty)
        records = batch.encoded(key, lambda it: _encode_records(it, data_format, omit_empty))
        tail = tail or batch.tail
    return b'{"records":', records, b"}" if tail is None else b',"tail":%b}' % spell_position(tail)


def _encode_records(batch: RecordBatch, data_format: BytesFormat, omit_empty: bool) -> bytes:
    """Encode records as a JSON array."""
    columns = batch.columns
    if not omit_empty:
        spell = spell_bytes[data_format]
        return orjson.dumps(
            [
                {
                    "seq_num": columns.seq_nums[index],
                    "timestamp": columns.timestamps[index],
                    "headers": _spell_headers(columns.headers.get(index, ()), spell),
                    "body": spell(body),
                }
                for index, body in enumerate(columns.bodies)
            ]
        )
    if not columns.headers and all(columns.bodies) and isinstance(columns.seq_nums, range):
        runs = long_runs(columns.timestamps)
        texts = None if runs is None else _json_texts(columns.bodies, batch.metered, data_format)
        if runs is not None and texts is not None:
            return _encode_in_runs(columns.seq_nums[0], columns.timestamps, runs, texts)
    return _encode_one_by_one(columns, data_format)


def _json_texts(bodies: list[bytes], metered: int, data_format: BytesFormat) -> list[bytes] | None:
    """Return what stands between the quotes of JSON strings. Text is its own spelling if nothing in it needs an escape;
    else, and if it is not UTF-8, return None. `metered`: roughly the bytes of all bodies."""
    if data_format is BytesFormat.BASE64:
        return list(map(pybase64.b64encode, bodies))
    at_once = max(_AT_ONCE_BYTES * len(bodies) // metered, 1)
    cuts = [0, 1, *range(at_once + 1, len(bodies), at_once), len(bodies)]
    for start, stop in pairwise(cuts):  # the first alone: if it needs an escape, as JSON in JSON does, so do most
        joined = b" ".join(bodies[start:stop])  # the space ends a character that one of them leaves open
        try:
            if len(orjson.dumps(joined.decode())) > len(joined) + 2:
                return None
        except UnicodeDecodeError:
            return None
    return bodies


def _encode_in_runs(first: int, timestamps: Sequence[int], runs: list[tuple[int, int]], texts: list[bytes]) -> bytes:
    """Encode records with few timestamps from these pieces: the bytes that records of one run have in common, the last
    digits of the sequence number, and the body. CPU us a record of 100 B: 0.08
    instead of 0.20, as base64 0.16 instead of 0.25."""
    count = len(texts)
    parts: list[bytes] = [b""] * (4 * count + 1)
    for start, stop in runs:
        parts[4 * start + 2 : 4 * stop : 4] = [b',"timestamp":%d,"body":"' % timestamps[start]] * (stop - start)
    start = 0
    while start < count:
        block, within = divmod(first + start, _BLOCK)
        stop = min(count, start + _BLOCK - within)
        head, digits = (b'"},{"seq_num":%d' % block, _LAST_DIGITS) if block else (b'"},{"seq_num":', _DIGITS)
        parts[4 * start : 4 * stop : 4] = [head] * (stop - start)
        parts[4 * start + 1 : 4 * stop : 4] = digits[within : within + stop - start]
        start = stop
    parts[0] = b"[" + parts[0][3:]
    parts[3:-1:4] = texts
    parts[-1] = b'"}]'
    return b"".join(parts)


def _encode_one_by_one(columns: Columns, data_format: BytesFormat) -> bytes:
    spell = spell_bytes[data_format]
    records: list[dict[str, Any]] = [
        {"seq_num": seq_num, "timestamp": timestamp, "body": text}
        if text
        else {"seq_num": seq_num, "timestamp": timestamp}
        for seq_num, timestamp, text in zip(
            columns.seq_nums, columns.timestamps, map(spell, columns.bodies), strict=True
        )
    ]
    for index, headers in columns.headers.items():
        record = records[index]
        text = record.pop("body", None)
        record["headers"] = _spell_headers(headers, spell)
        if text is not None:
            record["body"] = text
    return orjson.dumps(records)


def _spell_headers(headers: Headers, spell: Callable[[bytes], str]) -> list[tuple[str, str]]:
    return [(spell(name), spell(value)) for name, value in headers]


# ---- the client's side ---------------------------------------------------------------------------------------


def encode_append_input(append: Append, data_format: BytesFormat) -> bytes:
    """Encode the body of a unary append. Raises OperationFailed(NOT_REPRESENTABLE) for what JSON cannot express: with
    RAW, bytes that are not UTF-8; in any format, one exact timestamp for the batch, which S2 would adjust."""
    if append.exact_timestamp is not None:
        raise fail(FailureCode.NOT_REPRESENTABLE, "S2 does not accept exact timestamps: it may adjust them")
    spell = spell_exactly[data_format]
    try:
        records: list[dict[str, Any]] = [{"body": spell(body)} for body in append.bodies]
        for index, headers in append.headers.items():
            records[index]["headers"] = _spell_headers(headers, spell)
    except UnicodeDecodeError as error:
        raise fail(FailureCode.NOT_REPRESENTABLE, f"a record is not UTF-8 text: {error}") from None
    for record, timestamp in zip(records, append.timestamps or (), strict=False):
        if timestamp is not None:
            record["timestamp"] = timestamp
    content: dict[str, Any] = {"records": records}
    if append.match_seq_num is not None:
        content["match_seq_num"] = append.match_seq_num
    if append.fencing_token is not None:
        content["fencing_token"] = append.fencing_token
    return orjson.dumps(content)


def decode_append_ack(body: bytes) -> Appended:
    """Decode a server's acknowledgement. Raises RemoteProtocolError(BAD_JSON)."""
    ack = decode_answer(_append_ack, body)
    return Appended(remote_position(ack.start), remote_position(ack.end), remote_position(ack.tail))


def decode_tail(body: bytes) -> StreamPosition:
    """Decode a server's answer to a check of the tail. Raises RemoteProtocolError(BAD_JSON)."""
    return remote_position(decode_answer(_tail, body).tail)


def decode_read_batch(body: bytes, data_format: BytesFormat) -> tuple[RecordBatch | None, StreamPosition | None]:
    """Decode a server's batch: records (None if there are none) and tail.

    Raises RemoteProtocolError: BAD_JSON for anything but a ReadBatch and for bad base64, INVALID for gaps in the
    sequence numbers, which S2 does not leave and a RecordBatch cannot hold.
    """
    shape = decode_answer(_read_batch, body)
    tail = None if shape.tail is None else remote_position(shape.tail)
    records = shape.records
    if not records:
        return None, tail
    try:
        bodies, headers = _content(records, data_format)
    except ValueError as error:
        raise remote_error(FailureCode.BAD_JSON, f"invalid Base64 encoding in a batch: {error}") from None
    seq_nums = [record.seq_num for record in records]
    timestamps = [record.timestamp for record in records]
    first = seq_nums[0]
    if seq_nums != list(range(first, first + len(records))):
        raise remote_error(FailureCode.INVALID, f"sequence numbers of a batch from {first} on have gaps")
    if seq_nums[-1] > U64_MAX or max(timestamps) > U64_MAX:
        raise remote_error(FailureCode.BAD_JSON, "a number does not fit into 64 bits")
    return RecordBatch(Columns(seq_nums, timestamps, bodies, headers), tail=tail), tail
