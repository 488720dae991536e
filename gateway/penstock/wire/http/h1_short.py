"""Short exchanges of an HTTP/1.1 server: requests that come whole, with headers that h11 has accepted before.

h11 takes three quarters of a codec's time for a small request, most of it for the same lines again and again. A request
is taken without it if it is complete in one read, its headers are known, and its first line has the usual form; its
response is written without h11 if it says its length. In all other cases, at whatever point they appear, h11 repeats
the exchange so far and goes on: what is accepted, refused and sent is always what h11 would accept, refuse and send.

Headers are known once h11 has parsed them for a connection that sent the same twice. The length of the body may differ.
Each connection knows its own, and forgets them when it ends: they may hold credentials.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import h11

from penstock.wire.http.events import (
    Body,
    Buffer,
    Data,
    End,
    HttpHeaders,
    Received,
    RequestHead,
    ResponseHead,
    body_forbidden,
)
from penstock.wire.http.header_names import header_name

__all__ = ["BodyParts", "ShortExchange", "ShortRequests", "encoded", "response_of", "text_of"]

_REASONS: Final = {int(status): status.phrase.encode("ascii") for status in HTTPStatus}
_MOST_KNOWN: Final = 4
"""Header blocks that a connection keeps; each has at most `HttpLimits.max_short` bytes. Clients that append and read
need two."""
_FIRST_LINE: Final = re.compile(rb"(?!CONNECT )([A-Z]{1,20}) (/[!-~]*) HTTP/1\.1")
_LENGTH: Final = re.compile(rb"\n[Cc]ontent-[Ll]ength: ([0-9]{1,6})\r\n")
_CHANGES_THE_CONNECTION: Final = frozenset({"transfer-encoding", "expect", "upgrade"})
_ABOUT_FRAMING: Final = frozenset({"connection", "content-length", "transfer-encoding", "host"})
"""Headers of a response that h11 changes, moves or compares with each other."""


class _Known(NamedTuple):
    """A block of headers that h11 accepts. `length_at`: index of the body's length, -1 if there is none."""

    headers: tuple[tuple[str, str], ...]
    length_at: int
    host: str


class BodyParts:
    """Stands for several parts in a call of h11, which only uses its length and returns it."""

    __slots__ = ("length", "parts")

    def __init__(self, parts: Sequence[Buffer], length: int) -> None:
        self.parts = parts
        self.length = length

    def __len__(self) -> int:
        return self.length


class ShortRequests:
    """Recognizes the short requests of one connection."""

    __slots__ = ("_before", "_known")

    def __init__(self) -> None:
        self._before = 0  # hash of the last block that was not known
        # Blocks with the digits of the body's length replaced by 0; None for those that only h11 may take.
        self._known: dict[bytes, _Known | None] = {}

    def begin(self, data: bytes, stream_id: int, scheme: str) -> ShortExchange | None:
        """Return the exchange that these bytes begin; None if they are anything but one whole request with known
        headers."""
        head_end = data.find(b"\r\n\r\n") + 4
        line_end = data.find(b"\r\n")
        line = _FIRST_LINE.fullmatch(data, 0, line_end)
        if head_end < 4 or line is None:
            return None
        block = data[line_end + 1 : head_end]  # from the line feed on
        body, length = b"", _LENGTH.search(block)
        if length is not None:
            body = data[head_end:]
            if int(length[1]) != len(body):
                return None
            block = block[: length.start(1)] + b"0" + block[length.end(1) :]
        elif len(data) != head_end:
            return None
        known = self._known[block] if block in self._known else self._learn(block)
        if known is None:
            return None
        headers: HttpHeaders = known.headers
        if length is not None:
            at = known.length_at
            headers = (*headers[:at], (headers[at][0], str(length[1], "ascii")), *headers[at + 1 :])
        method, target = str(line[1], "ascii"), str(line[2], "ascii")
        head = RequestHead(stream_id, method, target, headers, known.host, scheme, "1.1")
        return ShortExchange(data, head, body)

    def _learn(self, block: bytes) -> _Known | None:
        """Let h11 parse a block, if it is the second of its kind: most blocks that change are never seen again."""
        if self._before != (before := hash(block)):
            self._before = before
            return None
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        known = self._known[block] = _parsed(block)
        return known


def _parsed(block: bytes) -> _Known | None:
    """Return the headers of a block as h11 delivers them; None if it refuses them, or if more follows from them than a
    body of a certain length."""
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(b"GET / HTTP/1.1\r" + block)
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request) or parser.trailing_data[0]:
        return None
    headers = text_of(event.headers)
    names = [name for name, _ in headers]
    measured = _LENGTH.search(block) is not None
    if block.lower().count(b"content-length") != measured or not _CHANGES_THE_CONNECTION.isdisjoint(names):
        return None
    if any(name == "connection" and value.lower() != "keep-alive" for name, value in headers):
        return None
    return _Known(headers, names.index("content-length") if measured else -1, dict(headers)["host"])


class ShortExchange:
    """One exchange without h11, until it is `over` or h11 must take it.

    `undelivered`: events of the request that were not delivered yet, the next one last. `response`: the head of the
    response once it is sent. `over`: the response is complete. `buffered`: bytes received and not yet delivered.
    """

    __slots__ = (
        "_body_bytes",
        "_delivered",
        "_left",
        "_request",
        "_sent",
        "buffered",
        "head",
        "over",
        "response",
        "undelivered",
    )

    def __init__(self, request: bytes, head: RequestHead, body: bytes) -> None:
        self.head = head
        self.undelivered: list[Received] = [End(head.stream_id), head]
        if body:
            self.undelivered.insert(1, Data(head.stream_id, body, len(body)))
        self.over = False
        self.buffered = len(request)
        self._body_bytes = len(body)
        self._request = request
        self._delivered = 0
        self.response: ResponseHead | None = None
        self._left = self._sent = 0  # bytes of the response's body

    def next_event(self) -> Received | None:
        """Return the next event of the request; None after the last."""
        if not self.undelivered:
            return None
        self._delivered += 1
        event = self.undelivered.pop()
        self.buffered = self._body_bytes if event is self.head else 0
        return event

    @property
    def begun(self) -> bool:
        """True once the head of the request was delivered."""
        return self._delivered > 0

    def answer(self, event: object) -> Sequence[Buffer] | None:
        """Return the bytes that send `event`; None if h11 must send it, for which `repeat` is to be called."""
        if type(event) is ResponseHead:
            return self._begin(event)
        if self.response is None or self.over:
            return None
        if type(event) is Body:
            size = sum(map(len, event.parts))
            if size > self._left or (event.end and size != self._left):
                return None
            self._left -= size
            self._sent += size
            self.over = event.end
            return event.parts
        if type(event) is End and not event.trailers and not self._left:
            self.over = True
            return ()
        return None

    def _begin(self, event: ResponseHead) -> Sequence[Buffer] | None:
        # An answer amid the request is h11's, which then drops the rest of it.
        if self.response is not None or self.undelivered or body_forbidden(self.head.method, event.status):
            return None
        if event.status > 999:
            return None
        try:
            lines = [_line(name, value) for name, value in event.headers]
        except ValueError:
            return None
        lengths = [value for name, value in event.headers if name == "content-length"]
        if len(lengths) != 1 or (event.end and lengths[0] != "0"):
            return None
        self.response = event
        self._left = int(lengths[0])
        self.over = event.end
        return (b"".join([_status_line(event.status), *lines, b"\r\n"]),)

    def repeat(self, to: h11.Connection) -> None:
        """Bring h11 into the state of this exchange, of which it has seen nothing. It has sent nothing for it then."""
        to.receive_data(self._request)
        for _ in range(self._delivered):
            to.next_event()
        if self.response is not None:
            to.send_with_data_passthrough(response_of(self.response.status, encoded(self.response.headers)))
            if self._sent:
                to.send_with_data_passthrough(h11.Data(data=BodyParts((), self._sent)))  # type: ignore[arg-type]
        if self.over:
            to.send(h11.EndOfMessage())


def response_of(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    """Return the head of a response as an event of h11. Raises h11.LocalProtocolError."""
    return h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b""))


@lru_cache(512)
def _line(name: str, value: str) -> bytes:
    """Return the line of a header that does not change the connection. Raises ValueError for others, and for those that
    h11 would refuse."""
    usual = name.lower() not in _ABOUT_FRAMING
    if not usual and not (name == "content-length" and value.isascii() and value.isdigit() and len(value) < 16):
        raise ValueError
    pair = (name.encode("latin-1"), value.encode("latin-1"))
    try:
        h11.Response(status_code=200, headers=[pair])
    except h11.LocalProtocolError as error:
        raise ValueError from error
    return b"%b: %b\r\n" % pair


@lru_cache(64)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b""))


def text_of(headers: Any) -> tuple[tuple[str, str], ...]:
    """Return headers of h11 as text."""
    return tuple([(header_name(bytes(name)), str(value, "latin-1")) for name, value in headers])


def encoded(headers: HttpHeaders) -> list[tuple[bytes, bytes]]:
    """Return headers as h11 takes them. It would accept text in ASCII only, and an answer may repeat the client's
    bytes."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
