"""A server of Durable Streams (our own front over a store) whose answers can be lost, and backs over it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.durable import SETTINGS, Service, running
from support.store import BASIN
from support.upstreams import Far, far_server
from trio.testing import MockClock

from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, open_indexed
from penstock.net.http.exchange import Exchange, Request
from penstock.net.http.serving import serve_http
from penstock_durable.back import DurableBackSettings, DurableNative, open_durable
from penstock_durable.names import DurableNames

READ_BYTES = 110_000
"""Bytes after which the server ends an answer, so that most reads need several, and the largest append."""


class Server:
    """The server. `requests`: methods and URLs. `lost`: how many of the next POSTs are carried out, and their answers
    lost with the connection. `before`: the same, but the POSTs do not arrive. `forgetful`: added to the names of
    producers, so that they are new ones. `while_lost`: called when an answer is lost. `before_read`:
    awaited with the query of a GET before it is answered. `held`: answers to GETs end only after this event."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.requests: list[str] = []
        self.lost = 0
        self.before = 0
        self.forgetful = ""
        self.while_lost: Callable[[], object] = bool
        self.before_read: Callable[[str], Awaitable[object]] | None = None
        self.held: trio.Event | None = None
        self.far: Far

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection."""

        async def handle(exchange: Exchange) -> None:
            request = exchange.request
            self.requests.append(f"{request.method} {request.path}?{request.query}")
            if request.method == "POST" and self.before:
                self.before -= 1
                await _lose(stream)
            if request.method == "POST" and self.lost:
                self.lost -= 1
                self.while_lost()
                exchange = Unheard(exchange, stream)
            if request.method == "GET" and self.before_read is not None:
                await self.before_read(request.query)
            if request.method == "GET" and self.held is not None:
                exchange = Held(exchange, self.held)
            if self.forgetful:
                exchange = Renamed(exchange, self.forgetful)
            await self.service.front.handle(exchange)

        with suppress(trio.ClosedResourceError):
            try:
                await serve_http(stream, handle)
            except* trio.ClosedResourceError:
                pass

    @asynccontextmanager
    async def native(self, **options: Any) -> AsyncIterator[DurableNative]:
        """A client of the server."""
        settings = replace(DurableBackSettings(names=DurableNames("/v1/stream/", BASIN)), **options)
        upstream = self.far.upstream(breaker_failures=1000)
        async with open_durable(upstream, self.service.back, settings) as native:
            yield native

    @asynccontextmanager
    async def back(self, create_streams: bool = False, **options: Any) -> AsyncIterator[IndexedBack]:
        """A whole back, with its state in the server's store."""
        settings = IndexedSettings(create_streams=create_streams)
        async with (
            self.native(**options) as native,
            open_indexed(native, "far", self.service.back, settings) as back,
        ):
            yield back


class Relayed(Exchange):
    """An exchange as it is."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __getattribute__(self, name: str) -> Any:
        own = name.startswith("_") or name in type(self).__dict__
        return object.__getattribute__(self, name) if own else getattr(self._exchange, name)


class Unheard(Relayed):
    """One whose answer is lost."""

    def __init__(self, exchange: Exchange, stream: trio.abc.Stream) -> None:
        super().__init__(exchange)
        self._stream = stream

    async def respond(self, *_arguments: object, **_more: object) -> None:
        await _lose(self._stream)


class Held(Relayed):
    """One whose answer ends after an event."""

    def __init__(self, exchange: Exchange, until: trio.Event) -> None:
        super().__init__(exchange)
        self._until = until

    async def respond(self, status: int, headers: Any, body: bytes = b"", **_more: object) -> None:
        await self._exchange.start(status, headers)
        await self._exchange.send([body])
        await self._until.wait()
        await self._exchange.finish()


class Renamed(Relayed):
    """One of a producer whose name is another."""

    def __init__(self, exchange: Exchange, more: str) -> None:
        super().__init__(exchange)
        self._more = more

    @property
    def request(self) -> Request:
        request = self._exchange.request
        headers = [(name, value + self._more if name == "producer-id" else value) for name, value in request.headers]
        return dataclasses.replace(request, headers=tuple(headers))


async def _lose(stream: trio.abc.Stream) -> None:
    await stream.aclose()
    await trio.sleep_forever()  # until the connection's end is noticed


@pytest.fixture
async def server(clock: MockClock, tmp_path: Path) -> AsyncIterator[Server]:
    settings = replace(SETTINGS, max_read_bytes=READ_BYTES, max_append_bytes=READ_BYTES)
    async with running(tmp_path, settings) as service:
        made = Server(service)
        async with far_server(made.serve) as far:
            made.far = far
            yield made
