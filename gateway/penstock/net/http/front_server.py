"""Servers of fronts that answer HTTP exchanges."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import trio

from penstock.model.failures import Failure, FailureCode
from penstock.net.draining import Draining
from penstock.net.http.exchange import Exchange
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.net.http.traced import traced_requests
from penstock.wire.http_failures import failure_to_http

__all__ = ["HttpFront", "HttpServer", "refuse_http"]


class HttpFront(Protocol):
    """A front that answers HTTP exchanges."""

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange."""

    def drain(self) -> None:
        """Prepare for the gateway's shutdown."""


class HttpServer:
    """Serves a front's HTTP connections."""

    def __init__(self, settings: HttpSettings, front: HttpFront) -> None:
        self._settings = settings
        self._front = front
        self._handle = traced_requests(front.handle)
        self._drain = Draining()

    def serve(self, stream: trio.abc.Stream) -> Awaitable[None]:
        """Serve one connection until it ends."""
        return serve_http(stream, self._handle, self._settings, self._drain)

    def begin_drain(self) -> None:
        """Drain the front and its connections: the gateway is about to stop."""
        self._front.drain()
        self._drain.begin()


async def refuse_http(stream: trio.abc.Stream, limit: str) -> None:
    """Answer 503 to any first request of a client, because a limit is reached."""
    drain = Draining()

    async def handler(exchange: Exchange) -> None:
        _, body = failure_to_http(Failure(FailureCode.RATE_LIMITED, f"{limit} is reached, try again later"))
        await exchange.respond(503, [("content-type", "application/json"), ("retry-after", "1")], body)
        drain.begin()

    await serve_http(stream, handler, HttpSettings(), drain)
