"""The HTTP client of a back."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self

import msgspec
import trio

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.net.http.client.connection import HttpStream
from penstock.net.http.client.pool import HttpPool
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.upstream import Upstream, broke
from penstock.wire.http import Body, Buffer, End, HttpHeaders, RequestHead

__all__ = ["HttpClient", "Response"]

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Idempotent methods (RFC 9110, 9.2.2)."""
_ATTEMPTS: Final = 3
"""Attempts for one request: after a server's restart several connections of the pool may be found dead."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Response(msgspec.Struct, frozen=True):
    """A whole response. Header names are in lower case."""

    status: int
    headers: HttpHeaders
    body: bytes
    trailers: HttpHeaders = ()

    def header(self, name: str) -> str | None:
        """Return the value of header `name` (lower case), the first if it is repeated, or None."""
        return next((value for key, value in self.headers if key == name), None)


class HttpClient:
    """A client of one server; an async context manager, at whose end all its connections are closed.

    Requests carry `authorization: Bearer` with the token of the upstream's credentials for the client that the current
    task works for, unless they have that header already.
    """

    def __init__(self, upstream: Upstream, settings: HttpClientSettings | None = None) -> None:
        self.upstream = upstream
        self._settings = settings or HttpClientSettings()
        self._scheme = "http" if upstream.settings.tls is None else "https"
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery
        self._pool: HttpPool

    async def __aenter__(self) -> Self:
        """Enter the client; connections are made when they are needed."""
        self._nursery = await self._manager.__aenter__()
        self._pool = HttpPool(self.upstream, self._settings, self._nursery)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections. Exceptions of the block are raised as they are, not in a group."""
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    async def request(
        self,
        method: str,
        target: str,
        headers: HttpHeaders = (),
        body: Buffer = b"",
        *,
        authority: str | None = None,
        max_body: int = 4 * MIB,
        seconds: float | None = None,
        idempotent: bool | None = None,
    ) -> Response:
        """Make a request and return the whole response, of any status.

        The response must be complete `seconds` after a connection was acquired (None: the upstream's
        `request_seconds`), and its body not be longer than `max_body` bytes.

        A request that the server says it did not process is repeated, and so is an `idempotent` one (None: by its
        method) whose connection, used before, was lost without a response.

        Raises OperationFailed: HOT_SERVER, UNAVAILABLE or UPSTREAM_TIMEOUT as `penstock.net.upstream` defines them;
        UPSTREAM_FAULT for a response that is too long.
        """
        again = method in _IDEMPOTENT if idempotent is None else idempotent
        limit = self.upstream.settings.request_seconds if seconds is None else seconds
        length = [("content-length", str(len(body)))] if body or method in ("POST", "PUT", "PATCH") else []
        attempts = 0
        while True:
            attempts += 1
            async with self._opened(self._head(method, target, [*headers, *length], authority)) as (stream, reused):
                stream.whole(*([Body(stream.stream_id, [body], end=True)] if body else [End(stream.stream_id)]))
                try:
                    return await self._answer(stream, limit, max_body)
                except OperationFailed as error:
                    stale = reused and not stream.answered and error.failure.code is FailureCode.UNAVAILABLE
                    if attempts == _ATTEMPTS or not (stream.unprocessed or (again and stale)):
                        raise

    async def _answer(self, stream: HttpStream, seconds: float, max_body: int) -> Response:
        with trio.move_on_after(seconds):
            head = await stream.receive_head(math.inf)
            body = bytearray()
            while piece := await stream.receive():
                body += piece
                if len(body) > max_body:
                    raise broke(self.upstream.settings, f"the answer is longer than {max_body} bytes")
            return Response(head.status, head.headers, bytes(body), stream.trailers)
        raise stream.late(seconds)

    @asynccontextmanager
    async def open(
        self, method: str, target: str, headers: HttpHeaders = (), *, body: bool, authority: str | None = None
    ) -> AsyncIterator[HttpStream]:
        """Open an exchange, full duplex; leaving the block early resets it. With `body` the request has one, to be sent
        with `send` and ended with `finish`.

        Raises OperationFailed(HOT_SERVER) if no connection is available.
        """
        framed = not body or any(name == "content-length" for name, _ in headers)
        framing = [] if framed else [("transfer-encoding", "chunked")]  # HTTP/2 drops it
        async with self._opened(self._head(method, target, [*headers, *framing], authority)) as (stream, _):
            if body:
                stream.begun()
            else:
                stream.whole(End(stream.stream_id))
            yield stream

    @asynccontextmanager
    async def _opened(self, head: RequestHead) -> AsyncIterator[tuple[HttpStream, bool]]:
        """Open a stream and send its head. Yields it, and whether its connection had been used before."""
        while True:
            connection = await self._pool.acquire()
            reused = connection.used
            try:
                stream = connection.begin(head)
            finally:
                self._pool.release(connection)
            if stream is not None:
                break
        try:
            yield stream, reused
        finally:
            connection.leave(stream)

    def _head(self, method: str, target: str, headers: list[tuple[str, str]], authority: str | None) -> RequestHead:
        if not any(name == "authorization" for name, _ in headers):
            token = self.upstream.credentials.token()
            if token is not None:
                headers.append(("authorization", f"Bearer {token}"))
        return RequestHead(0, method, target, headers, authority or self.authority, self._scheme)

    @property
    def authority(self) -> str:
        """The server's host, and its port unless it is the scheme's default."""
        settings = self.upstream.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        return host if settings.port == _DEFAULT_PORTS[self._scheme] else f"{host}:{settings.port}"
