"""Chunks that are framed without h11 are what h11 makes of the same pieces, on both sides."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.codec import Role
from penstock.wire.http import Body, Data, End, HttpLimits, RequestHead, ResponseHead
from penstock.wire.http.h1 import Http1Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PIECES = st.lists(st.lists(st.binary(max_size=300), max_size=3), max_size=6)


def out(codec: Http1Connection) -> bytes:
    return b"".join(codec.output(1 << 20))


@given(PIECES, st.sampled_from([(), (("t", "1"),)]), st.sampled_from(["1.1", "1.0"]), st.booleans())
def test_a_response(
    pieces: list[list[bytes]], trailers: tuple[tuple[str, str], ...], version: str, measured: bool
) -> None:
    """`measured`: with a content-length, which has no chunks; nor has HTTP/1.0."""
    trailers = () if measured or version == "1.0" else trailers
    size = sum(len(piece) for some in pieces for piece in some)
    headers = [("content-length", str(size))] if measured else []
    request = REQUEST.replace(b"1.1", version.encode())
    codec, plain = Http1Connection(Role.SERVER, HttpLimits(max_short=0)), h11.Connection(h11.SERVER)
    codec.receive(request)
    plain.receive_data(request)
    assert isinstance(codec.next_event(), RequestHead) and isinstance(codec.next_event(), End)
    assert isinstance(plain.next_event(), h11.Request) and isinstance(plain.next_event(), h11.EndOfMessage)
    codec.send(ResponseHead(1, 200, headers))
    wanted = plain.send(h11.Response(status_code=200, headers=headers, reason=b"OK")) or b""
    for some in pieces:
        codec.send(Body(1, some))
        wanted += plain.send(h11.Data(data=b"".join(some))) or b""
    codec.send(End(1, trailers))
    wanted += plain.send(h11.EndOfMessage(headers=list(trailers))) or b""
    assert out(codec) == wanted


@given(st.binary(min_size=1, max_size=300))
def test_a_piece_to_be_written_at_once(piece: bytes) -> None:
    at_once, usual = [Http1Connection(Role.SERVER, HttpLimits(max_short=0)) for _ in range(2)]
    for codec in (at_once, usual):
        codec.receive(REQUEST)
        assert isinstance(codec.next_event(), RequestHead)
        assert codec.framed(1, piece) is None, "before the head"
        codec.send(ResponseHead(1, 200, []))
        assert codec.framed(1, piece) is None, "the head has to be written first"
        out(codec)
    usual.send(Body(1, [piece]))
    assert at_once.framed(2, piece) is None
    assert at_once.framed(1, piece) == out(usual)
    for codec in (at_once, usual):
        codec.send(End(1))
    assert at_once.framed(1, piece) is None
    assert out(at_once) == out(usual)


@pytest.mark.parametrize(
    ("request_", "status", "headers"),
    [
        (REQUEST, 200, [("content-length", "9")]),
        (REQUEST.replace(b"1.1", b"1.0"), 200, []),
        (REQUEST.replace(b"GET", b"HEAD"), 200, []),
        (REQUEST, 204, []),
    ],
    ids=["measured", "1.0", "HEAD", "204"],
)
@pytest.mark.parametrize("max_short", [0, 1000])
def test_what_has_no_chunks_is_sent_in_the_usual_way(
    request_: bytes, status: int, headers: list[tuple[str, str]], max_short: int
) -> None:
    codec = Http1Connection(Role.SERVER, HttpLimits(max_short=max_short))
    codec.receive(request_)
    codec.next_event()
    codec.send(ResponseHead(1, status, headers))
    out(codec)
    assert codec.framed(1, b"piece") is None


@given(PIECES)
def test_a_request(pieces: list[list[bytes]]) -> None:
    client, server = Http1Connection(Role.CLIENT), Http1Connection(Role.SERVER)
    client.send(RequestHead(1, "POST", "/", [("transfer-encoding", "chunked")], "x"))
    for some in pieces:
        client.send(Body(1, some))
    client.send(End(1))
    server.receive(out(client))
    assert isinstance(server.next_event(), RequestHead)
    found = b""
    while isinstance(event := server.next_event(), Data):
        found += event.data
    assert isinstance(event, End)
    assert found == b"".join(piece for some in pieces for piece in some)
