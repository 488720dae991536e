"""Parsing an event stream (HTML Living Standard, 9.2.5 and 9.2.6), with the examples that the standard gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, RemoteProtocolError
from penstock.wire.conformance import pieces_of
from penstock.wire.http.event_stream import EventParser, RawEvent


def parse(*pieces: bytes, limit: int = 1000) -> list[tuple[str, bytes, str]]:
    """Name, data and last event id of all events, pulled after each piece."""
    parser = EventParser(limit)
    events: list[RawEvent] = []
    for piece in pieces:
        parser.receive(piece)
        while (event := parser.next_event()) is not None:
            events.append(event)
    return [event[:3] for event in events]


def message(data: bytes, last_id: str = "") -> tuple[str, bytes, str]:
    return ("message", data, last_id)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        # The standard's examples.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [message(b"YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [message(b"first event", "1"), message(b"second event"), message(b" third event")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [message(b""), message(b"\n")]),
        (b"data:test\n\ndata: test\n\n", [message(b"test"), message(b"test")]),
        # Line ends.
        (b"data: a\r\rdata: b\r\r", [message(b"a"), message(b"b")]),
        (b"data: a\r\tdata: b\r\r", [message(b"a")]),
        (b"data: a\r\n\r\ndata: b\n\r\n", [message(b"a"), message(b"b")]),
        (b"data: a\r\n\n\rdata: b\n\n", [message(b"a"), message(b"b")]),
        (b"data: a\rdata: b\r\n\r\n", [message(b"a\nb")]),
        # Byte order marks: one at the beginning is not content; a second one is.
        (b"\xef\xbb\xbfdata: a\n\n", [message(b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data: \xef\xbb\xbfa\n\n", [message(b"\xef\xbb\xbfa")]),
        (b"\xef\xbb\xbf\ndata: a\n\n", [message(b"a")]),
        (b"\ndata: a\n\n", [message(b"a")]),
        # Names.
        (b"event: ping\ndata: a\n\ndata: b\n\n", [("ping", b"a", ""), message(b"b")]),
        (b"event: a\nevent: b\ndata\n\n", [("b", b"", "")]),
        (b"event: a\nevent\ndata\n\n", [message(b"")]),
        (b"event: ping\n\ndata: b\n\n", [message(b"b")]),
        (b"event: \xc3\xa9\xff\ndata\n\n", [("é\ufffd", b"", "")]),
        # Ids stay in force, also those of events without data; one with NUL is not taken; an empty one resets.
        (b"id: 1\ndata: a\n\ndata: b\n\n", [message(b"a", "1"), message(b"b", "1")]),
        (b"id: 1\n\ndata: b\n\n", [message(b"b", "1")]),
        (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [message(b"a", "1"), message(b"b", "1")]),
        (b"id: 1\ndata: a\n\nid:\ndata: b\n\n", [message(b"a", "1"), message(b"b", "")]),
        # What is passed over.
        (b": comment\n:\n:data: x\ndata: a\n\n", [message(b"a")]),
        (b"Data: x\ndatum: y\ndata : z\n data: w\nx\n\ndata: a\n\n", [message(b"a")]),
        (b"\n\n\n", []),
        # Colons and spaces in values.
        (b"data: a: b\n\ndata::\n\ndata:   \n\n", [message(b"a: b"), message(b":"), message(b"  ")]),
        # What has not come whole is not delivered.
        (b"data: a\n", []),
        (b"data: a\n\ndata: b", [message(b"a")]),
        (b"data: a\n\ndata: b\n", [message(b"a")]),
        (b"", []),
    ],
)
def test_events(stream: bytes, events: list[tuple[str, bytes, str]]) -> None:
    assert parse(stream) == events
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == events
    for cut in range(len(stream)):
        assert parse(stream[:cut], stream[cut:]) == events


@pytest.mark.parametrize(
    ("stream", "retry"),
    [
        (b"retry: 2500\n", 2500),
        (b"retry: 1\nretry: 2\n", 2),
        (b"retry: 999999999999999\n", 999_999_999_999_999),
        (b"retry: 1000000000000000\n", None),
        (b"retry: x\n", None),
        (b"retry: -1\n", None),
        (b"retry: 1.5\n", None),
        (b"retry:\n", None),
        (b"retry\n", None),
        (b"retry: \xc2\xb2\n", None),
        (b"retry: " + b"9" * 900 + b"\n", None),
        (b"retry: 2500", None),
    ],
)
def test_retry(stream: bytes, retry: int | None) -> None:
    parser = EventParser(1000)
    parser.receive(stream)
    assert parser.next_event() is None
    assert parser.retry_ms == retry


def test_whether_an_event_sets_its_id() -> None:
    parser = EventParser(100)
    parser.receive(b"id: 1\ndata\n\ndata\n\nid: \0\ndata\n\n")
    assert [parser.next_event().sets_id for _ in range(3)] == [True, False, False]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 95 + b"\n\n",
        b"data: " + b"x" * 95,
        b":" + b"x" * 100,
        b"x" * 101,
        b"id: " + b"x" * 60 + b"\nevent: " + b"x" * 60 + b"\n",
        b"id: " + b"x" * 60 + b"\n\n\ndata: " + b"x" * 60 + b"\n\n",
        b"data: xxxxxxxxxx\n" * 10,
        b"data\n" * 101,
    ],
)
def test_what_is_too_large_is_refused_however_it_comes(stream: bytes) -> None:
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        with pytest.raises(RemoteProtocolError, match="larger than 100 bytes") as caught:
            parse(*pieces, limit=100)
        assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED


def test_the_limit_is_per_event() -> None:
    event = b"data: " + b"x" * 90 + b"\n\n"
    assert len(parse(event * 50, limit=100)) == 50
    parser = EventParser(100)
    for at in range(0, 50 * len(event), 10):
        parser.receive((event * 50)[at : at + 10])
        parser.next_event()
        assert parser.buffered <= 110


def test_a_long_line_in_small_pieces_is_not_scanned_again_and_again() -> None:
    """64 KiB in single bytes: quadratic scanning would look at 2 GiB."""
    scanned = 0

    class Counting(bytearray):
        def find(self, what: bytes, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
            nonlocal scanned
            stop = len(self) if end is None else end
            scanned += stop - start
            return super().find(what, start, stop)

    parser = EventParser(1 << 20)
    parser._buffer = Counting()
    for _ in range(1 << 16):
        parser.receive(b"x")
        assert parser.next_event() is None
    assert scanned < 4 << 16


fragments = st.sampled_from(
    [b"data", b"event", b"id", b"retry", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"\0", b"\xef\xbb\xbf", b"7"]
)
streams = st.lists(fragments, max_size=30).map(b"".join)


def by_the_book(stream: bytes) -> list[tuple[str, bytes, str]]:
    """The standard's algorithm, word for word, over the whole stream at once."""
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    name, data, last_id, events = b"", b"", b"", []
    for line in lines:
        if not line:
            if data:
                events.append((name.decode("utf-8", "replace") or "message", data[:-1], last_id.decode()))
            name, data = b"", b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
        elif field == b"id" and b"\0" not in value:
            last_id = value
    return events


@given(streams, st.lists(st.integers(0, 200), max_size=5))
def test_as_the_standard_has_it_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    expected = by_the_book(stream)
    assert parse(stream) == expected
    assert parse(*pieces_of(stream, cuts)) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_end_of_two_bytes_is_not_a_blank_line(end: bytes) -> None:
    """Two line ends in it would end the event after its first field."""
    parser = EventParser(100)
    parser.receive(end.join([b"event: x", b"id: 1", b"data: y", b"", b""]))
    assert parser.next_event() == RawEvent("x", b"y", "1", True)
    assert parser.next_event() is None


def test_each_byte_that_is_held_counts() -> None:
    parser = EventParser(100)
    parser.receive(b"id: abc\nevent: ab\ndata: abcdefgh\ndata: ab\nda")
    assert parser.next_event() is None
    assert (parser.buffered, parser.unread) == (3 + 2 + 9 + 3 + 2, 2)
