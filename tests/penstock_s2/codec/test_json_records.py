"""Records as JSON (S2 fact sheet, 1.2, and section 6 "Classification traps")."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.operations import Append, Appended
from penstock.model.record_encoding import RECORDS, decode_records, encode_records
from penstock.model.records import (
    U64_MAX,
    Columns,
    Header,
    RecordBatch,
    StreamPosition,
    StreamRef,
    WireBytes,
    metered_size,
)
from penstock_s2.codec.formats import BytesFormat, spell_bytes
from penstock_s2.codec.json_records import (
    decode_append_ack,
    decode_append_input,
    decode_read_batch,
    decode_tail,
    encode_append_ack,
    encode_append_input,
    encode_read_batch,
    encode_tail,
    read_batch_pieces,
)
from penstock_s2.codec.json_values import MAX_CHECKED_TOKENS

C = FailureCode
STREAM = StreamRef("basin-name", "a/b")
RAW, BASE64 = BytesFormat.RAW, BytesFormat.BASE64


def append(content: Any, data_format: BytesFormat = RAW) -> Append:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return decode_append_input(body, data_format, STREAM)


def refused(content: Any, data_format: BytesFormat = RAW) -> tuple[FailureCode, str]:
    with pytest.raises(OperationFailed) as caught:
        append(content, data_format)
    return caught.value.failure.code, caught.value.failure.message


# ---- AppendInput ---------------------------------------------------------------------------------------------


def test_plain_append() -> None:
    got = append({"records": [{"body": "x"}, {"body": "é"}, {}]})
    assert (got.stream, got.bodies, got.headers, got.timestamps) == (STREAM, [b"x", "é".encode(), b""], {}, None)
    assert (got.match_seq_num, got.fencing_token, got.exact_timestamp) == (None, None, None)
    assert got.metered == 8 * 3 + 1 + 2


def test_everything_at_once() -> None:
    got = append(
        {
            "records": [
                {"timestamp": 0, "headers": [["k", "v"], ["k", ""]], "body": "hi"},
                {"timestamp": None, "headers": []},
                {"timestamp": U64_MAX, "headers": [["", "fence"]], "body": "tok"},
            ],
            "match_seq_num": 0,
            "fencing_token": "",
            "unknown": {"nested": [1, 2.5, "x", None]},
        }
    )
    assert got.bodies == [b"hi", b"", b"tok"]
    assert got.headers == {0: (Header(b"k", b"v"), Header(b"k", b"")), 2: (Header(b"", b"fence"),)}
    assert got.timestamps == [0, None, U64_MAX]
    assert (got.match_seq_num, got.fencing_token) == (0, "")
    assert got.metered == metered_size(got.bodies, got.headers) == 24 + 2 + 3 + 4 + 2 + 1 + 2 + 5


def test_base64_append() -> None:
    got = append({"records": [{"headers": [["", "dHJpbQ=="]], "body": "AAAAAAAAAAU="}, {"body": "/w=="}]}, BASE64)
    assert got.bodies == [b"\0\0\0\0\0\0\0\5", b"\xff"]
    assert got.headers == {0: (Header(b"", b"trim"),)}


def test_nulls_that_mean_absent() -> None:
    got = append({"records": [{"timestamp": None}], "match_seq_num": None, "fencing_token": None})
    assert (got.timestamps, got.match_seq_num, got.fencing_token) == (None, None, None)


def test_an_empty_batch_is_decoded_for_validation_to_refuse() -> None:
    assert append({"records": []}).bodies == []


def test_too_many_records_are_refused_before_they_are_looked_at() -> None:
    assert len(append({"records": [{}] * 1000}).bodies) == 1000
    assert refused({"records": [{"body": "*"}] * 1001}, BASE64) == (
        C.INVALID,
        "record batch must not exceed 1000 records",
    )


def test_escapes() -> None:
    assert append(rb'{"records":[{"body":"\u0000\n\"\ud83d\ude00\/"}]}').bodies == ['\0\n"\U0001f600/'.encode()]


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"records":[{"body":"a"}],"records":[{"body":"b"}]}', "records"),
        (b'{"records":[{"body":"a","body":"b"}]}', "body"),
        (b'{"records":[{"body":"a"},{"timestamp":1,"body":"b","timestamp":1}]}', "timestamp"),
        (b'{"records":[{"body":"a"}],"match_seq_num":1,"match_seq_num":2}', "match_seq_num"),
    ],
)
def test_a_key_twice(body: bytes, key: str) -> None:
    with pytest.raises(OperationFailed, match=f"duplicate field `{key}`") as failed:
        append(body)
    assert failed.value.failure.code is FailureCode.BAD_JSON


def test_text_that_looks_like_keys_is_text() -> None:
    text = json.dumps({"body": 1, "records": []}) + json.dumps({"body": 2})
    assert append(json.dumps({"records": [{"body": text, "headers": [["body", "body"], ["body", ""]]}]}).encode())


def test_a_dense_body_is_not_looked_through_for_long() -> None:
    """2 MiB of the smallest elements cost no more than their decoding: keys are compared up to a bound."""
    dense = b'{"records":[{}],"x":[%b0],"x":0}' % (b"0," * MAX_CHECKED_TOKENS)
    assert append(dense).bodies == [b""]
    with pytest.raises(OperationFailed, match="duplicate field `x`"):
        append(dense.replace(b"0,", b"", 10))


def test_numbers_of_any_length_where_nothing_reads_them() -> None:
    assert append(b'{"records":[{}],"x":%b}' % (b"9" * 5000)).bodies == [b""]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b'{"records":null}',
        b'{"records":{}}',
        b'{"records":[1]}',
        b'{"records":[null]}',
        b'{"records":[{"body":1}]}',
        b'{"records":[{"body":null}]}',
        b'{"records":[{"body":["x"]}]}',
        b'{"records":[{"headers":null}]}',
        b'{"records":[{"headers":{"a":"b"}}]}',
        b'{"records":[{"headers":[["a"]]}]}',
        b'{"records":[{"headers":[["a","b","c"]]}]}',
        b'{"records":[{"headers":[["a",1]]}]}',
        b'{"records":[{"timestamp":-1}]}',
        b'{"records":[{"timestamp":1.0}]}',
        b'{"records":[{"timestamp":1e3}]}',
        b'{"records":[{"timestamp":"1"}]}',
        b'{"records":[{"timestamp":true}]}',
        b'{"records":[{"timestamp":NaN}]}',
        b'{"records":[{"timestamp":18446744073709551616}]}',
        b'{"records":[{"timestamp":01}]}',
        b'{"records":[],"match_seq_num":18446744073709551616}',
        b'{"records":[],"match_seq_num":' + b"9" * 5000 + b"}",
        b'{"records":[],"match_seq_num":-1}',
        b'{"records":[],"fencing_token":1}',
        b'{"records":[],"fencing_token":"' + b"x" * 37 + b'"}',
        b'{"records":[],"fencing_token":"' + "é".encode() * 19 + b'"}',
        b'{"records":[]',
        b'{"records":[]} x',
        b'{"records":[]}{}',
        b'\xef\xbb\xbf{"records":[]}',
        b'{"records":[{"body":"\xff"}]}',
        b'{"records":[{"body":"\xed\xa0\x80"}]}',
        b'{"records":[{"body":"\\ud800"}]}',
        b'{"records":[{"body":"\\udc00\\ud800"}]}',
        b'{"records":[{"body":"a\nb"}]}',
        b"{'records':[]}",
        b'{"records":[{"body":"x"},]}',
        b'{"x":' + b"[" * 200_000,
        b'{"x":' + b'{"x":' * 200_000,
    ],
    ids=lambda body: body[:50].decode("latin-1"),
)
@pytest.mark.parametrize("data_format", list(BytesFormat))
def test_what_is_no_append_input_is_bad_json(body: bytes, data_format: BytesFormat) -> None:
    code, message = refused(body, data_format)
    assert code is C.BAD_JSON
    assert len(message) < 300


@pytest.mark.parametrize(
    ("record", "where"),
    [
        ({"body": "YQ"}, "records[1].body"),
        ({"body": "Y!=="}, "records[1].body"),
        ({"body": "é"}, "records[1].body"),
        ({"headers": [["YQ==", "YQ=="], ["Y", ""]], "body": "YQ=="}, "records[1].headers[1]"),
        ({"headers": [["", "fence"]]}, "records[1].headers[0]"),
    ],
)
def test_bad_base64_is_invalid_and_says_where(record: Any, where: str) -> None:
    code, message = refused({"records": [{"body": "YQ=="}, record]}, BASE64)
    assert code is C.INVALID
    assert message == f"invalid Base64 encoding in {where}"


def test_errors_say_where() -> None:
    assert "$.records[1].timestamp" in refused({"records": [{}, {"timestamp": U64_MAX + 1}]})[1]
    assert "$.records[1].body" in refused({"records": [{}, {"body": 1}]})[1]
    assert "records" in refused({})[1]


headers = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=3)
u64 = st.integers(0, U64_MAX)
record_lists = st.lists(st.tuples(st.binary(max_size=40), headers, st.none() | u64), max_size=8)


@given(record_lists, st.none() | u64, st.none() | st.text(alphabet="abé", max_size=18))
def test_append_round_trip(records: Any, match: int | None, token: str | None) -> None:
    bodies = [body for body, _, _ in records]
    by_index = {i: tuple(Header(*pair) for pair in some) for i, (_, some, _) in enumerate(records) if some}
    stamps = [stamp for _, _, stamp in records]
    given_append = Append(
        stream=STREAM,
        bodies=bodies,
        metered=metered_size(bodies, by_index),
        headers=by_index,
        timestamps=None if stamps.count(None) == len(stamps) else stamps,
        match_seq_num=match,
        fencing_token=token,
    )
    assert append(encode_append_input(given_append, BASE64), BASE64) == given_append


def test_a_client_loses_nothing_in_silence() -> None:
    binary = Append(STREAM, [b"ok", b"\xff"], 18)
    with pytest.raises(OperationFailed, match="UTF-8") as caught:
        encode_append_input(binary, RAW)
    assert caught.value.failure.code is C.NOT_REPRESENTABLE
    exact = Append(STREAM, [b"ok"], 10, exact_timestamp=5)
    with pytest.raises(OperationFailed, match="exact") as caught:
        encode_append_input(exact, BASE64)
    assert caught.value.failure.code is C.NOT_REPRESENTABLE


@given(st.binary(max_size=60), st.sampled_from(BytesFormat))
def test_garbage_is_refused_and_nothing_else(body: bytes, data_format: BytesFormat) -> None:
    try:
        append(body, data_format)
    except OperationFailed as error:
        assert error.failure.code in (C.BAD_JSON, C.INVALID)


SAMPLE = (
    b'{"records":[{"timestamp":12,"headers":[["aw==","dg=="]],"body":"aGk="},{}],"match_seq_num":3,"fencing_token":"t"}'
)


@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255), st.sampled_from(["set", "cut", "drop"]))
def test_near_misses_are_decoded_or_refused(at: int, value: int, how: str) -> None:
    mutated = {
        "set": SAMPLE[:at] + bytes([value]) + SAMPLE[at + 1 :],
        "cut": SAMPLE[:at],
        "drop": SAMPLE[:at] + SAMPLE[at + 1 :],
    }[how]
    try:
        append(mutated, BASE64)
    except OperationFailed as error:
        assert error.failure.code in (C.BAD_JSON, C.INVALID)


# ---- AppendAck and tail ----------------------------------------------------------------------------------------


def test_ack() -> None:
    appended = Appended(StreamPosition(0, 1000), StreamPosition(2, 1001), StreamPosition(5, U64_MAX))
    body = encode_append_ack(appended)
    assert json.loads(body) == {
        "start": {"seq_num": 0, "timestamp": 1000},
        "end": {"seq_num": 2, "timestamp": 1001},
        "tail": {"seq_num": 5, "timestamp": U64_MAX},
    }
    assert decode_append_ack(body) == appended


def test_tail() -> None:
    assert encode_tail(StreamPosition(0, 0)) == b'{"tail":{"seq_num":0,"timestamp":0}}'
    assert decode_tail(encode_tail(StreamPosition(U64_MAX, 7))) == StreamPosition(U64_MAX, 7)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"tail":{}}', b'{"tail":{"seq_num":1,"timestamp":18446744073709551616}}', b"\xff", b"[" * 200_000],
    ids=lambda body: body[:30].decode("latin-1"),
)
def test_a_server_that_answers_nonsense(body: bytes) -> None:
    for decode in (decode_tail, decode_append_ack, lambda it: decode_read_batch(it, RAW)):
        with pytest.raises(RemoteProtocolError) as caught:
            decode(body)
        assert caught.value.failure.code is C.BAD_JSON


# ---- ReadBatch -------------------------------------------------------------------------------------------------


def batch_of(records: list[tuple[bytes, list[tuple[bytes, bytes]]]], first: int = 0, **options: Any) -> RecordBatch:
    by_index = {i: tuple(Header(*pair) for pair in some) for i, (_, some) in enumerate(records) if some}
    numbers = list(range(first, first + len(records)))
    return RecordBatch(
        Columns(numbers, [1000 + n for n in numbers], [body for body, _ in records], by_index), **options
    )


def test_batch_omits_what_is_empty() -> None:
    batch = batch_of([(b"hi", []), (b"", []), (b"", [(b"", b"trim")]), (b"x", [(b"k", b"v")])])
    assert encode_read_batch(batch, RAW) == (
        b'{"records":[{"seq_num":0,"timestamp":1000,"body":"hi"},{"seq_num":1,"timestamp":1001},'
        b'{"seq_num":2,"timestamp":1002,"headers":[["","trim"]]},'
        b'{"seq_num":3,"timestamp":1003,"headers":[["k","v"]],"body":"x"}]}'
    )


def test_no_records() -> None:
    assert encode_read_batch(None, RAW) == b'{"records":[]}'
    assert encode_read_batch(None, RAW, StreamPosition(3, 4)) == b'{"records":[],"tail":{"seq_num":3,"timestamp":4}}'
    assert decode_read_batch(b'{"records":[]}', RAW) == (None, None)


def test_tail_is_the_batchs_own_unless_given() -> None:
    batch = batch_of([(b"x", [])], tail=StreamPosition(1, 1000))
    assert json.loads(encode_read_batch(batch, RAW))["tail"] == {"seq_num": 1, "timestamp": 1000}
    assert json.loads(encode_read_batch(batch, RAW, StreamPosition(9, 9)))["tail"] == {"seq_num": 9, "timestamp": 9}


def test_binary_raw_is_lossy_and_base64_is_not() -> None:
    batch = batch_of([(b"a\xffb", [(b"\xfe", b"\xc3")])])
    assert json.loads(encode_read_batch(batch, RAW))["records"] == [
        {"seq_num": 0, "timestamp": 1000, "headers": [["\ufffd", "\ufffd"]], "body": "a\ufffdb"}
    ]
    assert json.loads(encode_read_batch(batch, BASE64))["records"] == [
        {"seq_num": 0, "timestamp": 1000, "headers": [["/g==", "ww=="]], "body": "Yf9i"}
    ]


def test_one_line_whatever_the_body_holds() -> None:
    body = bytes(range(256)) + "\u2028\u0085\r\n".encode()
    encoded = encode_read_batch(batch_of([(body, [(body, body)])]), RAW)
    assert b"\n" not in encoded and b"\r" not in encoded
    assert json.loads(encoded)["records"][0]["body"] == body.decode("utf-8", "replace")


def test_readers_share_the_encoding() -> None:
    batch = batch_of([(b"x", [])])
    assert read_batch_pieces(batch, RAW)[1] is read_batch_pieces(batch, RAW, StreamPosition(5, 5))[1]
    assert read_batch_pieces(batch, RAW)[1] is not read_batch_pieces(batch, BASE64)[1]


@given(
    st.lists(st.tuples(st.binary(max_size=40), headers), min_size=1, max_size=8),
    st.integers(0, 2**64 - 2000),
    st.none() | st.tuples(u64, u64).map(lambda pair: StreamPosition(*pair)),
)
def test_batch_round_trip(records: Any, first: int, tail: StreamPosition | None) -> None:
    batch = batch_of(records, first)
    decoded, decoded_tail = decode_read_batch(encode_read_batch(batch, BASE64, tail), BASE64)
    assert decoded is not None
    assert list(decoded.records()) == list(batch.records())
    assert (decoded.tail, decoded_tail, decoded.metered) == (tail, tail, batch.metered)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=5)), min_size=1, max_size=5))
def test_text_survives_raw(texts: Any) -> None:
    batch = batch_of([(body.encode(), [(b"n", value.encode())]) for body, value in texts])
    decoded, _ = decode_read_batch(encode_read_batch(batch, RAW), RAW)
    assert decoded is not None and list(decoded.records()) == list(batch.records())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"records":[{"seq_num":1}]}', C.BAD_JSON),
        (b'{"records":[{"timestamp":1}]}', C.BAD_JSON),
        (b'{"records":[{"seq_num":1,"timestamp":1,"body":"Y"}]}', C.BAD_JSON),
        (b'{"records":[{"seq_num":1,"timestamp":18446744073709551616}]}', C.BAD_JSON),
        (b'{"records":[{"seq_num":18446744073709551616,"timestamp":1}]}', C.BAD_JSON),
        (b'{"records":[{"seq_num":1,"timestamp":1},{"seq_num":3,"timestamp":1}]}', C.INVALID),
        (b'{"records":[{"seq_num":1,"timestamp":1},{"seq_num":1,"timestamp":1}]}', C.INVALID),
        (b'{"tail":{"seq_num":1,"timestamp":1}}', C.BAD_JSON),
    ],
)
def test_a_batch_that_is_none(body: bytes, code: FailureCode) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_read_batch(body, BASE64)
    assert caught.value.failure.code is code


def test_the_seeds_page_spells_empty_headers() -> None:
    body = b'{"records":[{"seq_num":100,"timestamp":1709481234567,"headers":[],"body":"Event data"}]}'
    batch, tail = decode_read_batch(body, RAW)
    assert batch is not None and tail is None
    assert [tuple(record) for record in batch.records()] == [(100, 1709481234567, (), b"Event data")]


@given(
    st.sampled_from([0, 1, 9_990, 99_995, 19_999, 2**32, U64_MAX - 100]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=3),
    st.lists(st.binary(max_size=3) | st.text(max_size=6).map(str.encode), min_size=1, max_size=4),
    st.integers(1, 20_000),
    st.sampled_from(BytesFormat),
)
@example(0, [(0, 30), (3, 20)], [b"abc", b"d"], 1, RAW)
@example(9_990, [(0, 30), (3, 20)], [b"abc", b"d"], 1, BytesFormat.BASE64)
@example(99_995, [(1, 9)], [b"\xff"], 1, RAW)
def test_records_with_few_timestamps_are_encoded_as_any_others(
    first: int, runs: list[tuple[int, int]], words: list[bytes], size: int, data_format: BytesFormat
) -> None:
    timestamps: list[int] = []
    for step, count in runs:
        timestamps += [(timestamps[-1] if timestamps else 0) + step * 999] * count
    bodies = [words[index % len(words)] for index in range(len(timestamps))]
    bodies[0] *= size // len(timestamps)
    columns = Columns(range(first, first + len(bodies)), timestamps, bodies)
    spell = spell_bytes[data_format]
    expected = [
        {"seq_num": seq_num, "timestamp": timestamp, "body": spell(body)}
        for seq_num, timestamp, body in zip(columns.seq_nums, timestamps, bodies, strict=True)
    ]
    for record in expected:
        if not record["body"]:
            del record["body"]
    encoded = encode_read_batch(RecordBatch(columns), data_format)
    assert encoded == b'{"records":%b}' % orjson.dumps(expected)


@given(
    st.sampled_from([1, 128, 9_900, 2**32]),
    st.integers(8, 300),
    st.integers(1, 2000),
    st.lists(st.tuples(st.integers(0, 299), st.sampled_from([b'"', b"\n", b"\xff", "é".encode()])), max_size=3),
    st.integers(1, 400),
    st.sampled_from(BytesFormat),
)
@example(128, 300, 2000, [(290, b'"')], 400, RAW)
def test_tables_are_encoded_as_any_others(
    first: int, count: int, size: int, others: list[tuple[int, bytes]], run: int, data_format: BytesFormat
) -> None:
    bodies = [b"%d" % (index % 10) * size for index in range(count)]
    for index, text in others:
        bodies[index % count] = (text + bodies[index % count])[:size]
    timestamps = [1_700_000_000_000 + index // run for index in range(count)]
    columns = Columns(range(first, first + count), timestamps, bodies)
    wire = WireBytes(RECORDS, (encode_records(columns),))
    whole = RecordBatch(columns)
    batch = RecordBatch.from_wire(
        wire, lambda data, _: decode_records(data), count=count, first_seq_num=first, metered=whole.metered
    )
    spell = spell_bytes[data_format]
    expected = [
        {"seq_num": first + index, "timestamp": timestamps[index], "body": spell(body)}
        for index, body in enumerate(bodies)
    ]
    encoded = encode_read_batch(batch, data_format)
    assert encoded == encode_read_batch(whole, data_format) == b'{"records":%b}' % orjson.dumps(expected)


def test_records_whose_timestamps_fall_keep_them() -> None:
    timestamps = [5, *range(1, 5), *[5] * 40]
    encoded = encode_read_batch(RecordBatch(Columns(range(1, 46), timestamps, [b"a"] * 45)), RAW)
    assert [record["timestamp"] for record in json.loads(encoded)["records"]] == timestamps


def test_a_character_cut_between_two_bodies_is_no_text() -> None:
    whole = "é".encode()
    columns = Columns(range(1, 21), [7] * 20, [b"a", whole[:1], whole[1:], *[b"b"] * 17])
    found = json.loads(encode_read_batch(RecordBatch(columns), RAW))["records"]
    assert [record["body"] for record in found[:4]] == ["a", "\ufffd", "\ufffd", "b"]


@pytest.mark.parametrize("index", [0, 1, 19])
@pytest.mark.parametrize("body", [b'a"b', b"\xff", b"\n"])
def test_one_body_that_json_spells_otherwise(index: int, body: bytes) -> None:
    bodies = [b"b" * 5000] * 20
    bodies[index] = body
    encoded = encode_read_batch(RecordBatch(Columns(range(1, 21), [7] * 20, bodies)), RAW)
    assert [record["body"] for record in json.loads(encoded)["records"]] == [spell_bytes[RAW](one) for one in bodies]
