"""Durable Streams: secrets in bodies of every content type, and in events, also where these are in base64."""

from __future__ import annotations

from base64 import b64decode, b64encode

import hpack
import pytest
from hyperframe.frame import DataFrame
from support.captures.redaction import CLIENT, SERVER, Tape, at_every_cut, leaks, redacted
from support.http.messages import LAST, chunk, head, whole

from penstock.capture.redaction.rules import RedactionRules
from penstock.model.records import Header
from penstock_durable.codec import (
    RECORDS_TYPE,
    Control,
    DataEvent,
    DurableEventsServer,
    EventMode,
    RecordContent,
    spell_offset,
)

HUSH = b"hush-hush-4711"
BLANK = b"*" * len(HUSH)
RULES = RedactionRules(record_headers=(b"x-key",), patterns=(rb"hush-[a-z]+-[0-9]+",))
PLACE = Control(spell_offset(1), 7)


def post(kind: str, body: bytes, *more: str) -> bytes:
    return whole(head("POST /v1/stream/s HTTP/1.1", f"content-type: {kind}", *more), body)


def answer(kind: str, body: bytes) -> bytes:
    return whole(head("HTTP/1.1 200 OK", f"content-type: {kind}", "stream-next-offset: 1_0"), body)


def stream(mode: EventMode, *bodies: bytes) -> bytes:
    """The events of a stream with one record each."""
    server = DurableEventsServer(mode)
    return b"".join(b"".join(server.send(DataEvent((body,))) + server.send(PLACE)) for body in bodies)


def opened(mode: EventMode) -> bytes:
    coded = ["stream-sse-data-encoding: base64"] if mode is EventMode.BASE64 else []
    return head("HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *coded)


def record(secret: bytes) -> bytes:
    content = RecordContent()
    headers = {0: (Header(b"x-key", secret), Header(b"o", b"seen"))}
    return content.join([content.encode([b"a " + secret + b" b", b"plain"], headers)])


GET = head("GET /v1/stream/s?offset=-1&live=sse HTTP/1.1")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'[{"a": "%b"}, "x %b"]'),
        ("text/plain", b"say %b and %b!"),
        ("application/octet-stream", b"\0\xff%b\1%b"),
    ],
)
def test_appends_and_reads(kind: str, body: bytes) -> None:
    sent = body % (HUSH, HUSH)
    said = [(CLIENT, post(kind, sent)), (SERVER, answer(kind, sent))]
    blank = body % (BLANK, BLANK)
    assert redacted(said, RULES, "durable", range(0, 999, 7)) == (post(kind, blank), answer(kind, blank))


def test_records_of_a_bridge() -> None:
    said = [(CLIENT, post(RECORDS_TYPE, record(HUSH))), (SERVER, answer(RECORDS_TYPE, record(HUSH)))]
    blanked = post(RECORDS_TYPE, record(BLANK)), answer(RECORDS_TYPE, record(BLANK))
    assert at_every_cut(said, RULES, "durable") == blanked
    assert redacted(said, None, "durable") == (said[0][1], said[1][1])
    torn = [(CLIENT, post(RECORDS_TYPE, record(HUSH)[5:]))]
    assert redacted(torn, RULES, "durable")[0] == post(RECORDS_TYPE, b"*" * len(record(HUSH)[5:])), "withheld"


def test_tokens_are_blanked_and_the_encoding_of_events_stays() -> None:
    said = [
        (CLIENT, head("GET /v1/stream/s?token=abc HTTP/1.1", "authorization: Bearer secret")),
        (SERVER, opened(EventMode.BASE64)),
    ]
    rules = RedactionRules(patterns=(b"base64", b"seen"))
    client, server = redacted(said, rules, "durable", range(999))
    assert client == said[0][1].replace(b"abc", b"***").replace(b"secret", b"******")
    assert server == said[1][1]


@pytest.mark.parametrize("mode", [EventMode.JSON, EventMode.TEXT])
def test_events_in_plain(mode: EventMode) -> None:
    body = b'["a","%b"]' if mode is EventMode.JSON else b"a\n %b "
    answers = [opened(mode) + chunk(stream(mode, body % secret)) + LAST for secret in (HUSH, BLANK)]
    said = [(CLIENT, GET), (SERVER, answers[0])]
    assert redacted(said, RULES, "durable", range(0, 999, 7))[1] == answers[1]


@pytest.mark.parametrize("lead", [b"", b"a", b"ab"])
def test_events_in_base64(lead: bytes) -> None:
    bodies = [lead + b"%b and %b\xff" % (HUSH, HUSH), b"seen"]
    events = stream(EventMode.BASE64, *bodies)
    said = [(CLIENT, GET), (SERVER, opened(EventMode.BASE64) + chunk(events) + LAST)]
    _, server = at_every_cut(said, RULES, "durable")
    assert not leaks(server, HUSH)
    blanked = [body.replace(HUSH, BLANK) for body in bodies]
    assert server == opened(EventMode.BASE64) + chunk(stream(EventMode.BASE64, *blanked)) + LAST


def test_base64_in_several_lines() -> None:
    coded = b64encode(b"say %b!" % HUSH)
    events = b"event: data\ndata: %b\ndata:%b\ndata: %b\n\n" % (coded[:7], coded[7:9], coded[9:])
    _, server = redacted([(CLIENT, GET), (SERVER, opened(EventMode.BASE64) + chunk(events) + LAST)], RULES, "durable")
    lines = [line.partition(b":")[2].strip() for line in server.split(b"\n") if line.startswith(b"data:")]
    assert b64decode(b"".join(lines), validate=True) == b"say %b!" % BLANK


def test_records_of_a_bridge_in_base64() -> None:
    content, answers = RecordContent(), []
    for secret in (b"a pin", b"*****"):
        body = content.join([content.encode([b"seen"], {0: (Header(b"x-key", secret),)})])
        answers.append(opened(EventMode.BASE64) + chunk(stream(EventMode.BASE64, body)) + LAST)
    assert redacted([(CLIENT, GET), (SERVER, answers[0])], RULES, "durable")[1] == answers[1]


def test_what_matches_as_it_is_spelled_stays_base64() -> None:
    rules = RedactionRules(patterns=(rb"[A-Za-z0-9]{16}",))
    events = stream(EventMode.BASE64, bytes(range(36)))
    _, server = redacted([(CLIENT, GET), (SERVER, opened(EventMode.BASE64) + chunk(events) + LAST)], rules, "durable")
    (data,) = [line[5:] for line in server.split(b"\n") if line.startswith(b"data:") and b"{" not in line]
    assert set(b64decode(data, validate=True)) == {0}


def test_events_in_base64_whose_head_was_not_recorded() -> None:
    tape = Tape(RULES, "durable", start=1000)
    tape.say(CLIENT, hpack.Encoder().encode([]))
    frames = [stream(EventMode.BASE64, b"say %b" % HUSH), stream(EventMode.JSON, b'"%b"' % HUSH)]
    for body in frames:
        tape.say(SERVER, DataFrame(1, body).serialize())
    _, server = tape.close()
    assert not leaks(server, HUSH)
    assert stream(EventMode.BASE64, b"say %b" % BLANK) in server
    assert stream(EventMode.JSON, b'"%b"' % BLANK) in server
