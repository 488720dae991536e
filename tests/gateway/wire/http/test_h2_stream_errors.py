"""HTTP/2: errors of one stream's peer end that stream alone (RFC 9113, 5.4.2 and 8.1.1)."""

from __future__ import annotations

import pytest
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from support.http.h2_frames import GET, POST, answer, body_of, headers, parse, server, started, wire
from support.http.story import pull, said

from penstock.wire.codec import Role
from penstock.wire.http import (
    REFUSED_STREAM,
    Body,
    Continue,
    Data,
    End,
    HttpLimits,
    RequestHead,
    Reset,
)
from penstock.wire.http.h2 import Http2Connection

MALFORMED = {
    "no scheme": [headers(3, [(":method", "GET"), (":path", "/")])],
    "no path": [headers(3, [(":method", "GET"), (":scheme", "http"), (":path", "")])],
    "unknown pseudo-header": [headers(3, [*GET[:4], (":x", "y")])],
    "pseudo-header of a response": [headers(3, [*GET[:4], (":status", "200")])],
    "pseudo-header twice": [headers(3, [*GET[:4], (":path", "/")])],
    "pseudo-header after others": [headers(3, [("k", "v"), *GET[:4]])],
    "header of a connection": [headers(3, [*GET, ("connection", "close")])],
    "te": [headers(3, [*GET, ("te", "gzip")])],
    "upper case": [headers(3, [*GET, ("Upper", "x")])],
    "no number": [headers(3, [*POST, ("content-length", "five")])],
    "two lengths": [headers(3, [*POST, ("content-length", "5"), ("content-length", "6")])],
    "body too short": [headers(3, [*POST, ("content-length", "5")]), DataFrame(3, b"abc", flags=["END_STREAM"])],
    "body too long": [headers(3, [*POST, ("content-length", "2")]), DataFrame(3, b"abc")],
    "padded body too long": [
        headers(3, [*POST, ("content-length", "2")]),
        DataFrame(3, b"abc", pad_length=50, flags=["PADDED"]),
    ],
    "trailers that do not end": [headers(3, POST), headers(3, [("k", "v")])],
    "pseudo-header in trailers": [headers(3, POST), headers(3, [(":path", "/")], "END_STREAM")],
    "window increment of 0": [headers(3, POST), WindowUpdateFrame(3, 0)],
    "depends on itself": [headers(3, POST), PriorityFrame(3, depends_on=3, stream_weight=1)],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_others_go_on(frames: list[Frame]) -> None:
    """Earlier streams are answered and later ones served; the connection's window is unchanged."""
    codec = started(headers(1, POST))
    codec.receive(b"".join(frame.serialize() for frame in frames))
    codec.receive(headers(5, GET, "END_STREAM").serialize() + DataFrame(1, b"more").serialize())
    heard = pull(codec)
    failed = [event for event in heard if isinstance(event, Reset)]
    assert [(event.stream_id, event.code) for event in failed] == [(3, 1)]
    assert failed[0].reason
    assert [event.stream_id for event in heard if isinstance(event, RequestHead)][-1] == 5
    assert [event for event in heard if isinstance(event, Data)][-1] == Data(1, b"more", 4)
    answer(codec, 1, b"whole", end=True)
    sent = parse(said(codec))
    resets = [(frame.stream_id, frame.error_code) for frame in sent if isinstance(frame, RstStreamFrame)]
    assert resets == [(3, 1)]
    assert body_of(sent, 1) == b"whole"
    assert not [frame for frame in sent if isinstance(frame, GoAwayFrame)]
    assert not codec.closed


@pytest.mark.parametrize("behind", [b"", DataFrame(0x1020305, b"x").serialize()])
def test_a_window_increment_of_0_alone_and_before_other_frames(behind: bytes) -> None:
    number = 0x1020305
    codec = started(headers(number, POST))
    codec.receive(WindowUpdateFrame(number, 0).serialize() + behind)
    assert [(event.stream_id, event.code) for event in pull(codec) if isinstance(event, Reset)] == [(number, 1)]


def test_an_increment_of_1_is_good_and_one_of_only_the_reserved_bit_is_none() -> None:
    """RFC 9113, 6.9."""
    codec = started(headers(1, POST), headers(3, POST))
    frame = b"\0\0\4\x08\0\0\0\0"
    codec.receive(frame + b"\1" + b"\0\0\0\1" + frame + b"\3" + b"\x80\0\0\0")
    assert [event.stream_id for event in pull(codec) if isinstance(event, Reset)] == [3]


def test_what_is_dropped_of_a_malformed_stream_does_not_shut_the_window() -> None:
    """More of such bodies than the connection's window holds; frames that were under way are dropped."""
    codec = started(limits=HttpLimits(stream_window=65535, connection_window=65536))
    for number in range(1, 41, 2):
        frames = [headers(number, [*POST, ("content-length", "2")]), DataFrame(number, bytes(9000))]
        codec.receive(b"".join(frame.serialize() for frame in (*frames, DataFrame(number, bytes(1000)))))
        assert [event.stream_id for event in pull(codec) if isinstance(event, Reset)] == [number]
        said(codec)
    assert codec._h2.inbound_flow_control_window > 32768


def test_one_stream_too_many_is_refused() -> None:
    codec = started(headers(1, POST), headers(3, POST), limits=HttpLimits(max_streams=2))
    codec.receive(headers(5, GET, "END_STREAM").serialize())
    assert not [event for event in pull(codec) if isinstance(event, RequestHead)]
    resets = [frame for frame in parse(said(codec)) if isinstance(frame, RstStreamFrame)]
    assert [(frame.stream_id, frame.error_code) for frame in resets] == [(5, REFUSED_STREAM)]
    codec.receive(DataFrame(1, b"", flags=["END_STREAM"]).serialize())
    assert pull(codec) == [End(1)]
    answer(codec, 1, end=True)
    said(codec)
    codec.receive(headers(7, GET, "END_STREAM").serialize())
    assert [event.stream_id for event in pull(codec) if isinstance(event, RequestHead)] == [7]


def test_a_header_block_that_is_refused_is_in_the_table() -> None:
    """Later header blocks refer to its entries."""
    encoder = Encoder()
    first = encoder.encode([*GET, ("x-kept", "kept"), ("connection", "close")])
    second = encoder.encode([*GET, ("x-kept", "kept")])
    codec = server()
    codec.receive(wire(HeadersFrame(1, first, flags=["END_HEADERS"]), HeadersFrame(3, second, flags=["END_HEADERS"])))
    (head,) = [event for event in pull(codec) if isinstance(event, RequestHead)]
    assert (head.stream_id, dict(head.headers)["x-kept"]) == (3, "kept")


@pytest.mark.parametrize(
    "bad",
    [
        [(":status", "200"), ("Upper", "x")],
        [(":status", "two")],
        [(":status", "2000")],
        [(":status", "20")],
        [("k", "v")],
        [(":status", "200"), ("content-length", "-1")],
    ],
)
def test_a_malformed_response_ends_its_exchange_alone(bad: list[tuple[str, str]]) -> None:
    codec = Http2Connection(Role.CLIENT)
    for _ in range(2):
        number = codec.new_stream()
        codec.send(RequestHead(number, "GET", "/", [], "a"))
        codec.send(Body(number, (), end=True))
    said(codec)
    codec.receive(SettingsFrame(0).serialize() + headers(1, bad).serialize())
    codec.receive(headers(3, [(":status", "204")], "END_STREAM").serialize())
    heard = pull(codec)
    (failed,) = [event for event in heard if isinstance(event, Reset)]
    assert failed.stream_id == 1
    assert failed.reason
    assert heard[-1] == End(3)
    assert not codec.closed


def test_a_client_is_told_of_100_and_of_no_other_informational_response() -> None:
    codec = Http2Connection(Role.CLIENT)
    number = codec.new_stream()
    codec.send(RequestHead(number, "GET", "/", [], "a"))
    codec.send(Body(number, (), end=True))
    said(codec)
    answers = [headers(1, [(":status", "103")]), headers(1, [(":status", "100")])]
    codec.receive(SettingsFrame(0).serialize() + b"".join(frame.serialize() for frame in answers))
    assert pull(codec) == [Continue(1)]
