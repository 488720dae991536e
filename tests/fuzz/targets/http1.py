"""HTTP/1.1: both ends of a connection, what a relay passes on, and the reader of recordings beside the codec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fuzz.laws import chosen, cuts
from support.captures.dialogues import CLIENT, conversation, events, hear, parts
from support.http.story import answer_204, no_answer, plain, said, tells_the_same

from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.model.failures import RemoteProtocolError
from penstock.wire.codec import NEED_DATA, Pull, Role
from penstock.wire.http import Body, Data, End, HttpLimits, RequestHead
from penstock.wire.http.h1 import Http1Connection

LIMITS: Final = HttpLimits(max_head=600, max_discard=1000)
ASKED: Final = (("GET",), ("HEAD", "GET"), ("POST", "POST"))
"""The requests that a client has sent before it receives."""

WORDS: Final = (
    b"GET / HTTP/1.1\r\n",
    b"POST http://a/ HTTP/1.1\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 304\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"host: a\r\n",
    b"content-length: ",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"expect: 100-continue\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"5;x=y\r\n",
)


def server() -> Http1Connection:
    """Return a server."""
    return Http1Connection(Role.SERVER, LIMITS)


def client(methods: tuple[str, ...]) -> Http1Connection:
    """Return a client that has sent the first of these requests."""
    made = Http1Connection(Role.CLIENT, LIMITS)
    _ask(made, methods[0], 1)
    return made


def _ask(made: Http1Connection, method: str, exchange: int) -> None:
    made.send(RequestHead(exchange, method, "/", [("host", "a")]))
    made.send(End(exchange))


def seeds() -> Iterator[bytes]:
    """Yield requests, and the answers to them, in every framing."""
    yield b"\0GET /a?b HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\n\r\nhello"
    yield (
        b"\0PUT http://b:1/c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
        b"5;x=y\r\nhello\r\n0\r\nsum: 1\r\n\r\nHEAD / HTTP/1.0\r\n\r\n"
    )
    yield b"\1HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nOK"
    yield b"\2HTTP/1.1 304\r\ncontent-length: 9\r\n\r\nHTTP/1.0 200 OK\r\n\r\nuntil the end"
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nsum: 1\r\n\r\n"
    yield b"\3" + chunked + chunked


def check(data: bytes) -> None:
    """Check that events do not depend on cuts, that a request that is passed on is received as it was, and that the
    reader of recordings judges a head as the codec does."""
    asked, received = chosen((None, *ASKED), data)
    make, answer = (server, answer_204) if asked is None else (lambda: client(asked), no_answer)
    if not received:
        return  # no bytes are the end of the connection
    tells_the_same(make, received, cuts(received), answer)
    if asked is None:
        _passed_on(received)
        _judged_alike(received)


def _passed_on(received: bytes) -> None:
    """Check that another server receives the first request as it was, and nothing beside it: a difference would let
    clients smuggle requests past the one that checks them."""
    first = _first_request(server(), received)
    if first is None:
        return
    head, body, trailers = first
    sender, receiver = Http1Connection(Role.CLIENT), server()
    sender.send(RequestHead(1, head.method, head.target, head.headers, head.authority))
    sender.send(Body(1, [body]))
    sender.send(End(1, trailers))
    wire = said(sender)
    again = _first_request(receiver, wire)
    assert again is not None, f"{head} became {wire!r}, which is incomplete"
    assert (again[0].method, again[0].target, plain(again[0].headers)) == (
        head.method,
        head.target,
        plain(head.headers),
    )
    assert (again[1], list(again[2])) == (body, list(trailers))
    answer_204(receiver, End(1))
    assert receiver.next_event() is NEED_DATA and not receiver.buffered, f"{wire!r} has more than a request"


def _first_request(codec: Http1Connection, received: bytes) -> tuple[RequestHead, bytes, Any] | None:
    codec.receive(received)
    head, body = None, b""
    try:
        while not isinstance(event := codec.next_event(), Pull):
            match event:
                case RequestHead():
                    head = event
                case Data():
                    body += event.data
                case End() if head is not None:
                    return head, body, event.trailers
    except RemoteProtocolError:
        pass
    return None


def _judged_alike(received: bytes) -> None:
    head = received.lstrip(b"\r\n")
    told, problems, _ = parts(hear(HttpDialogue(conversation("")), events(conversation(""), [(CLIENT, head)])))
    codec = Http1Connection(Role.SERVER)
    codec.receive(head)
    try:
        event = codec.next_event()
    except RemoteProtocolError:
        assert not told and problems, f"the reader of recordings accepts {head!r}"
        return
    if isinstance(event, RequestHead):
        assert told, f"the reader of recordings refuses {head!r}: {problems}"
        seen = told[0].event
        assert (seen.method, seen.target, seen.authority, seen.version) == (
            event.method,
            event.target,
            event.authority,
            event.version,
        )
