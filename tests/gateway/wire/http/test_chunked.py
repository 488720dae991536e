"""Chunked bodies as a client reads them: h11 is the oracle."""

from __future__ import annotations

import time
from itertools import pairwise
from unittest.mock import patch

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import RemoteProtocolError
from penstock.wire.codec import Pull, Role
from penstock.wire.http import Data, End, HttpLimits, RequestHead, ResponseHead, chunked
from penstock.wire.http.chunked import ChunkedBody, ChunkError
from penstock.wire.http.h1 import Http1Connection

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

Outcome = tuple[bytes, bool, bool, list[tuple[str, str]]]
"""The body so far, whether it is complete, whether there is a fault, the trailers."""


def by_h11(data: bytes) -> Outcome:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(HEAD + data)
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return body, False, True, []
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return body, True, False, [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
        elif event is h11.NEED_DATA:
            return body, False, False, []


def by_us(data: bytes, cuts: list[int], most: int = 64 * 1024, *, owned: bool = False) -> Outcome:
    reader = ChunkedBody(most)
    body = b""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, stop in pairwise(edges):
        reader.receive(data[start:stop] if owned else memoryview(data)[start:stop])
        try:
            while (piece := reader.next()) is not None:
                assert piece
                body += piece
        except ChunkError:
            return body, False, True, []
        assert reader.held == 0
    return body, reader.ended, False, list(reader.trailers) if reader.ended else []


chunks = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.sampled_from([b"", b";x", b";a=b", b" "])), max_size=6
)
trailer_lines = st.lists(st.sampled_from([b"X-Sum: 1", b"a:b", b"grpc-status:\t0 ", b"empty:"]), max_size=3)


def spelled(parts: list[tuple[bytes, bytes]], trailers: list[bytes]) -> bytes:
    body = b"".join(b"%X%s\r\n%s\r\n" % (len(data), extension, data) for data, extension in parts)
    return body + b"0\r\n" + b"".join(line + b"\r\n" for line in trailers) + b"\r\n"


@given(chunks, trailer_lines, st.lists(st.integers(0, 2500), max_size=8), st.integers(0, 2500))
def test_any_cut_gives_what_h11_reads(
    parts: list[tuple[bytes, bytes]], trailers: list[bytes], cuts: list[int], end: int
) -> None:
    data = spelled(parts, trailers)[:end]
    assert by_us(data, cuts) == by_h11(data)
    with patch.multiple(chunked, _LARGE=80, _SMALL=20, _MOST_CHUNKS=3):
        assert by_us(data, cuts, owned=True) == by_h11(data)


def pieces(reader: ChunkedBody) -> list[object]:
    """Return the memory of each piece."""
    found = []
    while (piece := reader.next()) is not None:
        found.append(piece.obj if isinstance(piece, memoryview) else piece)
    return found


def test_large_chunks_of_bytes_are_not_copied() -> None:
    one, other = b"a" * 200_000, b"b" * 300_000
    data = spelled([(one, b""), (other, b"")], [])
    reader = ChunkedBody(1000)
    reader.receive(data)
    first, second = pieces(reader)
    assert first is second is data

    shared = bytearray(data)
    reader = ChunkedBody(1000)
    reader.receive(memoryview(shared))
    shared[:] = bytes(len(shared))
    assert pieces(reader) == [one + other], "what the caller may change is copied, in one piece"


def test_small_chunks_do_not_keep_their_read_alive() -> None:
    data = spelled([(b"a" * 1000, b"")] * 300, [])
    reader = ChunkedBody(1000)
    reader.receive(data)
    assert pieces(reader) == [b"a" * 300_000]

    reader = ChunkedBody(1000)
    reader.receive(spelled([(b"a", b"")] * 2500, []))
    assert pieces(reader) == [b"a" * 1000, b"a" * 1000, b"a" * 500]

    large = spelled([(b"a" * 500_000, b""), (b"b" * 20_000, b"")], [])
    cut = large.index(b"b") + 10
    reader = ChunkedBody(1000)
    reader.receive(large[:cut])
    assert pieces(reader) == [large[:cut], b"b" * 10]


@given(chunks, trailer_lines, st.integers(0, 400), st.binary(max_size=2), st.booleans())
def test_what_h11_refuses_is_refused(
    parts: list[tuple[bytes, bytes]], trailers: list[bytes], at: int, other: bytes, replaces: bool
) -> None:
    data = spelled(parts, trailers)
    data = data[:at] + other + data[at + (len(other) if replaces else 0) :]
    theirs = by_h11(data)
    ours = by_us(data, [])
    if theirs[2]:
        assert ours[2] or not ours[1], "a fault may be noticed later, but it never makes a whole body"
    elif not ours[2]:  # ours may be the stricter one
        assert ours == theirs


def test_byte_by_byte() -> None:
    data = spelled([(b"hello", b""), (b"w" * 300, b";ext")], [b"A: 1"])
    assert by_us(data, list(range(len(data)))) == (b"hello" + b"w" * 300, True, False, [("a", "1")])


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\na",
        b"\r\n",
        b"5\nhello",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"1" * 17 + b"\r\n",
        b"0\r\nbad\r\n",
    ],
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    assert by_us(data + b"\r\n\r\n", [])[2]


@pytest.mark.parametrize("data", [b"1;" + b"x" * 200, b"0\r\na:" + b"x" * 200, b"0\r\n" + b"a: b\r\n" * 40])
def test_lines_are_bounded(data: bytes) -> None:
    body, _, fault, _ = by_us(data, list(range(0, len(data), 7)), most=100)
    assert (body, fault) == (b"", True)


def test_an_announced_size_is_not_allocated() -> None:
    reader = ChunkedBody(1000)
    reader.receive(b"FFFFFFFFFFFFFFFF\r\nabc")
    assert (reader.next(), reader.next(), reader.held) == (b"abc", None, 0)


def test_pieces_before_a_fault_are_given_first_and_the_fault_stays() -> None:
    reader = ChunkedBody(1000)
    reader.receive(b"3\r\nabc\r\nnonsense\r\n")
    assert reader.next() == b"abc"
    for _ in range(2):
        with pytest.raises(ChunkError, match="malformed chunk header"):
            reader.next()


def client_after(response: bytes, *headers: tuple[str, str]) -> Http1Connection:
    client = Http1Connection(Role.CLIENT, HttpLimits())
    client.send(RequestHead(client.new_stream(), "GET", "/", headers, "localhost"))
    client.send(End(1))
    client.output(1 << 20)
    client.receive(response)
    assert isinstance(client.next_event(), ResponseHead)
    return client


def test_a_connection_is_used_again_after_a_chunked_answer() -> None:
    client = client_after(HEAD + b"2\r\nhi\r\n0\r\n\r\n")
    assert client.next_event() == Data(1, b"hi", 2)
    assert client.next_event() == End(1, ())
    assert client.next_event() is Pull.NEED_DATA
    assert not client.closed
    assert client.new_stream() == 2


@pytest.mark.parametrize("closing", ["request", "response", "old"])
def test_a_connection_that_was_to_close_is_not(closing: str) -> None:
    head = {"response": HEAD.replace(b"\r\n\r\n", b"\r\nConnection: x, Close\r\n\r\n")}.get(closing, HEAD)
    if closing == "old":
        head = head.replace(b"HTTP/1.1", b"HTTP/1.0")
    headers = [("connection", "close")] if closing == "request" else []
    client = client_after(head + b"0\r\n\r\n", *headers)
    assert client.next_event() == End(1, ())
    assert client.closed
    assert client.next_event() is Pull.PAUSED


@pytest.mark.parametrize("cut", range(len(b"2\r\nhi\r\n0\r\n\r\n")))
def test_a_server_that_closes_amid_the_body(cut: int) -> None:
    client = client_after(HEAD + b"2\r\nhi\r\n0\r\n\r\n"[:cut])
    client.receive(b"")
    with pytest.raises(RemoteProtocolError, match="closed in the middle of a chunked body"):
        while not isinstance(client.next_event(), End):
            pass


def test_an_answer_that_is_over_before_its_request() -> None:
    client = Http1Connection(Role.CLIENT, HttpLimits())
    client.send(RequestHead(client.new_stream(), "POST", "/", [("transfer-encoding", "chunked")], "localhost"))
    client.receive(HEAD + b"0\r\n\r\n")
    assert isinstance(client.next_event(), ResponseHead)
    assert client.next_event() == End(1, ())
    assert client.next_event() is Pull.PAUSED
    client.send(End(1))
    assert client.new_stream() == 2


def test_what_comes_behind_an_answer_counts_as_long_as_its_request_goes_on() -> None:
    """Otherwise a server could fill memory without end."""
    codec = Http1Connection(Role.CLIENT)
    codec.send(RequestHead(codec.new_stream(), "POST", "/", [("transfer-encoding", "chunked")], "x"))
    codec.receive(HEAD + b"0\r\n\r\n")
    while isinstance(codec.next_event(), ResponseHead | End):
        assert codec.buffered == 0
    codec.receive(bytes(1000))
    assert codec.next_event() is Pull.PAUSED
    assert codec.buffered == 1000


@pytest.mark.parametrize("line", [b"k:" + b" " * 60_000 + b"\n", b"k:" + b" x" * 30_000 + b"\n", b"k" * 60_000 + b"\n"])
def test_a_trailer_that_is_none_takes_no_time(line: bytes) -> None:
    began = time.process_time()
    assert by_us(b"0\r\n" + line, []) == (b"", False, True, [])
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("data", "most"), [(b"1;%b\r\nx\r\n0\r\n\r\n", 100), (b"0\r\nk:%b\r\n\r\n", 102)], ids=["size", "trailers"]
)
def test_a_line_may_be_as_long_as_the_limit(data: bytes, most: int) -> None:
    """Without its line end; those of trailers count."""
    for cut in range(len(data) + 98):
        assert by_us(data % (b"x" * 98), [cut], most)[1:3] == (True, False), cut
        assert by_us(data % (b"x" * 99), [cut], most)[1:3] == (False, True), cut


@pytest.mark.parametrize("body", [b"2\r\nhi\r\n0\r\n\r\n", b"2\r\nhi\r\n"])
def test_a_server_that_closes_before_its_answer_is_looked_at(body: bytes) -> None:
    client = Http1Connection(Role.CLIENT)
    client.send(RequestHead(client.new_stream(), "GET", "/", [], "localhost"))
    client.send(End(1))
    client.output(1 << 20)
    client.receive(HEAD + body)
    client.receive(b"")
    assert isinstance(client.next_event(), ResponseHead)
    assert client.next_event() == Data(1, b"hi", 2)
    if body.endswith(b"0\r\n\r\n"):
        assert client.next_event() == End(1, ())
        assert client.closed
    else:
        with pytest.raises(RemoteProtocolError, match="closed in the middle of a chunked body"):
            client.next_event()
