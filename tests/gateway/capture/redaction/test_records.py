"""Any records, in every protocol: those with a secret have it blanked, the others are the same, and nothing leaks."""

from __future__ import annotations

from base64 import b64decode, b64encode
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures.redaction import CLIENT, leaks, redacted

from penstock.capture.redaction.rules import RedactionRules
from penstock.model.envelope import unwrap, wrap
from penstock.model.records import Header
from penstock.wire.compression import Compression, compress
from penstock_pravega.codec import SegmentServer, append_messages, encode, released, split_events
from penstock_pravega.codec.appends import BlockAppended
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import Frame, FrameReader, encode_frame
from penstock_s3p.codec import AppendRecords, S3PServer
from penstock_s3p.codec.encoding import encode_command

SECRET = b"hush-4711-hush-0815"
BLANK = b"*" * len(SECRET)
RULES = RedactionRules(patterns=(rb"hush-[0-9]{4}-hush-[0-9]{4}",), record_headers=(b"key",))
HEADERS = (Header(b"key", SECRET[:-1]), Header(b"other", b"seen"))
BLANKED = (Header(b"key", BLANK[:-1]), Header(b"other", b"seen"))

around = st.binary(max_size=30) | st.integers(0, 3000).map(lambda size: b"%d;" % size * (size // 4))
bodies = st.lists(st.lists(around, min_size=1, max_size=3).map(SECRET.join), min_size=1, max_size=5)
cuts = st.lists(st.integers(1, 6000), max_size=8)


def blanked(bodies: list[bytes]) -> list[bytes]:
    return [body.replace(SECRET, BLANK) for body in bodies]


def posted(kind: bytes, body: bytes, more: bytes = b"") -> bytes:
    head = b"POST /v1/streams/s/records HTTP/1.1\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n"
    return head % (kind, more, len(body)) + body


@pytest.mark.parametrize("compression", Compression)
@given(bodies=bodies, places=cuts)
def test_s2s(compression: Compression, bodies: list[bytes], places: list[int]) -> None:
    message = s2_pb2.AppendInput()
    for body in bodies:
        record = message.records.add(body=body)
        for name, value in HEADERS:
            record.headers.add(name=name, value=value)
    payload = compress(compression, message.SerializeToString())
    frames = b"".join(encode_frame([payload], compression))
    client, _ = redacted([(CLIENT, posted(b"s2s/proto", frames))], RULES, cuts=places)
    reader = FrameReader()
    reader.feed(client.partition(b"\r\n\r\n")[2])
    frame = reader.next()
    assert isinstance(frame, Frame)
    found = s2_pb2.AppendInput.FromString(bytes(frame.payload))
    # What does not fit into the same number of bytes any more holds nothing.
    if found.records or compression is Compression.NONE:
        assert [record.body for record in found.records] == blanked(bodies)
        for record in found.records:
            assert tuple((header.name, header.value) for header in record.headers) == BLANKED
    assert not leaks(client, SECRET[:-1])


@given(bodies=bodies, places=cuts)
def test_json(bodies: list[bytes], places: list[int]) -> None:
    def document(bodies: list[bytes], headers: tuple[Header, ...]) -> bytes:
        pairs = [[b64encode(part).decode() for part in header] for header in headers]
        return orjson.dumps({"records": [{"headers": pairs, "body": b64encode(body).decode()} for body in bodies]})

    text = document(bodies, HEADERS)
    client, _ = redacted([(CLIENT, posted(b"application/json", text, b"s2-format: base64\r\n"))], RULES, cuts=places)
    found = orjson.loads(client.partition(b"\r\n\r\n")[2])
    assert [b64decode(record["body"]) for record in found["records"]] == blanked(bodies)
    assert client.endswith(document(blanked(bodies), BLANKED))
    assert not leaks(client, SECRET[:-1])


@given(bodies=bodies, places=cuts)
def test_s3p(bodies: list[bytes], places: list[int]) -> None:
    given = [wrap(HEADERS, body) if number % 2 else body or b"x" for number, body in enumerate(bodies)]
    client, _ = redacted([(CLIENT, b"".join(encode_command(AppendRecords(b"s", given))))], RULES, "s3p", places)
    server = S3PServer()
    server.receive(client)
    event = server.next_event()
    assert isinstance(event, AppendRecords)
    for number, body in enumerate(event.bodies):
        if number % 2:
            assert unwrap(body) == (BLANKED, *blanked([bodies[number]]))
        else:
            assert [body] == blanked([given[number]])
    assert not leaks(client, SECRET[:-1])


@given(bodies=bodies, places=cuts, block=st.none() | st.integers(1, 20_000))
def test_events(bodies: list[bytes], places: list[int], block: int | None) -> None:
    given = [wrap(HEADERS, body) if number % 2 else body for number, body in enumerate(bodies)]
    writer = UUID(int=1)
    messages = [
        released.Hello(16, 5),
        released.SetupAppend(1, writer, "s/t/0", "a token"),
        *(message for event in given for message in append_messages(writer, [event], 1, 1, block_size=block)),
    ]
    data = b"".join(piece for message in messages for piece in encode(message))
    client, _ = redacted([(CLIENT, data)], RULES, "segment", places)
    server = SegmentServer(observer=True)
    server.receive(client)
    found: list[bytes] = []
    while (event := server.next_event()).__class__ in (released.Hello, released.SetupAppend, BlockAppended):
        if isinstance(event, BlockAppended):
            found += split_events(event.data)
        if isinstance(event, released.SetupAppend):
            assert event.delegation_token == "*******"
    wanted = [wrap(BLANKED, body) if number % 2 else body for number, body in enumerate(blanked(bodies))]
    assert found == wanted
    assert not leaks(client, SECRET[:-1])
