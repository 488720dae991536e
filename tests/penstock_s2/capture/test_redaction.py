"""S2: secrets in S2S frames, JSON, protobuf and events, compressed or not, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import gzip
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import hpack
import orjson
import pytest
import zstandard
from hyperframe.frame import DataFrame, HeadersFrame, RstStreamFrame, SettingsFrame
from support.captures.redaction import CLIENT, SERVER, Tape, at_every_cut, leaks, redacted

from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.compression import Compression, compress
from penstock.wire.http import PREFACE
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import Frame, FrameReader, Terminal, encode_frame, encode_terminal

HUSH = b"hush-hush-4711"
RULES = RedactionRules(record_headers=(b"x-key", b"\xffk"), patterns=(rb"hush-[a-z]+-[0-9]+", "gehe\u00edm".encode()))
BLANK = b"*" * len(HUSH)


def append(secret: bytes = HUSH, filler: bytes = b"") -> Any:
    message = s2_pb2.AppendInput(match_seq_num=7, fencing_token="ft")
    one = message.records.add(body=b"a " + secret + b" b" + filler, timestamp=5)
    one.headers.add(name=b"x-key", value=secret)
    one.headers.add(name=b"other", value=b"seen")
    message.records.add(body=b"plain")
    message.records.add().headers.add(name=b"\xffk", value=secret)
    return message


def batch(secret: bytes = HUSH, filler: bytes = b"") -> Any:
    message = s2_pb2.ReadBatch()
    for number, record in enumerate(append(secret, filler).records):
        message.records.add(seq_num=number, timestamp=9, headers=record.headers, body=record.body)
    message.tail.seq_num = 3
    return message


def h1(kind: str, body: bytes, *more: str, path: str = "/v1/streams/s/records") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"content-type: {kind}", f"content-length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer(kind: str, body: bytes, *more: str, chunks: int = 0) -> bytes:
    framing = "transfer-encoding: chunked" if chunks else f"content-length: {len(body)}"
    head = "\r\n".join(["HTTP/1.1 200 OK", f"content-type: {kind}", framing, *more]).encode() + b"\r\n\r\n"
    if not chunks:
        return head + body
    pieces = [body[at : at + chunks] for at in range(0, len(body), chunks)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def body_of(data: bytes) -> bytes:
    return data.partition(b"\r\n\r\n")[2]


def joined_chunks(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        out += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return out


def frames_of(data: bytes) -> list[Frame | Terminal]:
    reader = FrameReader()
    reader.feed(data)
    frames = []
    while (frame := reader.next()) is not None:
        frames.append(frame)
    reader.end()
    return frames


# ---- plain ---------------------------------------------------------------------------------------------------


def test_unary_protobuf() -> None:
    said = [
        (CLIENT, h1("application/protobuf", append().SerializeToString())),
        (SERVER, answer("application/protobuf", batch().SerializeToString())),
    ]
    client, server = at_every_cut(said, RULES)
    assert s2_pb2.AppendInput.FromString(body_of(client)) == append(BLANK)
    assert s2_pb2.ReadBatch.FromString(body_of(server)) == batch(BLANK)


def test_s2s_frames_over_chunks_that_end_anywhere() -> None:
    payloads = [batch().SerializeToString(), b"", batch(b"seen").SerializeToString()]
    frames = b"".join(piece for payload in payloads for piece in encode_frame([payload], reconnect_advised=True))
    blanked = batch(b"seen")  # a pattern does not match it, but its header's name does
    for at in (0, 2):
        blanked.records[at].headers[0].value = b"****"
    frames += b"".join(encode_terminal(500, b'{"message":"no %b"}' % HUSH))
    for chunks in (1, 7, 50, 1000):
        said = [(CLIENT, b"GET /x HTTP/1.1\r\n\r\n"), (SERVER, answer("s2s/proto", frames, chunks=chunks))]
        _, server = redacted(said, RULES, cuts=range(0, 9000, 13))
        out = frames_of(joined_chunks(body_of(server)))
        assert [s2_pb2.ReadBatch.FromString(bytes(f.payload)) for f in out if isinstance(f, Frame)] == [
            batch(BLANK),
            s2_pb2.ReadBatch(),
            blanked,
        ]
        assert out[-1] == Terminal(500, b'{"message":"no %b"}' % BLANK)
        assert not leaks(server, HUSH)


@pytest.mark.parametrize("base64", [False, True])
def test_json(base64: bool) -> None:
    def spell(data: bytes) -> str:
        return b64encode(data).decode() if base64 else data.decode()

    def document(secret: bytes) -> bytes:
        headers = [[spell(b"x-key"), spell(secret)], [spell(b"o"), spell(b"seen")]]
        records = [
            {"headers": headers, "body": spell(secret)},
            {"body": spell(b"a" + secret)},
            {"body": spell(b"ab" + secret + b"\xc3\xad"), "timestamp": 12},
            {"headers": [[spell(b""), spell(b"fence")]], "body": spell(b"abc" + secret)},
        ]
        return orjson.dumps({"records": records, "match_seq_num": 5})

    more = ["s2-format: base64"] if base64 else []
    said = [
        (CLIENT, h1("application/json", document(HUSH), *more)),
        (SERVER, answer("application/json; charset=utf-8", document(HUSH), chunks=11)),
    ]
    client, server = at_every_cut(said, RULES)
    assert body_of(client) == document(BLANK)
    assert joined_chunks(body_of(server)) == document(BLANK)
    assert not leaks(client + server, HUSH)


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        (rb'{"body":"a \u0068ush-hus\u0068-4711\n"}', rb'{"body":"a ************************\n"}'),
        (rb'{"body":"\"hush-x-1\""}', rb'{"body":"\"********\""}'),
        (rb'["x-key" , "a\\\"b"]', rb'["x-key" , "******"]'),
        (rb'["x-\u006bey","a"]', rb'["x-\u006bey","*"]'),
        (rb'{"x-key":"a","y":["x-key"]}', rb'{"x-key":"*","y":["x-key"]}'),
        ('"gehe\u00edm gehe\\u00edm"'.encode(), b'"******* ***********"'),
        (b'"open hush-x-1', b'"open ********'),
        (b"no JSON hush-x-1 null", b"no JSON ******** null"),
    ],
)
def test_json_strings_however_they_are_spelled(text: bytes, blanked: bytes) -> None:
    client, _ = at_every_cut([(CLIENT, h1("application/json", text))], RULES)
    assert body_of(client) == blanked


def test_matches_in_the_document_itself_leave_it_json() -> None:
    rules = RedactionRules(patterns=(rb'"card": ?"[^"]*"', rb"[0-9]{4,}", rb'[}"\]],'))
    text = b'{"card":"4711 0815","n":-12345.25e3,"short":[1,22],"x":"y"}'
    client, _ = at_every_cut([(CLIENT, h1("application/json", text))], rules)
    assert body_of(client) == b'{"****":"*********","n":-11111.25e3,"short":[1,22],"x":"y"}'


def test_base64_that_is_matched_as_it_stands_stays_base64() -> None:
    rules = RedactionRules(patterns=(rb"[A-Za-z0-9]{16}",))
    text = b'{"body":"%b"}' % b64encode(bytes(range(40)))
    client, _ = redacted([(CLIENT, h1("application/json", text, "s2-format: base64"))], rules)
    b64decode(orjson.loads(body_of(client))["body"], validate=True)


def test_events() -> None:
    def events(secret: bytes) -> bytes:
        record = {"seq_num": 1, "headers": [["x-key", secret.decode()]], "body": "x" + secret.decode()}
        events = b": hi\n\nevent: batch\nid: 1,1,1\ndata: %b\n\ndata: [DONE]\r\n\r\nevent: error\ndata: %b"
        return events % (orjson.dumps({"records": [record]}), secret)

    said = [
        (CLIENT, b"GET /x HTTP/1.1\r\n\r\n"),
        (SERVER, answer("text/event-stream", events(HUSH), chunks=20)),
    ]
    _, server = at_every_cut(said, RedactionRules(record_headers=(b"x-key",), patterns=RULES.patterns))
    out = joined_chunks(body_of(server))
    assert out == events(BLANK)


def test_an_event_goes_on_as_soon_as_it_is_complete() -> None:
    tape = Tape(RULES)
    tape.say(CLIENT, b"GET /x HTTP/1.1\r\n\r\n")
    tape.say(SERVER, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    tape.say(SERVER, b'data: {"body":"hush-x-1"}\n')
    before = len(tape.out[SERVER])
    tape.say(SERVER, b"\n")
    assert tape.out[SERVER][before:] == b'data: {"body":"********"}\n\n'


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_other_bodies_are_searched_as_they_come(kind: str) -> None:
    text = b"say " + HUSH + b" and hush-a-1" + b"." * 60 + HUSH
    said = [(CLIENT, h1(kind, text)), (SERVER, answer(kind, text, chunks=9))]
    client, server = at_every_cut(said, RedactionRules(patterns=RULES.patterns, longest_match=20))
    wanted = text.replace(HUSH, BLANK).replace(b"hush-a-1", b"*" * 8)
    assert body_of(client) == joined_chunks(body_of(server)) == wanted


def test_json_under_another_name() -> None:
    text = b' {"records":[{"headers":[["x-key","seen"]],"body":"%b"}]}' % b64encode(HUSH)
    client, _ = at_every_cut([(CLIENT, h1("application/x-www-form-urlencoded", text))], RULES)
    assert body_of(client) == text.replace(b"seen", b"****").replace(b64encode(HUSH), b64encode(BLANK))


# ---- access tokens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
def test_the_answer_that_issues_an_access_token(coding: str | None) -> None:
    text = b'{"access_token": "%b"}' % HUSH
    packed = {None: text, "gzip": gzip.compress(text), "zstd": zstandard.compress(text)}[coding]
    more = [] if coding is None else [f"content-encoding: {coding}"]
    said = [
        (CLIENT, h1("application/json", b'{"id":"access_token"}', path="/v1/access-tokens")),
        (SERVER, answer("application/json", packed, *more)),
        (CLIENT, h1("application/json", b"{}", path="/v1/streams")),
        (SERVER, answer("application/json", b'{"access_token":"seen"}')),
    ]
    client, server = at_every_cut(said)
    assert client == said[0][1] + said[2][1]
    assert not leaks(server, HUSH)
    assert b"seen" in server
    if coding is None:
        assert b'{"access_token": "%b"}' % BLANK in server


def test_the_same_in_protobuf() -> None:
    message = b"\x0a%c%b" % (len(HUSH), HUSH)
    said = [
        (CLIENT, h1("application/protobuf", b"", path="/v1/access-tokens?x=1")),
        (SERVER, answer("application/protobuf", message)),
    ]
    assert body_of(at_every_cut(said)[1]) == message.replace(HUSH, BLANK)


# ---- compressed ----------------------------------------------------------------------------------------------

FILLER = b"".join(b"%d %x;" % (n * n, n) for n in range(700))


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.GZIP])
def test_compressed_frames_keep_their_length_and_their_records(compression: Compression) -> None:
    payload = compress(compression, append(HUSH, FILLER).SerializeToString())
    seen = compress(compression, append(b"seen", FILLER).SerializeToString())
    frames = b"".join(encode_frame([payload], compression) + encode_frame([seen], compression))
    client, _ = redacted([(CLIENT, h1("s2s/proto", frames))], RULES, cuts=range(0, 9000, 77))
    out = frames_of(body_of(client))
    assert s2_pb2.AppendInput.FromString(bytes(out[0].payload)) == append(BLANK, FILLER)  # type: ignore[union-attr]
    assert s2_pb2.AppendInput.FromString(bytes(out[1].payload)).records[0].body.startswith(b"a seen")  # type: ignore[union-attr]
    assert not leaks(client, HUSH)


@pytest.mark.parametrize("make", [lambda c: zlib.compress(c, 9, 31), lambda c: zstandard.compress(c, 22)])
def test_what_cannot_be_packed_again_is_emptied(make: Callable[[bytes], bytes]) -> None:
    text = HUSH + bytes(3000)
    coding = "zstd" if make(b"")[:2] == b"\x28\xb5" else "gzip"
    client, _ = redacted([(CLIENT, h1("application/json", make(text), f"content-encoding: {coding}"))], RULES)
    out = body_of(client)
    assert len(out) == len(make(text))
    assert not leaks(client, HUSH)


def test_what_cannot_be_looked_into_is_blanked() -> None:
    for more, body in (("content-encoding: br", b"brotli"), ("content-encoding: gzip", b"damaged")):
        client, _ = at_every_cut([(CLIENT, h1("application/json", body, more))], RULES)
        assert body_of(client) == b"*" * len(body)
        client, _ = at_every_cut([(CLIENT, h1("application/json", body, more))])
        assert body_of(client) == body


# ---- HTTP/2 --------------------------------------------------------------------------------------------------


def test_bodies_over_http2_whose_frames_end_anywhere() -> None:
    encoder = hpack.Encoder()
    out = PREFACE + SettingsFrame(0).serialize()
    bodies = {
        1: (b"application/json", b'{"records":[{"body":"%b"}]}' % HUSH),
        3: (b"s2s/proto", b"".join(encode_frame([append().SerializeToString()]))),
    }
    for stream, (kind, _) in bodies.items():
        head = [(":method", "POST"), (":path", "/v1"), ("content-type", kind)]
        out += HeadersFrame(stream, encoder.encode(head), flags=["END_HEADERS"]).serialize()
    longest = max(len(body) for _, body in bodies.values())
    for at in range(0, longest, 5):
        for stream, (_, body) in bodies.items():
            flags = ["PADDED"] + (["END_STREAM"] if at < len(body) <= at + 5 else [])
            if at < len(body):
                out += DataFrame(stream, body[at : at + 5], flags=flags, pad_length=3).serialize()
    for cuts in ([], range(len(out)), range(0, len(out), 17)):
        client, _ = redacted([(CLIENT, out)], RULES, cuts=cuts)
        data = dict.fromkeys(bodies, b"")
        at = len(PREFACE)
        while at < len(client):
            size, kind, stream = int.from_bytes(client[at : at + 3], "big"), client[at + 3], client[at + 8]
            if kind == 0:
                data[stream] += client[at + 10 : at + 9 + size - 3]
            at += 9 + size
        assert data[1] == bodies[1][1].replace(HUSH, BLANK)
        assert s2_pb2.AppendInput.FromString(bytes(frames_of(data[3])[0].payload)) == append(BLANK)  # type: ignore[union-attr]


def test_a_stream_that_is_reset_holds_nothing_back() -> None:
    tape = Tape(RULES)
    encoder = hpack.Encoder()
    head = [(":method", "POST"), (":path", "/v1"), ("content-type", "application/json")]
    tape.say(CLIENT, PREFACE + HeadersFrame(1, encoder.encode(head), flags=["END_HEADERS"]).serialize())
    tape.say(CLIENT, DataFrame(1, b'{"body":"hush-x').serialize())
    assert tape.redactor.held
    tape.say(SERVER, SettingsFrame(0).serialize() + RstStreamFrame(1, 8).serialize())
    assert not tape.redactor.held
    tape.say(CLIENT, DataFrame(1, b'-4711"}').serialize())
    client, _ = tape.close()
    assert b"hush" not in client
    assert b"4711" not in client
