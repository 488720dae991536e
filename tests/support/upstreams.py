"""Servers without sockets for clients of `penstock.backs.upstream`: served by our own HTTP server, or by a script."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from support.http_client import StreamPair, memory_pair

from penstock.backs.http import HttpClient, HttpClientSettings
from penstock.backs.upstream import Credentials, Upstream, UpstreamSettings
from penstock.fronts.exchange import Handler
from penstock.fronts.http_server import Drain, HttpSettings, serve_http
from penstock_codecs.codec import Role
from penstock_codecs.http import HttpLimits, Outgoing, Received, connection

Serve = Callable[[trio.abc.Stream], Awaitable[object]]
WHERE = "back far at example:1"


class Far:
    """What an upstream dials: each connection is served by `serve` in `nursery`; while not `up`, none is made."""

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
        """The next event. Raises EOFError where the client has closed."""
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


def by(handler: Handler, settings: HttpSettings | None = None, drain: Drain | None = None) -> Serve:
    """Serve with our own HTTP server."""
    return partial(serve_http, handler=handler, settings=settings, drain=drain)


@asynccontextmanager
async def client_of(
    serve: Serve, settings: HttpClientSettings, pair: StreamPair = memory_pair, **upstream: Any
) -> AsyncIterator[tuple[HttpClient, Far]]:
    """A client, and the server that it dials."""
    async with far_server(serve, pair) as far, HttpClient(far.upstream(**upstream), settings) as client:
        yield client, far
