"""Servers without sockets for clients of `penstock.net.upstream`: served by our own HTTP server, or by a script."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from support.http.client import StreamPair, memory_pair

from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.draining import Draining
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.http.exchange import Handler
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.net.upstream import Credentials, Upstream, UpstreamSettings
from penstock.wire.codec import Role
from penstock.wire.http import Body, End, HttpLimits, Outgoing, Received, ResponseHead, connection

Serve = Callable[[trio.abc.Stream], Awaitable[object]]
WHERE = "back far at example:1"


class Far:
    """The far end of an upstream: each connection is served by `serve` in `nursery`; while not `up`, dialling fails."""

    def __init__(self, nursery: trio.Nursery, serve: Serve, pair: StreamPair = memory_pair) -> None:
        self.nursery = nursery
        self.serve = serve
        self.pair = pair
        self.up = True
        self.silent = False
        self.dials = 0
        self.open = 0

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        self.dials += 1
        await trio.lowlevel.checkpoint()
        if self.silent:
            await trio.sleep_forever()
        if not self.up:
            raise OSError(errno.ECONNREFUSED, "no")
        near, far = self.pair()
        self.nursery.start_soon(self._serve, far)
        return near

    async def _serve(self, stream: trio.abc.Stream) -> None:
        self.open += 1
        try:
            async with stream:
                await self.serve(stream)
        finally:
            self.open -= 1

    def upstream(self, credentials: Credentials | None = None, **settings: Any) -> Upstream:
        found = UpstreamSettings(**{"name": "far", "host": "example", "port": 1, **settings})
        return Upstream(found, credentials, self.dial)


class Script:
    """The server's side of one connection, event by event."""

    def __init__(self, stream: trio.abc.Stream, alpn: str, limits: HttpLimits | None = None) -> None:
        self.stream = stream
        self.codec = connection(alpn, Role.SERVER, limits)
        self._events: deque[Received] = deque()
        self._writing = trio.Lock()

    async def next(self) -> Received:
        """Return the next event. Raises EOFError if the client has closed."""
        while not self._events:
            try:
                data = await self.stream.receive_some(1 << 16)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise EOFError
            self.codec.receive(data)
            while isinstance(event := self.codec.next_event(), Received):
                self._events.append(event)
            await self.say()
        return self._events.popleft()

    async def say(self, *events: Outgoing) -> None:
        for event in events:
            self.codec.send(event)
        async with self._writing:
            while parts := self.codec.output(1 << 20):
                await self.stream.send_all(b"".join(parts))


@asynccontextmanager
async def far_server(serve: Serve, pair: StreamPair = memory_pair) -> AsyncIterator[Far]:
    """A server that is gone at the end of the block."""
    async with trio.open_nursery() as nursery:
        yield Far(nursery, serve, pair)
        nursery.cancel_scope.cancel()


def by(handler: Handler, settings: HttpSettings | None = None, drain: Draining | None = None) -> Serve:
    """Serve with our own HTTP server."""
    return partial(serve_http, handler=handler, settings=settings, drain=drain)


@asynccontextmanager
async def client_of(
    serve: Serve, settings: HttpClientSettings, pair: StreamPair = memory_pair, **upstream: Any
) -> AsyncIterator[tuple[HttpClient, Far]]:
    """A client, and the server that it dials."""
    async with far_server(serve, pair) as far, HttpClient(far.upstream(**upstream), settings) as client:
        yield client, far


class Scripted:
    """Serves the connections one after the other by these parts; the last serves all that come after."""

    def __init__(self, settings: HttpClientSettings, *parts: Callable[[Script], Awaitable[None]]) -> None:
        self.alpn = "h2" if settings.version is HttpVersion.H2 else "http/1.1"
        self.parts = list(parts)
        self.limits: HttpLimits | None = None

    async def __call__(self, stream: trio.abc.Stream) -> None:
        part = self.parts.pop(0) if len(self.parts) > 1 else self.parts[0]
        try:
            await part(Script(stream, self.alpn, self.limits))
        except* (EOFError, trio.BrokenResourceError):
            pass


async def answer(script: Script, stream_id: int, body: bytes = b"ok") -> None:
    length = [("content-length", str(len(body)))]
    await script.say(ResponseHead(stream_id, 200, length), Body(stream_id, [body], end=True))


async def answers(script: Script) -> None:
    """Answers each request when it is complete."""
    while True:
        event = await script.next()
        if isinstance(event, End):
            await answer(script, event.stream_id)


async def hangs_up(script: Script) -> None:
    """Closes when it has the first request."""
    while not isinstance(await script.next(), End):
        pass


async def answers_once(script: Script) -> None:
    """Answers the first request and closes at the second."""
    while not isinstance(event := await script.next(), End):
        pass
    await answer(script, event.stream_id)
    await hangs_up(script)


async def ignores(script: Script) -> None:
    """Reads and says nothing."""
    while True:
        await script.next()


async def failed(awaitable: Awaitable[object]) -> tuple[FailureCode, str]:
    """Await an operation that must fail, and return the code and message of its failure."""
    with pytest.raises(OperationFailed) as caught:
        await awaitable
    return caught.value.failure.code, caught.value.failure.message
