"""Text for people, JSON lines, and HAR."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hyperframe.frame import DataFrame, SettingsFrame
from hypothesis import given
from hypothesis import strategies as st
from support.captures import conversation, s2_talk, s3p_talk
from support.http.h2_frames import headers

from penstock.capture.dialogue import APPENDED, SeenRecord
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, Chunk, Opened, Sender
from penstock.recorder.captures.har import MAX_EXCHANGES, HarEntries
from penstock.recorder.captures.lines import as_json, record_line, utc
from penstock.recorder.captures.recent import RecentBytes
from penstock.recorder.captures.text import column, columns, dump, duration, printable, shortened, size, value_text
from penstock.wire.http import PREFACE


def test_dumps_mark_the_byte() -> None:
    data = bytes(range(0x20, 0x40))
    assert dump(data, 100, 118) == [
        "       100  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f  | !\"#$%&'()*+,-./|",
        "       116  30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|",
        "                  ^^                                            ^",
    ]
    assert dump(b"\x00a", 0) == ["         0  00 61" + " " * 42 + "  |.a|"]
    assert dump(b"ab", 5, 7)[-1] == "         7  ^^ here"
    assert dump(b"", 5, 9) == []
    assert dump(b"\x7e\x7f\x80", 0)[0].endswith("|~..|")


@given(st.integers(0, 40), st.integers(1, 50))
def test_marks_stand_below(wrong: int, length: int) -> None:
    lines = dump(bytes(range(65, 65 + length)), 0, wrong)
    marks = [number for number, line in enumerate(lines) if "^^" in line]
    if wrong < length:
        above, mark = lines[marks[0] - 1], lines[marks[0]]
        place = mark.index("^^")
        assert above[place : place + 2] == f"{65 + wrong:02x}"
        assert above[mark.rindex("^")] == chr(65 + wrong)


@given(st.text(st.characters()))
def test_nothing_reaches_the_terminal_as_control(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and shown.encode().decode() == shown


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("orders", 8, "orders  "),
        ("orders", 5, "orde…"),
        ("漢字漢字", 8, "漢字漢字"),
        ("漢字漢字", 7, "漢字漢…"),
        ("漢字漢字", 6, "漢字… "),
        ("é😀", 4, "é😀 "),
        ("e\u0301\u0301x", 3, "e\u0301\u0301x "),
    ],
)
def test_columns_are_aligned_whatever_the_script(text: str, width: int, shown: str) -> None:
    assert column(text, width) == shown
    assert columns(shown) == width


@pytest.mark.parametrize(
    ("ns", "text"), [(None, ""), (0, "0 ns"), (1500, "1.5 us"), (2_500_000, "2.5 ms"), (61_000_000_000, "61.0 s")]
)
def test_durations(ns: int | None, text: str) -> None:
    assert duration(ns) == text


def test_sizes_and_values() -> None:
    assert [size(count) for count in (0, 1023, 1536, 2**50)] == ["0 B", "1023 B", "1.5 KiB", "1024.0 TiB"]
    assert shortened("abcdef", 4) == "abc…" and shortened("abcd", 4) == "abcd"
    assert value_text({"a": [1, True, "x\n"]}) == "{a: [1, yes, x\\n]}"
    assert value_text(list(range(100))).endswith(", …]")


def test_json_of_anything() -> None:
    """Numbers beyond 64 bits, text that has no UTF-8, and times that no calendar has."""
    assert json.loads(as_json({"a": 2**70, "b": "\udc80"})) == {"a": 2**70, "b": "\udc80"}
    assert utc(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"
    assert utc(2**63 * 1000).startswith("9999-12-31")


def test_records_as_lines() -> None:
    line = record_line(SeenRecord(APPENDED, "a/b", b"\xff\x00", ((b"k", b"\xfe"), (b"", b"v")), seq_num=0, offset=None))
    assert line["body_base64"] == "/wA=" and line["seq_num"] == 0 and "offset" not in line
    assert line["headers"] == [{"name": "k", "value_base64": "/g=="}, {"name": "", "value": "v"}]
    refused = record_line(SeenRecord(APPENDED, "a", "é".encode(), acknowledged=False, failure="no"))
    assert (refused["body"], refused["acknowledged"], refused["failure"]) == ("é", False, "no")


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(0, 100), st.integers(0, 50))
def test_the_last_bytes_are_kept(pieces: list[bytes], start: int, length: int) -> None:
    recent, place = RecentBytes(16), 7
    for piece in pieces:
        recent.add(place, piece)
        place += len(piece)
    sent = bytes(7) + b"".join(pieces)
    data, begin = recent.between(start, start + length)
    assert data == sent[begin : begin + len(data)]
    if max(7, len(sent) - 16) <= start <= start + length <= len(sent):
        assert data == sent[start : start + length]


def entries(events: list[CaptureEvent]) -> list[dict[str, Any]]:
    dialogues, har, told = Dialogues(), HarEntries(), []
    for event in events:
        har.receive_event(event)
        for item in dialogues.receive(event):
            told += har.receive(item)
        if event.conversation not in dialogues:
            told += har.forget(event.conversation)
    for item in dialogues.end():
        told += har.receive(item)
    return told + list(har.end())


def test_har() -> None:
    first, second = entries([*s2_talk(), *s3p_talk()])
    assert first["startedDateTime"] == "2023-11-14T22:13:20.123456Z" and first["time"] == 3.0
    assert first["timings"] == {"send": 0.0, "wait": 3.0, "receive": 0.0}
    request, response = first["request"], first["response"]
    assert (request["method"], request["url"]) == ("POST", "http://example.test/v1/streams/in/records")
    assert json.loads(request["postData"]["text"])["records"][1] == {"body": "second"}
    assert request["bodySize"] == len(request["postData"]["text"])
    assert (response["status"], response["content"]["mimeType"]) == (200, "application/json")
    assert response["redirectURL"] == ""
    assert json.loads(response["content"]["text"])["tail"]["seq_num"] == 7
    assert second["request"]["queryString"] == [{"name": "seq_num", "value": "0"}, {"name": "count", "value": "1"}]
    assert (second["response"]["status"], second["response"]["statusText"]) == (404, "Not Found")
    assert "stream_not_found" in second["response"]["content"]["text"]
    assert second["_penstock"]["failure"]


def over_http2(body: bytes, *fields: tuple[str, str], pieces: int = 1) -> list[CaptureEvent]:
    of, size = conversation(), -(-len(body) // pieces)
    request = [(":method", "POST"), (":path", "/v1/streams/s/records"), (":scheme", "http"), (":authority", "h")]
    request += [("s2-basin", "penstock"), ("content-type", "application/json"), *fields]
    parts = [DataFrame(1, body[at : at + size]) for at in range(0, len(body), size)]
    parts[-1].flags.add("END_STREAM")
    said = PREFACE + b"".join(each.serialize() for each in (SettingsFrame(0), headers(1, request), *parts))
    answer = headers(1, [(":status", "404"), ("content-type", "text/plain")])
    text = DataFrame(1, b"not here", flags=["END_STREAM"])
    answered = b"".join(each.serialize() for each in (SettingsFrame(0), answer, text))
    return [Opened(of, 0), Chunk(of, 1, Sender.CLIENT, 0, said), Chunk(of, 2, Sender.SERVER, 0, answered)]


def test_har_of_http2() -> None:
    body = b'{"records":[{"body":"\xc3\xa9"}]}'
    for sent, fields in ((body, []), (gzip.compress(body), [("content-encoding", "gzip")])):
        (entry,) = entries(over_http2(sent, *fields))
        assert entry["request"]["postData"] == {"mimeType": "application/json", "text": body.decode()}
        assert entry["request"]["bodySize"] == len(sent)
        assert entry["response"]["content"]["text"] == "not here"
        assert entry["_penstock"]["failure"] == "404: not here"
        assert entry["_messages"][0]["fields"]["records"] == 1
    (entry,) = entries(over_http2(body, pieces=3))
    assert entry["request"]["postData"]["text"] == ""


def test_har_sizes_are_those_of_bodies_without_framing() -> None:
    """Chunk heads, and the frames of HTTP/2, are none of the body; content is as large as it is decompressed."""
    text = b"not here, " * 50
    squeezed = gzip.compress(text)
    of = conversation()
    asked = b"POST /v1/x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    answered = (
        b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    )
    events = [
        Opened(of, 0),
        Chunk(of, 1, Sender.CLIENT, 0, asked),
        Chunk(of, 2, Sender.SERVER, 0, answered % len(squeezed) + squeezed),
    ]
    (entry,) = entries(events)
    assert entry["request"]["bodySize"] == 7
    response = entry["response"]
    assert response["bodySize"] == len(squeezed)
    assert response["content"]["text"] == text.decode()
    assert (response["content"]["size"], response["content"]["compression"]) == (len(text), len(text) - len(squeezed))
    body = b'{"records":[{"body":"x"}]}'
    (entry,) = entries(over_http2(body, pieces=3))
    assert entry["request"]["bodySize"] == len(body)


def test_har_keeps_bytes_of_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.recorder.captures.har.MAX_RECENT", 3)
    har = HarEntries()
    for number in range(9):
        har.receive_event(Chunk(conversation(number), 0, Sender.CLIENT, 0, b"x"))
    assert len(har._recent) == 3


def test_har_of_what_was_not_answered() -> None:
    """By the end of the capture, or of the connection."""
    events = s2_talk()
    for part in (events[:2], [events[0], events[1], events[-2], events[-1]]):
        (entry,) = entries(part)
        assert entry["response"]["status"] == 0 and entry["response"]["bodySize"] == -1


def test_har_holds_only_so_many_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.recorder.captures.har.MAX_EXCHANGES", 3)
    opened = s2_talk()[0]
    request = b"GET /v1/basins HTTP/1.1\r\nhost: example.test\r\n\r\n"
    asked = [Chunk(opened.conversation, 1, Sender.CLIENT, turn * len(request), request) for turn in range(10)]
    har, told = HarEntries(), []
    dialogues = Dialogues()
    for event in [opened, *asked]:
        for item in dialogues.receive(event):
            told += har.receive(item)
    assert len(told) == 7 and len(list(har.end())) == 3 and MAX_EXCHANGES > 3
