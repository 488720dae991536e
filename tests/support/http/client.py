"""A small HTTP client over one trio stream, either version, for tests of servers."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from penstock.net.draining import Draining
from penstock.net.http.exchange import Handler
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.wire.codec import Role
from penstock.wire.http import (
    Body,
    Credit,
    Data,
    End,
    HttpLimits,
    Outgoing,
    Received,
    RequestHead,
    ResponseHead,
    connection,
)

StreamPair = Callable[[], tuple[trio.abc.Stream, trio.abc.Stream]]


def memory_pair() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """Two ends of a connection in memory; it holds any number of bytes."""
    return trio.testing.memory_stream_pair()


def socket_pair() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """Two ends of a real socket, which holds some 200 KB."""
    ends = socket.socketpair()
    near, far = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in ends)
    return near, far


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes
    trailers: dict[str, str] = field(default_factory=dict)


class HttpClient:
    """`events` of a stream come from `next`; body is credited when it is asked for."""

    def __init__(self, stream: trio.abc.Stream, alpn: str, limits: HttpLimits | None = None) -> None:
        self.stream = stream
        self.codec = connection(alpn, Role.CLIENT, limits)
        self._events: dict[int, list[Received]] = defaultdict(list)
        self.gone = False

    async def say(self, *events: Outgoing) -> None:
        """Send events; body that has no window stays behind until something comes in."""
        for event in events:
            self.codec.send(event)
        await self.write()

    async def write(self) -> None:
        while parts := self.codec.output(1 << 20):
            await self.stream.send_all(b"".join(parts))

    async def open(self, method: str, target: str, headers: list[tuple[str, str]] | None = None) -> int:
        """Send the head of a request."""
        stream_id = self.codec.new_stream()
        scheme = "https" if isinstance(self.stream, trio.SSLStream) else "http"
        await self.say(RequestHead(stream_id, method, target, headers or [], "test:1", scheme))
        return stream_id

    async def next(self, stream_id: int = 0) -> Received:
        """Return the next event of a stream (0: GoAway and Ended). Raises EOFError if the connection ended earlier."""
        while not self._events[stream_id]:
            if self.gone:
                raise EOFError("the server closed the connection")
            await self.pump()
        event = self._events[stream_id].pop(0)
        if isinstance(event, Data):
            await self.say(Credit(stream_id, event.credit))
        return event

    def taken(self) -> list[Received]:
        """All events of all streams that have come; body is not credited."""
        events = [event for some in self._events.values() for event in some]
        self._events.clear()
        return events

    async def pump(self) -> None:
        """Read once."""
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        self.gone = not data
        self.codec.receive(data)
        while isinstance(event := self.codec.next_event(), Received):
            self._events[getattr(event, "stream_id", 0)].append(event)
        if not self.gone:
            await self.write()

    async def head(self, stream_id: int) -> ResponseHead:
        event = await self.next(stream_id)
        assert isinstance(event, ResponseHead), event
        return event

    async def data(self, stream_id: int, size: int) -> bytes:
        """Exactly `size` bytes of body."""
        got = b""
        while len(got) < size:
            event = await self.next(stream_id)
            assert isinstance(event, Data), event
            got += event.data
        assert len(got) == size
        return got

    async def answer(self, stream_id: int) -> Answer:
        head = await self.head(stream_id)
        pieces, end = await self._rest(stream_id)
        return Answer(head.status, dict(head.headers), b"".join(pieces), dict(end.trailers))

    async def answer_body(self, stream_id: int) -> bytes:
        """Return the response's body; its head has been read."""
        return b"".join((await self._rest(stream_id))[0])

    async def _rest(self, stream_id: int) -> tuple[list[bytes], End]:
        pieces = []
        while not isinstance(event := await self.next(stream_id), End):
            assert isinstance(event, Data), event
            pieces.append(event.data)
        return pieces, event

    async def ask(
        self, method: str, target: str, headers: list[tuple[str, str]] | None = None, body: bytes = b""
    ) -> Answer:
        """Send a request and return its whole response."""
        fields = [*(headers or []), *([("content-length", str(len(body)))] if body else [])]
        stream_id = await self.open(method, target, fields)
        await self.say(Body(stream_id, [body], end=True))
        return await self.answer(stream_id)

    async def closed(self) -> bool:
        """Wait until the server closes; whether it did without sending anything more."""
        while not self.gone:
            await self.pump()
        return not any(events for stream_id, events in self._events.items() if stream_id)


@asynccontextmanager
async def serving(
    handler: Handler,
    alpn: str,
    pair: StreamPair = memory_pair,
    settings: HttpSettings | None = None,
    drain: Draining | None = None,
) -> AsyncIterator[HttpClient]:
    """A client whose other end is served; at the end the client closes and the server must end too."""
    near, far = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_http, far, handler, settings, drain)
        async with near:
            yield HttpClient(near, alpn)
