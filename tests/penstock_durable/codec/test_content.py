"""The content of streams as records: what was encoded is read again, however responses are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.record_bytes import varint
from penstock.model.records import Header, Headers
from penstock_durable.codec import (
    RECORDS_TYPE,
    ContentReader,
    MessageContent,
    RecordContent,
    StreamContent,
    content_of,
)
from penstock_durable.codec.messages import MAX_MESSAGE_BYTES
from penstock_durable.codec.records import MAX_ENCODED_RECORD_BYTES
from penstock_proto import s2_pb2

Record = tuple[bytes, Headers]

HEADERS = st.lists(st.builds(Header, st.binary(min_size=1, max_size=9), st.binary(max_size=9)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(st.binary(max_size=300), st.just(()) | HEADERS), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["]", "[", '"', "\\", "},{", ","]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
MESSAGES = st.lists(
    st.tuples(VALUES.map(lambda value: json.dumps(value).encode()), st.just(())), min_size=1, max_size=12
)


def joined(content: StreamContent, batches: list[list[Record]]) -> bytes:
    """Return the body of a POST of several batches."""
    parts = []
    for batch in batches:
        headers = {index: some for index, (_, some) in enumerate(batch) if some}
        parts.append(content.encode([body for body, _ in batch], headers))
    return content.join(parts)


def taken(reader: ContentReader, max_records: int = 1000, max_bytes: int = 1 << 20) -> tuple[list[Record], int]:
    """Return what a reader has, taken bit by bit, and how far it moved the position on."""
    found: list[Record] = []
    moved = 0
    while (some := reader.take(max_records, max_bytes)).bodies:
        found += [(body, some.headers.get(index, ())) for index, body in enumerate(some.bodies)]
        moved += sum(some.lengths)
        assert len(some.bodies) <= max_records
    return found, moved


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut bytes at these places."""
    ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(ends)]


def check(content: StreamContent, batches: list[list[Record]], cuts: list[int], count: int, size: int) -> None:
    data, reader, found, moved = joined(content, batches), content.reader(), [], 0
    for piece in pieces(data, cuts):
        reader.receive(piece)
        some, further = taken(reader, count, size)
        found += some
        moved += further
    reader.end_response()
    assert found == [record for batch in batches for record in batch]
    assert reader.buffered == 0
    assert moved == (len(data) if isinstance(content, RecordContent) else len(found))


CUTS = st.lists(st.integers(0, 5000), max_size=8)
BOUND = st.sampled_from([1, 100, 1 << 20])


@given(st.lists(RECORDS, min_size=1, max_size=3), CUTS, st.integers(1, 5), BOUND)
def test_records(batches: list[list[Record]], cuts: list[int], count: int, size: int) -> None:
    check(RecordContent(), batches, cuts, count, size)


@given(st.lists(MESSAGES, min_size=1, max_size=3), CUTS, st.integers(1, 5), BOUND)
def test_messages(batches: list[list[Record]], cuts: list[int], count: int, size: int) -> None:
    check(MessageContent(), batches, cuts, count, size)


@given(st.lists(RECORDS, min_size=2, max_size=4), st.data())
def test_reading_begins_again_at_a_record(batches: list[list[Record]], data: st.DataObject) -> None:
    """`skip` stops where a record begins, and the records behind it are the same as when all are read."""
    content, records = RecordContent(), [record for batch in batches for record in batch]
    whole = content.reader()
    whole.receive(joined(content, batches))
    lengths = whole.take(1000, 1 << 30).lengths
    index = data.draw(st.integers(0, len(records)))
    reader, position = content.reader(), 0
    for piece in pieces(joined(content, batches), data.draw(CUTS)):
        reader.receive(piece)
        position += reader.skip(sum(lengths[:index]) - position)
    assert position == sum(lengths[:index])
    assert taken(reader)[0] == records[index:]


def test_messages_are_skipped() -> None:
    reader = MessageContent().reader()
    reader.receive(b"[1,2,3,")
    assert (reader.skip(2), reader.buffered) == (2, 1)
    assert reader.skip(7) == 1


@given(RECORDS)
def test_the_stream_is_one_message_of_protobuf(records: list[Record]) -> None:
    content = RecordContent()
    message = s2_pb2.AppendInput.FromString(joined(content, [records]) + joined(content, [records]))
    assert [record.body for record in message.records] == [body for body, _ in records * 2]


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_each_response_is_an_array_of_its_own(responses: list[list[Record]]) -> None:
    reader = MessageContent().reader()
    for messages in responses:
        reader.receive(joined(MessageContent(), [messages]))
        reader.end_response()
        reader.receive(b" [ ] ")
        reader.end_response()
        reader.end_response()  # a response without a body
    assert taken(reader)[0] == [record for messages in responses for record in messages]


def test_a_record_is_cut_between_responses() -> None:
    reader, data = RecordContent().reader(), RecordContent().encode([b"first", b"second"], {})
    for piece in (data[:3], data[3:12], data[12:]):
        reader.receive(piece)
        reader.end_response()
    assert taken(reader)[0] == [(b"first", ()), (b"second", ())]


@pytest.mark.parametrize(
    "answer",
    [
        b"1",
        b'{"a": 1}',
        b'"["',
        b"x[1]",
        b"[1] 2",
        b"[1]]",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[tru]",
        b"[1}",
        b'["\xff"]',
        b"[[}]",
    ],
)
def test_answers_that_are_not_arrays_of_json(answer: bytes) -> None:
    reader = MessageContent().reader()
    with pytest.raises(RemoteProtocolError):
        reader.receive(answer)
        reader.end_response()


def test_an_answer_that_ends_within_its_array() -> None:
    reader = MessageContent().reader()
    reader.receive(b"[1, 2")
    with pytest.raises(RemoteProtocolError, match="ends within its array"):
        reader.end_response()


def test_a_message_that_never_ends_is_not_held() -> None:
    reader = MessageContent().reader()
    reader.receive(b'["')
    with pytest.raises(RemoteProtocolError, match="a message of more than"):
        for _ in range(MAX_MESSAGE_BYTES // 65536 + 1):
            reader.receive(b"x" * 65536)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"event: data", "byte 0x65"),
        (b"\x0a" + varint(MAX_ENCODED_RECORD_BYTES + 1), "a record of more than"),
        (b"\x0a\xff\xff\xff\xff\x01", "a record of more than"),
        (b"\x0a\x02\x1a\x05", "not records"),
    ],
)
def test_content_that_is_no_records(content: bytes, why: str) -> None:
    reader = RecordContent().reader()
    reader.receive(content)
    with pytest.raises(RemoteProtocolError, match=why):
        reader.take(10, 100)


def test_a_position_inside_a_record_is_noticed() -> None:
    reader = RecordContent().reader()
    reader.receive(RecordContent().encode([b"first", b"second"], {}))
    with pytest.raises(RemoteProtocolError, match="no record begins"):
        reader.skip(3)


@pytest.mark.parametrize(
    ("bodies", "headers", "why"),
    [
        ([b"1", b"not JSON"], {}, "record 2 of the batch is not JSON"),
        ([b""], {}, "record 1 of the batch is not JSON"),
        ([b"1"], {0: (Header(b"k", b"v"),)}, "record 1 of the batch has headers"),
    ],
)
def test_records_that_are_no_messages(bodies: list[bytes], headers: dict[int, Headers], why: str) -> None:
    with pytest.raises(OperationFailed, match=why.replace("(", r"\(")) as caught:
        MessageContent().encode(bodies, headers)
    assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


def test_which_streams_consist_of_records() -> None:
    assert isinstance(content_of(f"{RECORDS_TYPE}; v=1"), RecordContent)
    assert isinstance(content_of("Application/JSON"), MessageContent)
    assert isinstance(content_of("application/geo+json"), MessageContent)
    assert content_of("text/plain") is None
