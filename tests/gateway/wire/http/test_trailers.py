"""Trailers, and answers that are a head only."""

import pytest
from hyperframe.frame import DataFrame, Frame, HeadersFrame, WindowUpdateFrame
from support.http.h2_frames import GET, POST, headers, parse, started
from support.http.story import pull, said

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import Role
from penstock.wire.http import Body, End, HttpLimits, Reset, ResponseHead
from penstock.wire.http.h1 import Http1Connection

CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def kinds(frames: list[Frame]) -> list[tuple[type[Frame], bool]]:
    """Each frame's type, and whether it ends the stream."""
    return [(type(frame), "END_STREAM" in frame.flags) for frame in frames]


# ---- HTTP/2 ------------------------------------------------------------------------------------------------------


def test_trailers_end_the_stream_and_no_empty_data_goes_before_them() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [b"body"]))
    codec.send(End(1, [("grpc-status", "0")]))
    assert kinds(parse(said(codec))) == [(HeadersFrame, False), (DataFrame, False), (HeadersFrame, True)]


def test_trailers_wait_for_the_window_of_the_body_before_them() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [bytes(70_000)]))
    codec.send(End(1, [("x", "y")]))
    assert all(not ends for _, ends in kinds(parse(said(codec))))
    codec.receive(WindowUpdateFrame(0, 9000).serialize() + WindowUpdateFrame(1, 9000).serialize())
    pull(codec)
    assert kinds(parse(said(codec))) == [(DataFrame, False), (HeadersFrame, True)]
    assert codec.held == 0


def test_trailers_are_forgotten_with_a_stream_that_is_reset() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [bytes(70_000)]))
    codec.send(End(1, [("x", "y")]))
    said(codec)
    codec.send(Reset(1))
    codec.receive(WindowUpdateFrame(0, 9000).serialize())
    pull(codec)
    assert HeadersFrame not in {type(frame) for frame in parse(said(codec))}


def test_a_head_with_end_is_one_frame() -> None:
    codec = started(headers(1, GET, "END_STREAM"), headers(3, POST))
    for stream_id in (1, 3):
        codec.send(ResponseHead(stream_id, 200, [("grpc-status", "12")], end=True))
        assert kinds(parse(said(codec))) == [(HeadersFrame, True)]
    codec.receive(DataFrame(3, b"still coming").serialize())
    assert pull(codec) == []


@pytest.mark.parametrize("trailer", [(":status", "200"), ("Upper", "x"), ("x", "a\r\nb"), ("", "x")])
def test_what_is_no_trailer_is_not_said(trailer: tuple[str, str]) -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    codec.send(ResponseHead(1, 200, []))
    with pytest.raises(LocalProtocolError):
        codec.send(End(1, [trailer]))
    codec.send(End(1))
    assert kinds(parse(said(codec)))[-1] == (DataFrame, True)


def test_trailers_of_a_stream_that_was_answered_are_dropped() -> None:
    codec = started(headers(1, POST))
    codec.send(ResponseHead(1, 204, [], end=True))
    said(codec)
    codec.receive(headers(1, [("x", "y")], "END_STREAM").serialize())
    assert pull(codec) == []
    assert said(codec) == b""


# ---- HTTP/1.1 ----------------------------------------------------------------------------------------------------


def asked(request: bytes, limits: HttpLimits | None = None) -> Http1Connection:
    codec = Http1Connection(Role.SERVER, limits)
    codec.receive(request)
    pull(codec)
    return codec


def test_trailers_follow_the_last_chunk() -> None:
    codec = asked(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [b"body"]))
    codec.send(End(1, [("x-sum", "4")]))
    assert said(codec).endswith(b"\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 4\r\n\r\n")


@pytest.mark.parametrize(
    "request_line, framing",
    [
        (b"GET / HTTP/1.1", [("content-length", "0")]),
        (b"GET / HTTP/1.0", []),
        (b"HEAD / HTTP/1.1", []),
    ],
)
def test_trailers_where_there_is_no_last_chunk_are_refused(request_line: bytes, framing: list[tuple[str, str]]) -> None:
    codec = asked(request_line + b"\r\nhost: a\r\n\r\n")
    codec.send(ResponseHead(1, 200, framing))
    with pytest.raises(LocalProtocolError, match="railers"):
        codec.send(End(1, [("x", "y")]))


def test_a_head_with_end_is_a_whole_answer() -> None:
    codec = asked(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    codec.send(ResponseHead(1, 200, [("content-length", "0")], end=True))
    assert said(codec).endswith(b"content-length: 0\r\n\r\n")
    codec.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert len(pull(codec)) == 2


@pytest.mark.parametrize("cut", [1, 1000, 1 << 20])
def test_trailers_of_a_client_are_bounded(cut: int) -> None:
    codec = asked(CHUNKED + b"2\r\nhi\r\n0\r\n", HttpLimits(max_head=2000))
    data = b"".join(b"t%d: %s\r\n" % (i, b"x" * 90) for i in range(30)) + b"\r\n"
    with pytest.raises(RemoteProtocolError) as caught:
        for at in range(0, len(data), cut):
            codec.receive(data[at : at + cut])
            pull(codec)
    assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED
    assert said(codec).startswith(b"HTTP/1.1 431 ")
