"""A client wired to a server, in both versions: each receives what the other sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http.story import carry, plain, pull, said, story

from penstock.model.failures import LocalProtocolError
from penstock.wire.codec import Role
from penstock.wire.http import (
    Body,
    Continue,
    Credit,
    Data,
    End,
    GoAway,
    HttpCodec,
    HttpHeaders,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
    connection,
)

VERSIONS = pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
CHUNKED = [("transfer-encoding", "chunked")]


def wired(alpn: str) -> tuple[HttpCodec, HttpCodec]:
    client, server = connection(alpn, Role.CLIENT), connection(alpn, Role.SERVER)
    carry(client, server)
    carry(server, client)
    carry(client, server)
    return client, server


def credit(codec: HttpCodec, event: Received) -> None:
    """Consume body at once."""
    if isinstance(event, Data):
        codec.send(Credit(event.stream_id, event.credit))


def settle(client: HttpCodec, server: HttpCodec, cut: int = 1 << 20) -> tuple[list[Received], list[Received]]:
    """Carry bytes both ways until neither side sends more, and return the events of the client and of the server."""
    by_client: list[Received] = []
    by_server: list[Received] = []
    moved = True
    while moved:
        moved = False
        for source, target, heard in ((client, server, by_server), (server, client, by_client)):
            data = said(source)
            moved = moved or bool(data)
            for at in range(0, len(data), cut):
                target.receive(data[at : at + cut])
                heard += pull(target, credit)
    return by_client, by_server


token = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).map(lambda name: "x-" + name)
value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
headers = st.lists(st.tuples(token, value), max_size=5)
bodies = st.lists(st.lists(st.binary(max_size=300), max_size=3), max_size=4)


@VERSIONS
@given(
    request=headers,
    response=headers,
    up=bodies,
    down=bodies,
    trailers=st.tuples(headers, headers).map(lambda both: tuple(map(tuple, both))),
    cut=st.integers(1, 4000),
    rounds=st.integers(1, 3),
)
def test_messages_arrive_as_they_were_sent(
    alpn: str,
    request: list[tuple[str, str]],
    response: list[tuple[str, str]],
    up: list[list[bytes]],
    down: list[list[bytes]],
    trailers: tuple[HttpHeaders, HttpHeaders],
    cut: int,
    rounds: int,
) -> None:
    client, server = wired(alpn)
    for _ in range(rounds):
        stream_id = client.new_stream()
        client.send(RequestHead(stream_id, "POST", "/a%2Fb?c=d&e", [*CHUNKED, *request], "host:1"))
        for parts in up:
            client.send(Body(stream_id, parts))
        client.send(End(stream_id, trailers[0]))
        _, heard = settle(client, server, cut)
        body = b"".join(part for parts in up for part in parts)
        whole = [["body", stream_id, body]] if body else []
        assert story(heard) == [
            ("request", stream_id, "POST", "/a%2Fb?c=d&e", plain(request)),
            *whole,
            End(stream_id, trailers[0]),
        ]
        server.send(ResponseHead(stream_id, 200, response))
        for parts in down[:-1]:
            server.send(Body(stream_id, parts))
        last = down[-1] if down else []
        if trailers[1]:
            server.send(Body(stream_id, last))
            server.send(End(stream_id, trailers[1]))
        else:
            server.send(Body(stream_id, last, end=True))
        heard, _ = settle(client, server, cut)
        body = b"".join(part for parts in down for part in parts)
        whole = [["body", stream_id, body]] if body else []
        answered = ("response", stream_id, 200, plain(response))
        assert story(heard) == [answered, *whole, End(stream_id, trailers[1])]
        assert (server.buffered, client.buffered) == (0, 0)


@VERSIONS
def test_full_duplex(alpn: str) -> None:
    client, server = wired(alpn)
    stream_id = client.new_stream()
    client.send(RequestHead(stream_id, "POST", "/", CHUNKED, "a"))
    settle(client, server)
    server.send(ResponseHead(stream_id, 200, []))
    for i in range(20):
        client.send(Body(stream_id, [b"%d" % i]))
        _, heard = settle(client, server)
        assert [event.data for event in heard if isinstance(event, Data)] == [b"%d" % i]
        server.send(Body(stream_id, [b"ack %d" % i]))
        heard_back, _ = settle(client, server)
        assert [event.data for event in heard_back if isinstance(event, Data)] == [b"ack %d" % i]
    client.send(End(stream_id))
    _, heard = settle(client, server)
    assert heard == [End(stream_id)]
    server.send(End(stream_id))
    heard_back, _ = settle(client, server)
    assert heard_back == [End(stream_id)]
    assert client.new_stream() > stream_id


@VERSIONS
def test_large_bodies_both_ways(alpn: str) -> None:
    client, server = wired(alpn)
    stream_id = client.new_stream()
    up, down = bytes(range(256)) * 20_000, bytes(range(255, -1, -1)) * 20_000
    client.send(RequestHead(stream_id, "POST", "/", CHUNKED, "a"))
    client.send(Body(stream_id, [up], end=True))
    _, heard = settle(client, server, 50_000)
    assert b"".join(event.data for event in heard if isinstance(event, Data)) == up
    server.send(ResponseHead(stream_id, 200, []))
    server.send(Body(stream_id, [down], end=True))
    heard, _ = settle(client, server, 50_000)
    assert b"".join(event.data for event in heard if isinstance(event, Data)) == down
    assert heard[-1] == End(stream_id)


def test_an_upload_stops_at_the_window_until_it_is_consumed() -> None:
    client, server = wired("h2")
    stream_id = client.new_stream()
    client.send(RequestHead(stream_id, "POST", "/", [], "a"))
    client.send(Body(stream_id, [bytes(3 << 20)]))
    heard = carry(client, server)
    while more := carry(client, server):
        heard += more
        carry(server, client)
    got = sum(event.credit for event in heard if isinstance(event, Data))
    assert got == 1 << 20
    assert client.unsent(stream_id) == 2 << 20
    server.send(Credit(stream_id, got))
    _, heard = settle(client, server)
    assert sum(event.credit for event in heard if isinstance(event, Data)) == 2 << 20


@VERSIONS
def test_continue(alpn: str) -> None:
    client, server = wired(alpn)
    stream_id = client.new_stream()
    client.send(RequestHead(stream_id, "PUT", "/", [("content-length", "2"), ("expect", "100-continue")], "a"))
    _, heard = settle(client, server)
    assert isinstance(heard[0], RequestHead)
    assert heard[0].expects_continue
    server.send(Continue(stream_id))
    heard, _ = settle(client, server)
    assert heard == [Continue(stream_id)]
    client.send(Body(stream_id, [b"ok"], end=True))
    _, heard = settle(client, server)
    assert heard == [Data(stream_id, b"ok", 2), End(stream_id)]


@VERSIONS
def test_a_head_request(alpn: str) -> None:
    client, server = wired(alpn)
    stream_id = client.new_stream()
    client.send(RequestHead(stream_id, "HEAD", "/", [], "a"))
    client.send(End(stream_id))
    settle(client, server)
    server.send(ResponseHead(stream_id, 200, [("content-length", "5")]))
    server.send(Body(stream_id, [b"hello"], end=True))
    heard, _ = settle(client, server)
    assert story(heard) == [("response", stream_id, 200, [("content-length", "5")]), End(stream_id)]


def test_a_draining_server_finishes_what_runs() -> None:
    client, server = wired("h2")
    stream_id = client.new_stream()
    client.send(RequestHead(stream_id, "GET", "/", [], "a"))
    client.send(End(stream_id))
    settle(client, server)
    server.send(GoAway())
    heard, _ = settle(client, server)
    assert heard == [GoAway(0, stream_id)]
    with pytest.raises(LocalProtocolError):
        client.send(RequestHead(stream_id + 2, "GET", "/", [], "a"))
    server.send(ResponseHead(stream_id, 200, []))
    server.send(Body(stream_id, [b"x"], end=True))
    heard, _ = settle(client, server)
    assert heard[-1] == End(stream_id)
    assert client.closed
    assert server.closed


def test_resets_cross_both_ways() -> None:
    client, server = wired("h2")
    first = client.new_stream()
    client.send(RequestHead(first, "GET", "/", [], "a"))
    second = client.new_stream()
    client.send(RequestHead(second, "GET", "/", [], "a"))
    settle(client, server)
    client.send(Reset(first, 0))
    server.send(Reset(second, 2))
    by_client, by_server = settle(client, server)
    assert by_server == [Reset(first, 0)]
    assert by_client == [Reset(second, 2)]


def test_a_response_with_close_ends_an_http1_connection() -> None:
    client, server = wired("http/1.1")
    client.send(RequestHead(1, "GET", "/", [("connection", "close")], "a"))
    client.send(End(1))
    settle(client, server)
    assert not client.closed
    server.send(ResponseHead(1, 200, []))
    server.send(Body(1, [b"bye"], end=True))
    heard, _ = settle(client, server)
    assert heard[-1] == End(1)
    assert server.closed
    assert client.closed
    assert pull(client) == []
