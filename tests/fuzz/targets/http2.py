"""HTTP/2: both ends of a connection, after the preface and the settings, which are not fuzzed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fuzz.laws import chosen, cuts
from support.http.story import answer_204, no_answer, said, tell, tells_the_same

from penstock.wire.codec import Role
from penstock.wire.http import Body, End, HttpCodec, HttpLimits, RequestHead, ResponseHead
from penstock.wire.http.h2 import Http2Connection

LIMITS: Final = HttpLimits(max_head=600, max_discard=1000, max_abandoned=3)
MOST_HELD: Final = LIMITS.max_frame + 9
FRAMES: Final = tuple(
    length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    for length, kind, flags, stream in (
        (1, 0, 1, 1),  # DATA
        (2, 0, 8, 1),
        (1, 1, 5, 1),  # HEADERS
        (1, 1, 0, 3),
        (1, 9, 4, 3),  # CONTINUATION
        (5, 2, 0, 1),  # PRIORITY
        (4, 3, 0, 1),  # RST_STREAM
        (6, 4, 0, 0),  # SETTINGS
        (0, 4, 1, 0),
        (4, 5, 4, 1),  # PUSH_PROMISE
        (8, 6, 0, 0),  # PING
        (8, 7, 0, 0),  # GOAWAY
        (4, 8, 0, 0),  # WINDOW_UPDATE
        (4, 8, 0, 1),
    )
)

WORDS: Final = FRAMES


def server() -> Http2Connection:
    """Return a server that has received the preface and a client's settings."""
    made = Http2Connection(Role.SERVER, LIMITS)
    made.receive(said(Http2Connection(Role.CLIENT, LIMITS)))
    tell(made, ())
    return made


def client() -> Http2Connection:
    """Return a client that has received a server's settings, and has sent two requests."""
    made = Http2Connection(Role.CLIENT, LIMITS)
    made.receive(said(Http2Connection(Role.SERVER, LIMITS)))
    for method in ("GET", "HEAD"):
        stream_id = made.new_stream()
        made.send(RequestHead(stream_id, method, "/", [], "a"))
        made.send(End(stream_id))
    said(made)
    return made


def seeds() -> Iterator[bytes]:
    """Yield two requests, their answers, and one frame of each kind."""
    asking = Http2Connection(Role.CLIENT, LIMITS)
    first = said(asking)
    asking.receive(said(Http2Connection(Role.SERVER, LIMITS)))
    for method in ("GET", "POST"):
        stream_id = asking.new_stream()
        asking.send(RequestHead(stream_id, method, "/a?b", [("x", "y"), ("expect", "100-continue")], "a"))
        asking.send(Body(stream_id, [b"hello"]))
        asking.send(End(stream_id, [("sum", "1")]))
    requests = said(asking)
    yield b"\0" + requests
    answering = Http2Connection(Role.SERVER, LIMITS)
    answering.receive(first + requests)
    tell(answering, (), _answer)
    yield b"\1" + said(answering)
    for index in (0, 1):
        yield bytes([index]) + b"".join(head + bytes(int.from_bytes(head[:3], "big")) for head in FRAMES)


def _answer(codec: HttpCodec, event: object) -> None:
    if isinstance(event, End):
        codec.send(ResponseHead(event.stream_id, 200, [("x", "y")]))
        codec.send(Body(event.stream_id, [b"OK"]))
        codec.send(End(event.stream_id, [("sum", "1")]))


def check(data: bytes) -> None:
    """Check that events do not depend on cuts, that no more than a frame is held, and that answers and preludes can
    always be made."""
    (make, answer), received = chosen(((server, answer_204), (client, no_answer)), data)
    if not received:
        return  # no bytes are the end of the connection
    for codec in tells_the_same(make, received, cuts(received), answer):
        assert codec.buffered <= MOST_HELD
        said(codec)
