"""Columns to protobuf bytes and back, held against the protobuf library with the full schema."""

import tracemalloc
from collections.abc import Iterable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, Appended
from penstock.model.record_bytes import LengthCache, varint, varint_width
from penstock.model.record_encoding import RECORDS, decode_records, encode_records
from penstock.model.records import (
    U64_MAX,
    Columns,
    Header,
    Headers,
    RecordBatch,
    RecordId,
    StreamPosition,
    StreamRef,
    WireBytes,
    metered_size,
)
from penstock_proto import s2_pb2
from penstock_s2.codec.protobuf import (
    S2_READ_BATCH,
    decode_append_ack,
    decode_append_input,
    decode_read_batch,
    encode_append_ack,
    encode_append_input,
    encode_heartbeat,
    encode_read_batch,
)

STREAM = StreamRef("basin-01", "a/b")

# Numbers around every width of varint, and around the tables' 14 bits.
edges = sorted({max(0, (1 << bits) + d) for bits in (0, *range(7, 64, 7), 41) for d in (-1, 0, 1)} | {U64_MAX})
u64s = st.sampled_from(edges) | st.integers(0, U64_MAX)
blobs = st.binary(max_size=6) | st.sampled_from([b"", b"x" * 120, b"y" * 128, b"z" * 16500])
texts = st.binary(max_size=3) | st.sampled_from([size * b"t" for size in (64, 65, 127, 128, 300)])
header_sets = st.lists(st.builds(Header, texts, texts), min_size=1, max_size=3).map(tuple)
single_headers = st.builds(Header, texts, texts).map(lambda header: (header,))


@st.composite
def header_maps(draw: st.DrawFn, count: int) -> dict[int, Headers]:
    if not count or draw(st.booleans()):
        return {}
    if draw(st.booleans()):  # one on each record, as tracers and the SDKs' benchmark send them
        return dict(enumerate(draw(st.lists(single_headers, min_size=count, max_size=count))))
    return draw(st.dictionaries(st.integers(0, count - 1), header_sets, max_size=count))


@st.composite
def appends(draw: st.DrawFn) -> Append:
    bodies = draw(st.lists(blobs, max_size=6))
    count = len(bodies)
    close = draw(u64s)  # timestamps of one width and block, so that the fast way is taken too
    times = st.sampled_from([u64s, u64s | st.none(), st.integers(close, min(close + 3, U64_MAX)), st.just(close)])
    timestamps = draw(st.none() | st.lists(draw(times), min_size=count, max_size=count))
    headers = draw(header_maps(count))
    return Append(
        STREAM,
        bodies,
        metered_size(bodies, headers),
        headers=headers,
        timestamps=timestamps,
        match_seq_num=draw(st.none() | u64s),
        fencing_token=draw(st.none() | st.text(max_size=4)),
    )


@st.composite
def batches(draw: st.DrawFn, min_size: int = 0) -> Columns:
    bodies = draw(st.lists(blobs, min_size=min_size, max_size=6))
    count = len(bodies)
    first = min(draw(u64s), U64_MAX - count)
    seq_nums = range(first, first + count)
    close = draw(u64s)
    times = draw(st.sampled_from([u64s, st.integers(close, min(close + 3, U64_MAX)), st.just(close)]))
    timestamps = draw(st.lists(times, min_size=count, max_size=count))
    return Columns(draw(st.sampled_from([seq_nums, list(seq_nums)])), timestamps, bodies, draw(header_maps(count)))


def library_headers(headers: Headers) -> list[s2_pb2.Header]:
    return [s2_pb2.Header(name=name, value=value) for name, value in headers]


def library_append(append: Append) -> s2_pb2.AppendInput:
    timestamps = append.timestamps or [None] * len(append.bodies)
    records = [
        s2_pb2.AppendRecord(timestamp=t, headers=library_headers(append.headers.get(i, ())), body=body)
        for i, (t, body) in enumerate(zip(timestamps, append.bodies, strict=True))
    ]
    return s2_pb2.AppendInput(records=records, match_seq_num=append.match_seq_num, fencing_token=append.fencing_token)


def library_batch(columns: Columns, tail: StreamPosition | None = None) -> s2_pb2.ReadBatch:
    records = [
        s2_pb2.SequencedRecord(
            seq_num=seq_num, timestamp=t, headers=library_headers(columns.headers.get(i, ())), body=body
        )
        for i, (seq_num, t, body) in enumerate(zip(columns.seq_nums, columns.timestamps, columns.bodies, strict=True))
    ]
    return s2_pb2.ReadBatch(records=records, tail=tail and s2_pb2.StreamPosition(**tail._asdict()))


def same(one: Columns, other: Columns) -> bool:
    numbers = list(one.seq_nums) == list(other.seq_nums) and list(one.timestamps) == list(other.timestamps)
    return numbers and one.bodies == other.bodies and dict(one.headers) == dict(other.headers)


def code_of(payload: bytes) -> FailureCode:
    with pytest.raises(OperationFailed) as caught:
        decode_append_input(payload, STREAM)
    return caught.value.failure.code


# ---- byte for byte -------------------------------------------------------------------------------------------


@given(appends())
def test_append_inputs_are_the_librarys_bytes_and_come_back(append: Append) -> None:
    payload = encode_append_input(append)
    assert payload == library_append(append).SerializeToString()
    decoded = decode_append_input(memoryview(payload), STREAM)
    if append.timestamps is not None and set(append.timestamps) <= {None}:
        append = replace(append, timestamps=None)
    assert decoded == append


@given(batches(), st.none() | st.builds(StreamPosition, u64s, u64s))
def test_read_batches_are_the_librarys_bytes_and_come_back(columns: Columns, tail: StreamPosition | None) -> None:
    records = encode_records(columns)
    assert records == library_batch(columns).SerializeToString()
    assert same(decode_records(records), columns)
    assert same(decode_records(memoryview(records)), columns)
    if columns.bodies:
        payload = encode_read_batch(RecordBatch(columns, tail=tail))
        assert payload == library_batch(columns, tail).SerializeToString()
        batch = decode_read_batch(payload)
        assert isinstance(batch, RecordBatch)
        assert same(batch.columns, columns) and batch.tail == tail
        assert batch.metered == metered_size(columns.bodies, columns.headers)
        assert encode_read_batch(batch) == payload


@given(batches(), batches())
def test_payloads_one_after_the_other_are_a_payload(one: Columns, other: Columns) -> None:
    both = decode_records(encode_records(one) + encode_records(other))
    assert both.bodies == one.bodies + other.bodies
    assert list(both.seq_nums) == [*one.seq_nums, *other.seq_nums]


@given(st.lists(st.builds(StreamPosition, u64s, u64s), min_size=3, max_size=3))
@example([StreamPosition(0, 0)] * 3)
def test_acks_are_the_librarys_bytes_and_come_back(positions: list[StreamPosition]) -> None:
    start, end, tail = (s2_pb2.StreamPosition(**position._asdict()) for position in positions)
    payload = encode_append_ack(Appended(*positions))
    assert payload == s2_pb2.AppendAck(start=start, end=end, tail=tail).SerializeToString()
    assert decode_append_ack(payload) == Appended(*positions)


@pytest.mark.parametrize("number", edges)
def test_varints(number: int) -> None:
    assert varint(number) == s2_pb2.AppendRecord(timestamp=number).SerializeToString()[1:]
    assert len(varint(number)) == varint_width(number)


def test_large_dense_batches_across_the_tables_blocks() -> None:
    for first in (1, 100, 16000, 16384, 2**21 - 500, 2**41 - 500):
        columns = Columns(range(first, first + 1000), [1_760_000_000_000] * 1000, [b"x" * 100] * 1000)
        assert encode_records(columns) == library_batch(columns).SerializeToString()


@pytest.mark.parametrize("at", [(0,), (299,), (0, 15), (3, 4, 16), (0, 1, 150, 299), range(0, 300, 20)])
@pytest.mark.parametrize("stamped", [(), (0,), range(300)])
def test_few_headers_in_a_large_batch(at: tuple[int, ...], stamped: tuple[int, ...]) -> None:
    """The pipeline's sink puts one on the first record of each append; the others are written and read as columns."""
    bodies = [b"x" * (index % 200) for index in range(300)]
    headers = {index: (Header(b"name", b"%d" % index), Header(b"n", b"v" * 200)) for index in at}
    stamps = [120 + index if index in stamped else None for index in range(300)] if stamped else None
    append = Append(STREAM, bodies, metered_size(bodies, headers), headers=headers, timestamps=stamps, match_seq_num=7)
    payload = encode_append_input(append)
    assert payload == library_append(append).SerializeToString()
    assert decode_append_input(payload, STREAM) == append
    assert decode_append_input(memoryview(payload), STREAM) == append
    columns = Columns(range(100, 400), range(16_200, 16_500), bodies, headers)
    records = encode_records(columns)
    assert records == library_batch(columns).SerializeToString()
    assert same(decode_records(records), columns)


def test_length_cache_is_bounded() -> None:
    cache = LengthCache(lambda length: b"%d" % length)
    for length in range(10_000):
        assert cache[length] == b"%d" % length
    assert len(cache) <= 4096


# ---- known bytes (S2 fact sheet, 2.7, without the frame's head) ----------------------------------------------

VECTORS = {
    "header": ("0a0c12060a016b1201761a026869", Append(STREAM, [b"hi"], 14, headers={0: (Header(b"k", b"v"),)})),
    "zeros": (
        "0a0608001a02686910001a00",
        Append(STREAM, [b"hi"], 10, timestamps=[0], match_seq_num=0, fencing_token=""),
    ),
    "fence": ("0a0e1207120566656e63651a03746f6b", Append(STREAM, [b"tok"], 18, headers={0: (Header(b"", b"fence"),)})),
    "trim": (
        "0a1212061204" + b"trim".hex() + "1a080000000000000005",
        Append(STREAM, [bytes(7) + b"\5"], 22, headers={0: (Header(b"", b"trim"),)}),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_golden_append_inputs(name: str) -> None:
    payload, append = VECTORS[name]
    assert encode_append_input(append).hex() == payload
    assert decode_append_input(bytes.fromhex(payload), STREAM) == append


def test_golden_answers() -> None:
    ack = Appended(StreamPosition(0, 0), StreamPosition(1, 1000), StreamPosition(1, 1000))
    assert encode_append_ack(ack).hex() == "0a001205080110e8071a05080110e807"
    assert encode_heartbeat(StreamPosition(0, 0)).hex() == "1200"
    assert encode_heartbeat(StreamPosition(3, 1000)).hex() == "1205080310e807"
    batch = RecordBatch(Columns([0], [1000], [b"hi"], {0: (Header(b"k", b"v"),)}))
    assert encode_read_batch(batch).hex() == "0a0f10e8071a060a016b12017622026869"


def with_headers(count: int) -> dict[int, Headers]:
    return {index: (Header(b"trace", b"%08d" % index),) for index in range(count)}


@given(st.data())
def test_no_change_of_a_record_with_a_header_goes_unseen(data: st.DataObject) -> None:
    """Changed bytes are refused, or read as the library reads them."""
    count = data.draw(st.integers(1, 4))
    bodies, times = [b"%03d" % index for index in range(count)], [1000 + index for index in range(count)]
    append = Append(
        STREAM, bodies, 0, headers=with_headers(count), timestamps=data.draw(st.sampled_from([None, times]))
    )
    columns = Columns(range(300, 300 + count), times, bodies, with_headers(count))
    likely = st.sampled_from([0, 1, 8, 10, 0x12, 0x1A, 0x22, 127, 128, 0x92])
    for payload, read in (
        (bytearray(encode_append_input(append)), append_like_the_library),
        (bytearray(encode_records(columns)), records_like_the_library),
    ):
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(payload) - 1))
            change = data.draw(st.sampled_from(["set", "cut", "insert"]))
            if change == "set":
                payload[at] = data.draw(likely | st.integers(0, 255))
            elif change == "cut" and len(payload) > 1:
                del payload[at]
            else:
                payload.insert(at, data.draw(likely))
        read(bytes(payload))


def append_like_the_library(payload: bytes) -> None:
    try:
        expected = s2_pb2.AppendInput.FromString(payload).records
    except DecodeError:
        assert code_of(payload) is FailureCode.BAD_PROTO
        return
    append = decode_append_input(payload, STREAM)
    times = append.timestamps or [None] * len(append.bodies)
    assert times == [record.timestamp if record.HasField("timestamp") else None for record in expected]
    assert append.bodies == [record.body for record in expected]
    assert append.headers == headers_of(expected)
    assert append.metered == metered_size(append.bodies, append.headers)


def records_like_the_library(payload: bytes) -> None:
    try:
        expected = s2_pb2.ReadBatch.FromString(payload).records
    except DecodeError:
        with pytest.raises(OperationFailed):
            decode_records(payload)
        return
    columns = decode_records(payload)
    assert list(columns.seq_nums) == [record.seq_num for record in expected]
    assert columns.timestamps == [record.timestamp for record in expected]
    assert columns.bodies == [record.body for record in expected]
    assert columns.headers == headers_of(expected)


def headers_of(records: Iterable[s2_pb2.AppendRecord | s2_pb2.SequencedRecord]) -> dict[int, Headers]:
    found = {i: tuple(Header(header.name, header.value) for header in r.headers) for i, r in enumerate(records)}
    return {index: headers for index, headers in found.items() if headers}


def test_names_of_any_length_are_not_kept_for_ever() -> None:
    """The memory for names of headers has a bound, and long names are not remembered at all."""
    tracemalloc.start()
    try:
        for number in range(300):
            name = b"%065536d" % number
            append = Append(STREAM, [b"x"], 0, headers={0: (Header(name, b"v"),)})
            assert decode_append_input(encode_append_input(append), STREAM).headers == append.headers
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 << 20


# ---- what is easily missed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "headers"),
    [
        (b"\x0a\x02\x12\x00", {0: (Header(b"", b""),)}),  # one header, wholly empty
        (b"\x0a\x09\x12\x05\x0a\x01k\x12\x00\x12\x00", {0: (Header(b"k", b""), Header(b"", b""))}),
        (b"\x0a\x00\x0a\x05\x12\x03\x0a\x01k", {1: (Header(b"k", b""),)}),
    ],
)
def test_empty_headers_are_seen(payload: bytes, headers: dict[int, Headers]) -> None:
    assert decode_append_input(payload, STREAM).headers == headers


def test_a_header_whose_length_is_spelled_at_length_is_read_as_the_library_reads_it() -> None:
    """Its second byte, and an unknown field behind it, are no part of the value."""
    header = b"\x0a\x01k\x12\x85\x00value" + b"\x7a\x7d" + bytes(125)
    append = b"\x12" + bytes((len(header) & 127 | 128, len(header) >> 7)) + header
    payload = b"\x0a" + bytes((len(append) & 127 | 128, len(append) >> 7)) + append
    append_like_the_library(payload)


def test_one_records_missing_timestamp_does_not_hide_anothers_empty_header() -> None:
    """Both are two bytes, so the size of the whole is that of two timestamps and no header."""
    append_like_the_library(
        s2_pb2.AppendInput(
            records=[{"body": b"x"}, {"timestamp": 5, "headers": [{}], "body": b"x"}]
        ).SerializeToString()
    )
    records_like_the_library(
        s2_pb2.ReadBatch(
            records=[{"seq_num": 1, "body": b"x"}, {"seq_num": 2, "timestamp": 5, "headers": [{}], "body": b"x"}]
        ).SerializeToString()
    )


def test_a_long_name_is_not_taken_for_a_short_one() -> None:
    """Read with a length of one byte, this name would end one byte early, at a byte that looks like the value's tag."""
    header = Header(b"n" * 127 + b"\x12", b"v" * 17)
    append = Append(STREAM, [b"x", b"y"], 0, headers={0: (header,), 1: (header,)})
    assert decode_append_input(encode_append_input(append), STREAM).headers == append.headers


def test_a_record_without_any_field_has_an_empty_body() -> None:
    append = decode_append_input(b"\x0a\x00", STREAM)
    assert (append.bodies, append.metered, append.timestamps) == ([b""], 8, None)


def test_some_timestamps() -> None:
    payload = s2_pb2.AppendInput(records=[{"timestamp": 0}, {"body": b"x"}]).SerializeToString()
    assert decode_append_input(payload, STREAM).timestamps == [0, None]


@given(appends(), st.sampled_from([b"\x78\x05", b"\x7a\x03abc", b"\x79" + bytes(8), b"\x7d" + bytes(4)]))
def test_unknown_fields_are_skipped(append: Append, unknown: bytes) -> None:
    message = library_append(append)
    for record in message.records:
        record.MergeFromString(unknown)
    payload = message.SerializeToString() + unknown
    assert decode_append_input(payload, STREAM) == decode_append_input(encode_append_input(append), STREAM)


def test_the_last_of_a_repeated_single_field_counts() -> None:
    payload = b"\x10\x05\x0a\x06\x1a\x01a\x1a\x01b\x10\x07"
    append = decode_append_input(payload, STREAM)
    assert (append.match_seq_num, append.bodies) == (7, [b"b"])


def test_longer_varints_than_needed_are_read() -> None:
    append = decode_append_input(b"\x0a\x85\x00\x1a\x82\x00hi\x10\x81\x00", STREAM)
    assert (append.bodies, append.match_seq_num, append.timestamps) == ([b"hi"], 1, None)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a",
        b"\x0a\x05\x1a\x02hi",  # length beyond the end
        b"\x1a\x01\xff",  # fencing token is not UTF-8
        b"\x0a\x03\x12\x01\x00",  # a header that is no message
        b"\x0a\x03\x12\x01\x0a",
        b"\x00\x00",  # field number 0
        b"\x10" + b"\xff" * 10,  # varint of more than 64 bits
        b"not protobuf",
    ],
)
def test_undecodable_bytes(payload: bytes) -> None:
    assert code_of(payload) is FailureCode.BAD_PROTO


def assert_read_as_the_library_reads_it(payload: bytes) -> None:
    """Check that the fast decoder and the full schema read the same from any bytes."""
    try:
        message = s2_pb2.AppendInput.FromString(payload)
    except DecodeError:
        assert code_of(payload) is FailureCode.BAD_PROTO
        return
    append = decode_append_input(payload, STREAM)
    message.DiscardUnknownFields()
    assert library_append(append) == message


@given(st.binary(max_size=60))
def test_garbage_is_read_as_the_library_reads_it(payload: bytes) -> None:
    assert_read_as_the_library_reads_it(payload)


@given(appends(), st.data())
def test_near_misses_are_read_as_the_library_reads_them(append: Append, data: st.DataObject) -> None:
    payload = bytearray(encode_append_input(append)[:200])
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert_read_as_the_library_reads_it(bytes(payload))


def test_too_many_records_or_headers_are_refused_before_objects_are_made() -> None:
    for payload in (
        b"\x0a\x00" * 1_000_000,
        s2_pb2.AppendInput(records=[{"headers": [{}] * 600_000}]).SerializeToString(),
    ):
        tracemalloc.start()
        try:
            assert code_of(payload) is FailureCode.INVALID
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


# ---- read batches, as a client -------------------------------------------------------------------------------


def test_heartbeats() -> None:
    assert decode_read_batch(b"\x12\x00") == StreamPosition(0, 0)
    assert decode_read_batch(encode_heartbeat(StreamPosition(7, U64_MAX))) == StreamPosition(7, U64_MAX)


@pytest.mark.parametrize(
    "payload",
    [
        b"",  # neither records nor tail
        b"\x0a\x02\x08\x05\x0a\x02\x08\x07",  # 5, then 7
        b"\x0a\x02\x08\x05\x0a\x02\x08\x05",
        b"\x0a\x03\x1a\x01\x00",
        b"garbage",
    ],
)
def test_batches_that_no_server_sends(payload: bytes) -> None:
    with pytest.raises(OperationFailed) as caught:
        decode_read_batch(payload)
    assert caught.value.failure.code is FailureCode.BAD_PROTO


@pytest.mark.parametrize("missing", ["start", "end", "tail"])
def test_acks_without_a_position(missing: str) -> None:
    ack = s2_pb2.AppendAck(start={}, end={}, tail={})
    ack.ClearField(missing)
    with pytest.raises(OperationFailed, match=missing):
        decode_append_ack(ack.SerializeToString())


def test_a_batch_that_came_in_this_spelling_goes_out_untouched() -> None:
    unknown = b"\x0a\x06\x08\x05\x10\x01\x78\x01"  # a record with a field that we do not know
    batch = decode_read_batch(unknown)
    assert isinstance(batch, RecordBatch) and batch.wire == WireBytes(RECORDS, (unknown,))
    assert encode_read_batch(batch) is unknown
    live = decode_read_batch(unknown + encode_heartbeat(StreamPosition(6, 1)))
    assert isinstance(live, RecordBatch) and live.wire == WireBytes(
        S2_READ_BATCH, (unknown + b"\x12\x04\x08\x06\x10\x01",)
    )
    assert encode_read_batch(live) == unknown + b"\x12\x04\x08\x06\x10\x01"


def test_a_stored_payload_is_sent_without_being_decoded() -> None:
    def decode(payload: bytes, _: RecordId | None) -> Columns:
        raise AssertionError("looked inside")

    wire = WireBytes(RECORDS, (encode_records(Columns(range(5, 7), [1, 1], [b"a", b"b"])),))
    batch = RecordBatch.from_wire(wire, decode, count=2, first_seq_num=5, metered=18, tail=StreamPosition(7, 1))
    assert encode_read_batch(batch) == wire.data + encode_heartbeat(StreamPosition(7, 1))


def test_an_exact_timestamp_is_every_records() -> None:
    append = Append(STREAM, [b"a", b"b"], 18, exact_timestamp=5)
    assert decode_append_input(encode_append_input(append), STREAM).timestamps == [5, 5]


def test_as_many_records_as_a_batch_may_have() -> None:
    most = s2_pb2.AppendInput(records=[s2_pb2.AppendRecord(body=b"x")] * 1000)
    assert decode_append_input(most.SerializeToString(), STREAM).bodies == [b"x"] * 1000
    most.records.add()
    with pytest.raises(OperationFailed, match="must not exceed 1000 records"):
        decode_append_input(most.SerializeToString(), STREAM)
