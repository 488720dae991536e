"""Chunks that are framed without h11 are what h11 makes of the same pieces, on both sides."""

from __future__ import annotations

import h11
from hypothesis import given
from hypothesis import strategies as st

from penstock_codecs.codec import Role
from penstock_codecs.http import Body, Data, End, Http1Connection, HttpLimits, RequestHead, ResponseHead

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
