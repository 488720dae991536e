"""HTTP/2: frames as a client may send them, flow control, and what a server must survive."""

import tracemalloc
from collections.abc import Callable

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st
from support.http.h2_frames import (
    GET,
    POST,
    answer,
    body_of,
    frames_of,
    grease,
    headers,
    parse,
    server,
    started,
    wire,
)
from support.http.story import answer_204, carry, pull, said, story, tell

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.limits import KIB
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, Role
from penstock.wire.http import (
    PREFACE,
    Body,
    Continue,
    End,
    Ended,
    GoAway,
    HttpLimits,
    RequestHead,
    Reset,
    ResponseHead,
)
from penstock.wire.http.h2 import Http2Connection

CONVERSATION = wire(
    headers(1, GET, "END_STREAM"),
    PriorityFrame(5, depends_on=1, stream_weight=7),
    grease(),
    headers(3, POST, "PRIORITY", depends_on=1, stream_weight=3),
    DataFrame(3, b"hello "),
    PingFrame(0, opaque_data=b"12345678"),
    DataFrame(3, b"padded", pad_length=3, flags=["PADDED"]),
    DataFrame(3, b""),
    WindowUpdateFrame(3, 1000),
    DataFrame(3, b" world"),
    headers(3, [("trailer", "x")], "END_STREAM"),
    headers(5, POST),
    RstStreamFrame(5, 0),
    headers(7, POST),
    DataFrame(7, b"x" * 20000, flags=["END_STREAM"]),
)


def test_a_conversation() -> None:
    heard, ending = tell(server(), [CONVERSATION], answer_204)
    assert ending == "open"
    assert heard == [
        ("request", 1, "GET", "/v1/a%2Fb?x=1", [("k", "v")]),
        End(1),
        ("request", 3, "POST", "/up", []),
        ["body", 3, b"hello padded world"],
        End(3, (("trailer", "x"),)),
        ("request", 5, "POST", "/up", []),
        Reset(5, 0),
        ("request", 7, "POST", "/up", []),
        ["body", 7, b"x" * 20000],
        End(7),
    ]


@pytest.mark.parametrize(
    ("fields", "authority"),
    [(GET, "b.localhost"), ([*GET[:2], GET[3], ("host", "c")], "c"), ([*GET, ("host", "b.localhost")], "b.localhost")],
)
def test_the_authority_or_else_the_host_is_the_requests(fields: list[tuple[str, str]], authority: str) -> None:
    codec = server()
    codec.receive(wire(headers(1, fields, "END_STREAM")))
    head = pull(codec)[0]
    assert isinstance(head, RequestHead) and head.authority == authority
    codec.send(Continue(1))
    assert frames_of(codec, HeadersFrame) == [], "no request waits for it"


@pytest.mark.parametrize("role", Role)
def test_pushes_are_refused(role: Role) -> None:
    settings = parse(said(Http2Connection(role)).removeprefix(PREFACE))[0]
    assert isinstance(settings, SettingsFrame)
    assert settings.settings[SettingsFrame.ENABLE_PUSH] == 0


def test_pings_and_settings_are_answered_and_limits_announced() -> None:
    limits = HttpLimits()
    codec = server()
    codec.receive(CONVERSATION)
    pull(codec)
    frames = parse(said(codec))
    assert isinstance(frames[0], SettingsFrame)
    assert frames[0].settings[SettingsFrame.INITIAL_WINDOW_SIZE] == limits.stream_window
    assert frames[0].settings[SettingsFrame.MAX_CONCURRENT_STREAMS] == limits.max_streams
    assert frames[0].settings[SettingsFrame.MAX_HEADER_LIST_SIZE] == limits.max_head
    assert isinstance(frames[1], WindowUpdateFrame)
    assert frames[1].window_increment == limits.connection_window - 65535
    assert [f.opaque_data for f in frames if isinstance(f, PingFrame) and "ACK" in f.flags] == [b"12345678"]
    assert any(isinstance(f, SettingsFrame) and "ACK" in f.flags for f in frames)


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=8))
def test_cut_anywhere(cuts: list[int]) -> None:
    pieces = conformance.pieces_of(CONVERSATION, cuts)
    assert tell(server(), pieces, answer_204) == tell(server(), [CONVERSATION], answer_204)


def test_byte_by_byte() -> None:
    pieces = [CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))]
    assert tell(server(), pieces, answer_204) == tell(server(), [CONVERSATION], answer_204)


@given(st.integers(1, len(CONVERSATION)))
def test_a_truncated_conversation_is_a_prefix(length: int) -> None:
    conformance.prefix(server, CONVERSATION, length)


SHORT = wire(headers(1, GET, "END_STREAM"), headers(3, POST), DataFrame(3, b"abc"), PingFrame(0, b"12345678"))


@given(st.binary(max_size=200))
def test_garbage_gives_events_or_a_refusal(data: bytes) -> None:
    conformance.no_surprise(server, data)
    conformance.no_surprise(server, SHORT + data)


@given(st.data())
def test_near_misses_give_events_or_a_refusal(data: st.DataObject) -> None:
    mutated = bytearray(SHORT)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    conformance.no_surprise(server, bytes(mutated))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=20))))
def test_well_framed_nonsense_gives_events_or_a_refusal(frames: list[tuple[int, int, int, bytes]]) -> None:
    nonsense = b"".join(
        len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        for kind, flags, stream, body in frames
    )
    conformance.no_surprise(server, SHORT + nonsense)
    conformance.no_surprise(lambda: Http2Connection(Role.CLIENT), SettingsFrame(0).serialize() + nonsense)


@pytest.mark.parametrize(
    "frames",
    [
        [DataFrame(1, b"on no stream")],
        [headers(2, GET)],  # even
        [headers(1, GET), PingFrame(0, b"12345678"), ContinuationFrame(1)],
        [HeadersFrame(1, b"\x80", flags=["END_HEADERS"])],  # no such entry of the table
        [headers(1, GET), HeadersFrame(1, b"\x80", flags=["END_HEADERS", "END_STREAM"])],
        [headers(3, GET), headers(1, GET)],  # backwards
        [WindowUpdateFrame(0, 2**31 - 1), WindowUpdateFrame(0, 2**31 - 1)],
        [WindowUpdateFrame(0, 0)],
        [WindowUpdateFrame(1, 0)],  # not open yet
    ],
)
def test_a_broken_protocol_gets_goaway(frames: list[Frame]) -> None:
    codec = server()
    codec.receive(wire(*frames))
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    assert len(frames_of(codec, GoAwayFrame)) == 1
    assert codec.closed


def test_a_flood_of_continuations_is_an_attack() -> None:
    codec = server()
    codec.receive(wire(HeadersFrame(1), *[ContinuationFrame(1)] * 100))
    with pytest.raises(RemoteProtocolError, match="too many CONTINUATION frames") as refused:
        pull(codec)
    assert refused.value.failure.code is FailureCode.LIMIT_EXCEEDED


def test_what_came_before_the_fault_is_delivered() -> None:
    heard, ending = tell(server(), [wire(headers(1, GET, "END_STREAM"), headers(3, POST), DataFrame(9, b""))])
    assert heard == [
        ("request", 1, "GET", "/v1/a%2Fb?x=1", [("k", "v")]),
        End(1),
        ("request", 3, "POST", "/up", []),
    ]
    assert ending == f"error {FailureCode.BAD_FORMAT}"


def test_a_wrong_preface_gets_goaway() -> None:
    codec = server()
    codec.receive(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    assert len(frames_of(codec, GoAwayFrame)) == 1


def test_what_is_said_after_a_fault_is_dropped() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.receive(DataFrame(5, b"x").serialize())
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    said(codec)
    codec.send(ResponseHead(1, 200, [("k", "v")]))
    codec.send(Body(1, [b"late"], end=True))
    assert said(codec) == b""


def test_an_error_quotes_nothing_of_the_client() -> None:
    codec = server()
    codec.receive(wire(headers(1, [*GET, ("authorization", "Bearer secret ")], "END_STREAM")))
    assert pull(codec) == [Reset(1, 1, "Received header value surrounded by whitespace")]


def test_an_error_about_a_stream_says_what_is_wrong_with_it() -> None:
    codec = server()
    codec.receive(wire(headers(1, GET), DataFrame(5, b"on no stream")))
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    assert caught.value.failure.message == "HTTP/2: a frame of stream 5, which is not open"


# ---- ends --------------------------------------------------------------------------------------------------------


def test_what_comes_after_the_answer_is_dropped_up_to_a_limit() -> None:
    codec = started(headers(1, POST), DataFrame(1, b"some"), limits=HttpLimits(max_discard=3_000_000))
    answer(codec, 1, b"enough", end=True)
    assert [type(frame) for frame in parse(said(codec))] == [HeadersFrame, DataFrame]
    frames: list[Frame] = []
    for total in range(16384, 3_000_000, 16384):
        codec.receive(DataFrame(1, b"x" * 16384).serialize())
        assert pull(codec) == []
        frames += parse(said(codec))
        assert {type(frame) for frame in frames} <= {WindowUpdateFrame}
        assert sum(frame.window_increment for frame in frames if frame.stream_id == 1) > total - 1_000_000
    codec.receive(DataFrame(1, b"x" * 16384).serialize())
    assert pull(codec) == []
    assert [(f.stream_id, f.error_code) for f in frames_of(codec, RstStreamFrame)] == [(1, 0)]


def test_a_request_that_ends_after_its_answer() -> None:
    codec = started(headers(1, POST))
    answer(codec, 1, b"enough", end=True)
    said(codec)
    codec.receive(DataFrame(1, b"rest", flags=["END_STREAM"]).serialize())
    assert pull(codec) == []
    assert frames_of(codec, RstStreamFrame) == []
    codec.send(GoAway())
    said(codec)
    assert codec.closed


@pytest.mark.parametrize("method, status", [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_responses_without_a_body(method: str, status: int) -> None:
    codec = started(headers(1, [(":method", method), *GET[1:]], "END_STREAM"))
    codec.send(ResponseHead(1, status, []))
    codec.send(Body(1, [b"hello"], end=True))
    frames = parse(said(codec))
    assert body_of(frames, 1) == b""
    assert "END_STREAM" in frames[-1].flags


def test_continue_is_said_where_it_is_waited_for() -> None:
    codec = started(headers(1, [*POST, ("expect", "100-continue")]), headers(3, POST))
    codec.send(Continue(3))
    assert said(codec) == b""
    codec.send(Continue(1))
    codec.send(Continue(1))
    assert len(parse(said(codec))) == 1
    answer(codec, 1, b"ok", end=True)
    assert body_of(parse(said(codec)), 1) == b"ok"


def test_goaway_lets_running_streams_finish_and_refuses_new_ones() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(GoAway())
    assert [(f.last_stream_id, f.error_code) for f in frames_of(codec, GoAwayFrame)] == [(1, 0)]
    assert not codec.closed
    codec.receive(headers(3, GET, "END_STREAM").serialize())
    assert pull(codec) == []
    assert [(f.stream_id, f.error_code) for f in frames_of(codec, RstStreamFrame)] == [(3, 7)]
    answer(codec, 1, b"bye", end=True)
    assert body_of(parse(said(codec)), 1) == b"bye"
    assert codec.closed


def test_a_goaway_of_the_client_lets_its_streams_finish() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.receive(GoAwayFrame(0, last_stream_id=0, error_code=0).serialize())
    assert pull(codec) == [GoAway(0, 0)]
    answer(codec, 1, b"bye", end=True)
    assert body_of(parse(said(codec)), 1) == b"bye"
    assert codec.closed


def test_goaway_with_an_error_ends_at_once() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(GoAway(2))
    assert [f.error_code for f in frames_of(codec, GoAwayFrame)] == [2]
    assert codec.closed


def test_closing_between_exchanges_and_amid_one() -> None:
    codec = started()
    codec.receive(b"")
    assert pull(codec) == [Ended()]
    busy = started(headers(1, POST))
    busy.receive(b"")
    with pytest.raises(RemoteProtocolError):
        pull(busy)


@pytest.mark.parametrize(
    "say",
    [
        lambda codec: codec.send(Body(1, [b"before the head"])),
        lambda codec: codec.send(ResponseHead(1, 200, [("x", "a\r\nb")])),
        lambda codec: codec.send(ResponseHead(1, 200, [("Upper", "a")])),
        lambda codec: codec.send(ResponseHead(1, 200, [("x", "\u20ac")])),
        lambda codec: (answer(codec, 1, b"", end=True), codec.send(Body(1, [b"after the end"]))),
    ],
)
def test_what_the_protocol_forbids_is_not_said(say: Callable[[Http2Connection], None]) -> None:
    codec = started(headers(1, GET))
    with pytest.raises(LocalProtocolError):
        say(codec)


def test_connection_headers_are_left_out() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    client = Http2Connection(Role.CLIENT)
    client.send(RequestHead(client.new_stream(), "GET", "/", [], "a"))
    said(client)
    codec.send(ResponseHead(1, 200, [("connection", "close"), ("transfer-encoding", "chunked"), ("x", "y")]))
    client.receive(SettingsFrame(0).serialize() + said(codec))
    assert ("response", 1, 200, [("x", "y")]) in story(pull(client))


def test_nothing_is_read_until_it_is_pulled() -> None:
    codec = started()
    codec.receive(headers(1, POST).serialize() + DataFrame(1, b"x" * 1000).serialize() * 20)
    assert codec.buffered > 20_000
    assert isinstance(codec.next_event(), RequestHead)
    assert codec.buffered > 20_000
    pull(codec)
    assert codec.buffered == 0
    assert codec.next_event() is NEED_DATA
    carry(codec, Http2Connection(Role.CLIENT))


@pytest.mark.parametrize("limits", [{"stream_window": 2**31}, {"connection_window": 65535}, {"max_frame": 16383}])
def test_limits_that_http2_cannot_express_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        HttpLimits(**limits)


def test_a_connection_takes_little_memory() -> None:
    """Empty deques of h2, hpack and ours took 14 KiB of each."""

    def answered() -> Http2Connection:
        codec = started(headers(1, GET, "END_STREAM"))
        codec.send(ResponseHead(1, 200, [("content-type", "text/plain")]))
        said(codec)
        return codec

    kept = [answered()]
    tracemalloc.start()
    try:
        kept += [answered() for _ in range(20)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 20 < 9 * KIB
