"""Secrets in unlikely places: in odd spellings, in parts that parsers skip, and behind protocol errors."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode, urlsafe_b64encode
from typing import Any, cast

import hpack
import pytest
import zstandard
from hyperframe.frame import ContinuationFrame, HeadersFrame, SettingsFrame
from support.captures.redaction import CLIENT, SERVER, at_every_cut, leaks, redacted

from penstock.capture.plugin import plugins
from penstock.capture.redaction import contents
from penstock.capture.redaction.rules import RedactionRules
from penstock.capture.redaction.triggers import TriggerSearch
from penstock.wire.compression import Compression, decompress
from penstock.wire.http import PREFACE
from penstock_pravega.codec import draft, encode, released
from penstock_proto import s2_pb2

HUSH = b"hush-hush-4711"
RULES = RedactionRules(patterns=(rb"hush-[a-z]+-[0-9]+",), record_headers=(b"x-key",))
GET = b"GET / HTTP/1.1\r\n"


def post(body: bytes, kind: bytes = b"application/json", more: bytes = b"") -> bytes:
    head = b"POST /v1/x HTTP/1.1\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n"
    return head % (kind, more, len(body)) + body


@pytest.mark.parametrize(
    "said",
    [
        GET + b" Authorization: hush\r\n\r\n",
        GET + b"Authorization:\r\n hush",
        GET + b"Authorization: x\r\n hush\rhush\r\n\r\n",
        GET + b"Authorization: hush\rhush\r\n\r\n",
        GET + b"Authorization: x\r\n hush" + b"a" * 70_000 + b"hush\r\n\r\n",
        GET + b"x: y\r\n" * 999 + b"Authorization: x\r\n hush\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\r\nauthorization: hush\r\n\r\n",
        GET + b"referer: http://me:p@hush@host/\r\n\r\n",
        b"CONNECT me:hush@host:443 HTTP/1.1\r\n\r\n",
        b"GET /?token=a hush HTTP/1.1\r\n\r\n",
        GET + b"\r\nauthorization :hush\r\n",
        GET + b"no colon\r\nreferer: http://a:hush@b/\r\n",
        GET + b"no colon\r\nreferer: http://b/?n=1&T%6fk%45n=hush\r\n",
        GET + b"no colon\r\nHost: me:hush@b\r\n",
        b"CONNECT me:hush@b:443\r\n\r\n",
    ],
)
def test_heads_that_break_rules(said: bytes) -> None:
    for cuts in ((), range(min(len(said), 900))):
        assert b"hush" not in redacted([(CLIENT, said)], cuts=cuts)[0]


@pytest.mark.parametrize("protocol", plugins())
def test_what_is_spoken_is_not_what_was_expected(protocol: str) -> None:
    http = b"GET /?token=hush HTTP/1.1\r\nAuthorization: hush\r\n\r\n"
    messages = (released.Hello(16, 5), released.ReadSegment("s/t/0", 1, 100, "hush", 1))
    segment = b"".join(piece for message in messages for piece in encode(message))
    frames = PREFACE + SettingsFrame(0).serialize() + head_of([("authorization", "hush")], 1)
    for said in (http, segment, frames):
        assert b"hush" not in at_every_cut([(CLIENT, said)], protocol=protocol)[0]


def head_of(head: list[tuple[str, str]], stream: int, encoder: hpack.Encoder | None = None) -> bytes:
    block = (encoder or hpack.Encoder()).encode(head, huffman=False)
    return HeadersFrame(stream, block, flags=["END_HEADERS"]).serialize()


def test_answers_that_belong_to_other_requests_than_it_seems() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nset-cookie: hush\r\n\r\n"
    said = [(CLIENT, b"HEAD / HTTP/1.1\r\n\r\n" * 60 + (GET + b"\r\n") * 9_999), (SERVER, answer % 50 * 60)]
    assert b"hush" not in redacted(said)[1]
    early = [
        (CLIENT, b"G"),
        (SERVER, answer % 0),
        (CLIENT, GET[1:] + b"\r\nHEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        (SERVER, answer % 0 + answer % 50 + answer % 0),
    ]
    assert b"hush" not in redacted(early)[1]


def test_matches_in_percent_encoding_and_in_binary_metadata() -> None:
    coded = b64encode(b"ab" + HUSH + b"c").rstrip(b"=")
    said = b"GET /a%%20hush%%2dhush-4711/b HTTP/1.1\r\nx-bin: %b, %b\r\n\r\n" % (b64encode(b"seen"), coded)
    client, _ = at_every_cut([(CLIENT, said)], RULES)
    assert client.startswith(b"GET /a%20****************/b HTTP/1.1\r\nx-bin: c2Vlbg==, ")
    assert not leaks(client, HUSH)


# ---- JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "blanked"),
    [
        (b64encode(b"\xff" * 3 + HUSH + b"\xff").replace(b"/", rb"\/"), b64encode(b"\xff" * 3 + b"*" * 14 + b"\xff")),
        (urlsafe_b64encode(b"\xff" * 3 + HUSH + b"\xff"), urlsafe_b64encode(b"\xff" * 3 + b"*" * 14 + b"\xff")),
        (b64encode(HUSH).rstrip(b"="), b64encode(b"*" * 14).rstrip(b"=")),
        (b64encode(HUSH + b"ab").replace(b"4", rb"\u0034"), b64encode(b"*" * 14 + b"ab")),
        (b64encode(HUSH)[:8] + rb"\n" + b64encode(HUSH)[8:], b64encode(b"*" * 14)),
    ],
)
def test_base64_in_any_spelling(spelled: bytes, blanked: bytes) -> None:
    client, _ = at_every_cut([(CLIENT, post(b'{"body":"%b"}' % spelled))], RULES)
    found = client.partition(b'"body":"')[2].removesuffix(b'"}')
    for number in range(128):
        found = found.replace(b"\\u%04x" % number, bytes((number,)))
    assert found.replace(rb"\/", b"/").replace(rb"\n", b"") == blanked


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b" " * 200, b""])
def test_json_without_a_type(start: bytes) -> None:
    body = start + rb'"\u0068ush-hush-4711"'
    client, _ = at_every_cut([(CLIENT, post(body, b"text/plain"))], RULES)
    assert client.endswith(start + b'"' + b"*" * (len(HUSH) + 5) + b'"')


def test_names_that_are_escaped_and_events_in_several_lines() -> None:
    ask = b"POST /v1/access-tokens HTTP/1.1\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n"
    said = [(CLIENT, ask), (SERVER, head % b"application/json" + b'{"access\\u005ftoken":"quiet"}')]
    assert at_every_cut(said)[1].endswith(b'{"access\\u005ftoken":"*****"}')
    said = [(CLIENT, ask), (SERVER, head % b"text/event-stream" + b'data: [["x-key",\ndata: "quiet"]]\n\n')]
    assert at_every_cut(said, RULES)[1].endswith(b'data: [["x-key",\ndata: "*****"]]\n\n')


def test_a_body_of_which_two_things_are_said() -> None:
    body = gzip.compress(b"ab" * 300 + HUSH)
    twice = b"content-encoding: identity\r\ncontent-encoding: gzip\r\n"
    client, _ = at_every_cut([(CLIENT, post(body, b"text/plain", twice))], RULES)
    assert client.endswith(b"*" * len(body))
    encoder = hpack.Encoder()
    types = [(":method", "POST"), ("content-type", "text/plain"), ("content-type", "s2s/proto")]
    block = HeadersFrame(1, encoder.encode(types), flags=["END_HEADERS"]).serialize()
    data = len(body).to_bytes(3, "big") + b"\0\1\0\0\0\1" + body
    client, _ = at_every_cut([(CLIENT, PREFACE + block + data)], RULES)
    assert client.endswith(b"*" * len(body))


# ---- HTTP/2 --------------------------------------------------------------------------------------------------


def test_what_a_block_that_was_not_read_put_into_the_table() -> None:
    encoder = hpack.Encoder()
    first = head_of([("x-seen", "1")], 1, encoder)
    block = encoder.encode([("s2-encryption-key", "first")], huffman=False)
    block += b"\x10\x01x\x7f\x81\x7e" + b"y" * 16_256  # a literal of that many bytes
    pieces = [block[at : at + 9_000] for at in range(0, len(block), 9_000)] + [
        b"\x10\x01x\x7f\x81\x7e" + b"y" * 16_256
    ] * 4
    frames = [HeadersFrame(3, pieces[0]), *(ContinuationFrame(3, piece) for piece in pieces[1:])]
    frames[-1].flags.add("END_HEADERS")
    later = head_of([("s2-encryption-key", "hush")], 5, encoder)
    assert b"s2-encryption-key" not in later  # it refers to the table
    out = PREFACE + first + b"".join(frame.serialize() for frame in frames) + later
    for cuts in ((), range(0, len(out), 997)):
        assert b"hush" not in redacted([(CLIENT, out)], cuts=cuts)[0]


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\x20\0\x08\0\0\0\x01\x10" + b"x" * 15 + HUSH + b"\0\0",  # padding
        b"\0\0\x0e\x06\0\0\0\0\0" + HUSH,  # PING
        b"\0\0\x0e\x02\0\0\0\0\x01" + HUSH,  # PRIORITY
        b"\0\0\x0e\x04\0\0\0\0\0" + HUSH,  # SETTINGS
    ],
)
def test_matches_where_there_should_be_none(frame: bytes) -> None:
    client, _ = at_every_cut([(CLIENT, PREFACE + frame)], RULES)
    assert b"hush" not in client


def test_names_with_spaces() -> None:
    assert b"hush" not in at_every_cut([(CLIENT, PREFACE + head_of([("authorization ", "hush")], 1))])[0]


# ---- compressed ----------------------------------------------------------------------------------------------


def batch(body: bytes) -> bytes:
    message = s2_pb2.AppendInput()
    message.records.add(body=body)
    return message.SerializeToString()


SKIPPED = b"\x50\x2a\x4d\x18" + len(HUSH).to_bytes(4, "little") + HUSH
PLAIN = batch(b"plain")


@pytest.mark.parametrize(
    ("compression", "payload"),
    [
        (Compression.ZSTD, SKIPPED + zstandard.compress(PLAIN)),
        (Compression.ZSTD, zstandard.compress(PLAIN) + SKIPPED),
        (Compression.GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + HUSH + b"\0" + gzip.compress(PLAIN)[10:]),
    ],
)
def test_what_stands_beside_the_content(compression: Compression, payload: bytes) -> None:
    frame = (len(payload) + 1).to_bytes(3, "big") + bytes((compression.value << 5,)) + payload
    client, _ = redacted([(CLIENT, post(frame, b"s2s/proto"))], RULES)
    assert not leaks(client, HUSH)
    assert decompress(compression, client[-len(payload) :], 1000) == PLAIN


def test_a_grpc_message_that_is_compressed_and_does_not_say_how() -> None:
    packed = gzip.compress(b"ab" * 300 + HUSH)
    body = b"\1" + len(packed).to_bytes(4, "big") + packed
    client, _ = at_every_cut([(CLIENT, post(body, b"application/grpc"))], RULES)
    assert client.endswith(body[:5] + b"*" * len(packed))


# ---- the segment protocol ------------------------------------------------------------------------------------


def test_unknown_messages_in_partials() -> None:
    message = (777).to_bytes(4, "big") + len(HUSH).to_bytes(4, "big") + HUSH
    parts = [(draft.PartialKind.BEGIN, message[:9]), (draft.PartialKind.END, message[9:])]
    said = b"".join(piece for part, data in parts for piece in encode(draft.Partial(part, data)))
    for rules in (None, RULES):
        assert b"hush" not in at_every_cut([(CLIENT, said)], rules, "segment")[0]


def test_what_a_later_version_says_behind_the_fields() -> None:
    reply = b"".join(encode(released.SegmentSealed(1, "s/t/0")))
    longer = reply[:4] + (len(reply) - 8 + len(HUSH)).to_bytes(4, "big") + reply[8:] + HUSH
    _, server = at_every_cut([(SERVER, longer)], RULES, "segment")
    assert server == longer.replace(HUSH, b"*" * len(HUSH))


def test_the_middle_of_a_line_and_of_a_header_block() -> None:
    block = head_of([("authorization", "hush-hush"), ("x", "y")], 3)[24:]
    for said in (b"hush\r\nx: y\r\n\r\n", b"hush; b=hush\r\n\thush\r\nx: y\r\n", block):
        client, _ = redacted([(CLIENT, said)], start=5000)
        assert b"hush" not in client
    assert client == b"*" * len(block)


def test_the_bytes_that_are_shown_of_what_is_not_understood_hold_no_part_of_a_match() -> None:
    said = b"what is " + HUSH + b"\r\n"
    assert at_every_cut([(CLIENT, said)], RULES)[0] == b"what is " + b"*" * (len(said) - 8)


def test_a_content_in_more_parts_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_PARTS", 100)
    head = b"POST / HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    bodies = [b'"%b%b"' % (b"x" * (80 - len(HUSH)), HUSH), b'"%b%b"' % (b"x" * 200, HUSH)]
    shown = []
    for body in bodies:
        said = head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        client, _ = redacted([(CLIENT, said)], RULES)
        found = client[len(head) :].replace(b"1\r\n", b"").replace(b"\r\n", b"").removesuffix(b"0")
        assert b"hush" not in found
        shown.append(found.count(b"x"))
    assert shown == [80 - len(HUSH), 0]


class Counted:
    def __init__(self, pattern: bytes) -> None:
        self.pattern = re.compile(pattern)
        self.searches = 0

    def search(self, text: bytes, at: int) -> re.Match[bytes] | None:
        self.searches += 1
        return self.pattern.search(text, at)


def test_a_text_is_not_searched_again_for_what_is_not_in_it_or_further_on() -> None:
    words, blocks = Counted(b"(?P<line>cookie:)"), Counted(b"BLOCK")
    found = TriggerSearch(b"...cookie:" * 100 + b"BLOCK" + b"cookie:", cast(Any, words), cast(Any, blocks))
    at, kinds = 0, []
    while (trigger := found.after(at)) is not None:
        at = trigger.at
        kinds.append(trigger.kind)
    assert kinds == ["line"] * 100 + ["block", "line"]
    assert words.searches == 102
    assert blocks.searches == 2


@pytest.mark.timeout(60)
def test_no_bytes_that_cannot_be_parsed_take_long() -> None:
    """Each of these took the square of its length: a minute for 100 kB, in which nothing else was served."""
    for many in (b"@", b"@/", b"//", b"//a@", b'"', b'\\"', b"host:", b"connect ", b"cookie ", b"?a", b"%", b"\0\0"):
        head = b"GET / HTTP/1.1\r\nno colon\r\nreferer: http://a" + many * (200_000 // len(many)) + b"/\r\n\r\n"
        redacted([(CLIENT, head)])


def test_a_password_in_bytes_that_cannot_be_parsed_may_hold_the_sign_before_the_host() -> None:
    """At every cut of the bytes: one that was the last so far need not be the last."""
    head = b"GET / HTTP/1.1\r\nno colon\r\nreferer: http://me:pa@ss@host/path\r\n\r\n"
    shown = at_every_cut([(CLIENT, head)])[0]
    assert b"ss" not in shown and shown.endswith(b"/path\r\n\r\n")
