"""Requests to one server of Durable Streams, and what its answers mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Final, TypeVar

import trio

from penstock.model.failures import Failure, OperationFailed, RemoteProtocolError
from penstock.model.limits import KIB
from penstock.model.records import StreamRef
from penstock.net.http.client.client import HttpClient, Response
from penstock.net.http.client.connection import HttpStream
from penstock.net.upstream import broke
from penstock.observe.context import TRACE
from penstock.observe.tracing import SpanKind, span, tracer
from penstock.wire.http import HttpHeaders, ResponseHead
from penstock_durable.codec import (
    AppendAnswer,
    AppendRequest,
    LiveMode,
    PositionAnswer,
    append_answer,
    append_headers,
    failure_of_answer,
    position_answer,
    read_query,
)
from penstock_durable.names import DurableNames

__all__ = ["DurableRequests"]

T = TypeVar("T")

_MAX_ANSWER: Final = 64 * KIB
"""Largest body of an answer that holds no content: an error's."""
_IDENTITY: Final = ("accept-encoding", "identity")


class DurableRequests:
    """Requests to one server.

    All raise OperationFailed: the server's errors (`failure_of_answer`), or what `HttpClient` raises.
    """

    def __init__(self, http: HttpClient, names: DurableNames) -> None:
        self._http = http
        self._names = names
        self.upstream = http.upstream.settings

    async def head(self, stream: StreamRef) -> PositionAnswer:
        """Return a stream's tail, content type, and whether it is closed."""
        return self.understood(position_answer, (await self._request("HEAD", stream)).headers)

    async def create(self, stream: StreamRef, content_type: str) -> PositionAnswer | None:
        """Create an empty stream; None if it exists with this content type. Raises RESOURCE_ALREADY_EXISTS if it has
        another."""
        response = await self._request("PUT", stream, [("content-type", content_type)])
        return self.understood(position_answer, response.headers) if response.status == 201 else None

    async def append(self, stream: StreamRef, request: AppendRequest, body: bytes) -> AppendAnswer:
        """Append, or close."""
        response = await self._request("POST", stream, append_headers(request), body)
        return self.understood(append_answer, response.headers)

    async def delete(self, stream: StreamRef) -> None:
        """Delete a stream."""
        await self._request("DELETE", stream)

    async def _request(self, method: str, stream: StreamRef, headers: HttpHeaders = (), body: bytes = b"") -> Response:
        path, by = self._names.path_of(stream), tracer()
        about = {"penstock.back": self.upstream.name, "url.path": path[:200]}
        with nullcontext() if by is None else span(by, f"{method} {self.upstream.name}", SpanKind.CLIENT, about):
            response = await self._http.request(
                method, path, [*headers, *_trace()], body, max_body=_MAX_ANSWER, idempotent=method == "HEAD"
            )
        if not 200 <= response.status < 300:
            raise self.failed(response.status, response.headers, response.body)
        return response

    @asynccontextmanager
    async def read(
        self, stream: StreamRef, offset: str, live: LiveMode | None, cursor: str | None
    ) -> AsyncIterator[HttpStream]:
        """Open a GET from an offset on; `answer_of` interprets its head."""
        target = f"{self._names.path_of(stream)}?{read_query(offset, live, cursor)}"
        async with self._http.open("GET", target, [_IDENTITY, *_trace()], body=False) as opened:
            yield opened

    async def answer_of(self, opened: HttpStream, head: ResponseHead) -> PositionAnswer:
        """Return the head of a GET's answer. Raises OperationFailed also for the server's errors."""
        if head.status in (200, 204):
            return self.understood(position_answer, head.headers)
        body = bytearray()
        with trio.move_on_after(opened.request_seconds):
            while len(body) < _MAX_ANSWER and (piece := await opened.receive()):
                body += piece
        raise self.failed(head.status, head.headers, bytes(body))

    def understood(self, parse: Callable[[Callable[[str], str | None]], T], headers: HttpHeaders) -> T:
        """Return what `parse` makes of an answer's headers. Raises UPSTREAM_FAULT if they break the protocol."""
        with self.checked():
            return parse(dict(reversed(list(headers))).get)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Turn a RemoteProtocolError of the block into an UPSTREAM_FAULT, whose cause it is."""
        try:
            yield
        except RemoteProtocolError as error:
            raise broke(self.upstream, error.failure.message) from error

    def failed(self, status: int, headers: HttpHeaders, body: bytes) -> OperationFailed:
        """Return the failure that an answer means."""
        failure = failure_of_answer(status, dict(reversed(list(headers))).get, body)
        return OperationFailed(Failure(failure.code, f"{self.upstream.where}: {failure.message}", failure.details))


def _trace() -> HttpHeaders:
    """Return the headers that propagate the current task's trace."""
    trace = TRACE.get()
    return () if trace is None else trace.headers
