"""Recordings that begin in mid-connection: bytes that cannot be judged are blanked; parsing starts early."""

from __future__ import annotations

from uuid import UUID

import hpack
import pytest
from hyperframe.frame import DataFrame, HeadersFrame
from support.captures.redaction import CLIENT, SERVER, leaks, redacted

from penstock.capture.redaction.rules import RedactionRules
from penstock.model.envelope import wrap
from penstock.model.records import Header
from penstock.wire.compression import Compression, compress
from penstock_pravega.codec import SegmentMessage, draft, encode, released
from penstock_proto import pravega_controller_pb2, s2_pb2
from penstock_s2.codec.s2s.frames import Frame, FrameReader, encode_frame

HUSH = b"hush-hush-4711"
BLANK = b"*" * len(HUSH)
RULES = RedactionRules(record_headers=(b"x-key",), patterns=(rb"hush-[a-z]+-[0-9]+",))


def wire(*messages: SegmentMessage) -> bytes:
    return b"".join(piece for message in messages for piece in encode(message))


def batch(secret: bytes, filler: bytes = b"") -> bytes:
    message = s2_pb2.ReadBatch()
    record = message.records.add(body=b"a " + secret + filler)
    record.headers.add(name=b"x-key", value=b"seen" if secret is HUSH else b"****")
    return message.SerializeToString()


def test_segment_messages_are_found_where_a_chunk_begins_with_one() -> None:
    rest = b"rest of an event " + HUSH
    read = [released.ReadSegment("s/t/0", at, 100, "hush", at) for at in (1, 2)]
    said = [(CLIENT, rest), (CLIENT, wire(*read)), (CLIENT, wire(read[0]))]
    client, _ = redacted(said, protocol="segment", start=5000)
    blanked = [released.ReadSegment("s/t/0", at, 100, "****", at) for at in (1, 2)]
    assert client == b"*" * len(rest) + wire(*blanked) + wire(blanked[0])


def test_segment_replies_have_no_tokens() -> None:
    rest = b"rest of an event " + HUSH
    said = [(SERVER, rest), (SERVER, wire(released.SegmentSealed(1, "s/t/0")))]
    assert redacted(said, protocol="segment", start=5000)[1] == b"".join(data for _, data in said)
    _, server = redacted(said, RULES, protocol="segment", start=5000)
    assert server == b"*" * len(rest) + said[1][1]


def test_messages_of_the_draft() -> None:
    said = [(CLIENT, wire(draft.EndAppendBlock(UUID(int=1), 3, 4), released.SealSegment(1, "s/t/0", "hush")))]
    client, _ = redacted(said, protocol="segment", start=5000)
    assert client == said[0][1].replace(b"hush", b"****")


def test_s3p() -> None:
    body = wrap((Header(b"x-key", b"value"),), HUSH)
    said = [
        (CLIENT, b"rest " + HUSH + b" and " + body[:40] + b"\r\n"),
        (CLIENT, b"$%d\r\n%b\r\n" % (len(body), body)),
    ]
    client, _ = redacted(said, RULES, protocol="s3p", start=5000)
    assert client.startswith(b"rest " + BLANK + b" and ")
    assert client.endswith(b"$%d\r\n%b\r\n" % (len(body), body.replace(HUSH, BLANK).replace(b"value", b"*****")))
    assert b"value" not in client


@pytest.mark.parametrize("name", [b"x-key", b"x" * 300])
def test_record_headers_where_nothing_is_understood(name: bytes) -> None:
    rules = RedactionRules(record_headers=(name,))
    value = b"a value" * 30
    body = wrap((Header(name, value), Header(b"o", b"seen")), b"body")
    for cuts in ([], range(2000)):
        client, _ = redacted([(CLIENT, b"rest " + body + b'["%b", "hush"]' % name)], rules, "s3p", cuts, 5000)
        assert client == b"rest " + body.replace(value, b"*" * len(value)) + b'["%b", "****"]' % name


@pytest.mark.parametrize("compression", Compression)
def test_a_session_that_goes_on_over_http2(compression: Compression) -> None:
    filler = b"".join(b";%d" % (number * number) for number in range(900))
    payload = compress(compression, batch(HUSH, filler))
    frame = b"".join(encode_frame([payload], compression))
    later = [DataFrame(1, frame[at : at + 2000]).serialize() for at in range(0, len(frame), 2000)]
    rest = DataFrame(1, b"\x00rest of a frame" + HUSH).serialize()
    said = [(SERVER, rest)] + [(SERVER, data) for data in later * 2]
    _, server = redacted(said, RULES, start=5000)
    assert server[:9] == rest[:9]
    assert set(server[9 : len(rest)]) == set(b"*")
    assert not leaks(server, HUSH)
    if compression is Compression.NONE:
        found = server[len(rest) + 9 :][:100]
        assert found == (frame[:4] + batch(BLANK, filler))[:100]


@pytest.mark.parametrize("compression", Compression)
def test_heads_that_refer_to_what_was_said_before(compression: Compression) -> None:
    encoder = hpack.Encoder()
    head = [(":status", "200"), ("content-type", "s2s/proto"), ("x", "y")]
    encoder.encode(head)
    filler = b"".join(b";%d" % (number * number) for number in range(900))
    frame = b"".join(encode_frame([compress(compression, batch(HUSH, filler))], compression))
    out = HeadersFrame(3, encoder.encode(head), flags=["END_HEADERS"]).serialize()
    body = DataFrame(3, frame + frame).serialize()
    trailers = HeadersFrame(3, encoder.encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"]).serialize()
    _, server = redacted([(SERVER, out), (SERVER, body), (SERVER, trailers)], RULES, start=5000)
    assert not leaks(server, HUSH)
    reader = FrameReader()
    reader.feed(server[len(out) + 9 : -len(trailers)])
    for _ in range(2):
        found = reader.next()
        assert isinstance(found, Frame)
        assert bytes(found.payload) == batch(BLANK, filler)
    assert server.endswith(trailers)


def test_json_behind_a_head_that_refers_to_what_was_said_before() -> None:
    encoder = hpack.Encoder()
    head = [(":method", "POST"), (":path", "/v1/access-tokens"), ("content-type", "application/json")]
    encoder.encode(head)
    out = HeadersFrame(3, encoder.encode(head), flags=["END_HEADERS"]).serialize()
    body = DataFrame(3, b'{"records":[{"body":"%b"}]}' % HUSH, flags=["END_STREAM"]).serialize()
    answer = HeadersFrame(3, hpack.Encoder().encode([(":status", "201")]), flags=["END_HEADERS"]).serialize()
    token = DataFrame(3, b'{"access_token":"hush"}', flags=["END_STREAM"]).serialize()
    for rules in (RULES, None):
        client, server = redacted([(CLIENT, out), (CLIENT, body), (SERVER, answer + token)], rules, start=5000)
        assert client == out + (body if rules is None else body.replace(HUSH, BLANK))
        assert server == answer + token.replace(b"hush", b"****")


def test_events_that_go_on_over_http2() -> None:
    said = [(SERVER, DataFrame(1, b'event: batch\ndata: {"body":"%b"}\n\n' % HUSH).serialize()) for _ in range(2)]
    _, server = redacted(said, RULES, start=5000)
    assert server == b"".join(data for _, data in said).replace(HUSH, BLANK)


def test_http1_before_its_first_head_is_blanked_where_bodies_are_looked_into() -> None:
    head = b"GET / HTTP/1.1\r\ncookie: hush\r\n\r\n"
    client, _ = redacted([(CLIENT, b"rest of a body"), (CLIENT, head)], RULES, start=5000)
    assert client == b"*" * 14 + head.replace(b"hush", b"****")


def test_an_access_token_on_its_way() -> None:
    _, server = redacted(
        [(SERVER, DataFrame(1, b'{"access_token":"hush"}', flags=["END_STREAM"]).serialize())], start=5000
    )
    assert server.endswith(b'{"access_token":"****"}')


def test_answers_of_the_controller_on_their_way() -> None:
    message = pravega_controller_pb2.DelegationToken(delegationToken="hush").SerializeToString()
    body = DataFrame(1, b"\0" + len(message).to_bytes(4, "big") + message).serialize()
    head = HeadersFrame(3, hpack.Encoder().encode([(":status", "200")]), flags=["END_HEADERS"]).serialize()
    for said in ([(SERVER, body), (SERVER, head)], [(SERVER, b"rest" + body), (SERVER, head)]):
        _, server = redacted(said, protocol="controller", start=5000)
        assert b"hush" not in server
        assert server.endswith(head)
