"""A gRPC service, as the handler of an HTTP server (the protocol document "gRPC over HTTP2")."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import trio

from penstock.model.failures import OperationFailed
from penstock.model.limits import MIB
from penstock.net.draining import SHUTTING_DOWN
from penstock.net.grpc.call import GrpcContext, Method, StreamingMethod, perform, stream
from penstock.net.http.exchange import Exchange, HeaderList, Request
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import too_many
from penstock.observe.metrics.clients import count_error
from penstock.wire.grpc import (
    ENCODINGS,
    MAX_MESSAGE,
    Code,
    GrpcError,
    MessageReader,
    accepts_content_type,
    error_of,
    frame,
    status_fields,
    timeout_seconds,
)

__all__ = ["GrpcService"]

_HEAD: Final = [("content-type", "application/grpc"), ("grpc-accept-encoding", ENCODINGS)]
_MOST_HELD: Final = 16 * MIB
"""Bytes that requests of all connections may hold together, from their first byte to their answer. A message of many
empty fields takes up to 40 times its bytes once it is parsed."""


class GrpcService:
    """The methods of one service; `handle` is the handler of an HTTP server.

    `name`: package and service, as in the path. `methods`: by their names in the path. `max_message`: bytes of a
    request at most, decompressed. `admit`: raises GrpcError, before the message is read, if the client may not make the
    call. `body_seconds`: seconds in which the body of a request must arrive, counted from its head. `admits`: a client
    that was answered is no longer one of those that are evicted first.
    """

    def __init__(
        self,
        name: str,
        methods: Mapping[str, Method[Any] | StreamingMethod[Any]],
        *,
        admit: Callable[[Request], Awaitable[None]] | None = None,
        max_message: int = MAX_MESSAGE,
        body_seconds: float = 60.0,
        admits: bool = True,
    ) -> None:
        self._methods = {f"/{name}/{method}": each for method, each in methods.items()}
        self._admit = admit
        self._max_message = max_message
        self._body_seconds = body_seconds
        self._admits = admits
        self._held = 0
        self._draining = False

    def drain(self) -> None:
        """Begin to shut down: new calls fail with UNAVAILABLE, calls in flight continue."""
        self._draining = True

    async def handle(self, exchange: Exchange) -> None:
        """Answer one call. Never raises for errors of a client or a method."""
        refusal = _refusal(exchange.request)
        if refusal is not None:
            status, headers, text = refusal
            await exchange.respond(status, [("content-type", "text/plain"), *headers], text)
            return
        try:
            response = await self._call(exchange)
        except GrpcError as error:
            count_error(error.code.name.lower())
            await exchange.respond(200, [*_HEAD, *status_fields(error.code, error.message)], trailers=())
        else:
            if isinstance(response, bytes):
                await exchange.respond(200, _HEAD, frame(response), status_fields(Code.OK))
            else:
                await _send_all(exchange, response)

    async def _call(self, exchange: Exchange) -> bytes | _Streamed:
        """Return the response to one call, or where its responses come from. Raises GrpcError."""
        request = exchange.request
        if self._draining:
            raise error_of(SHUTTING_DOWN)
        method = self._methods.get(request.path)
        if method is None:
            raise GrpcError(Code.UNIMPLEMENTED, f"there is no method {request.path}")
        timeout = request.header("grpc-timeout")
        seconds = math.inf if timeout is None else timeout_seconds(timeout)
        context = GrpcContext(request.authority, request.headers, trio.current_time() + seconds)
        quota = current_quota()
        if wait := quota.request():
            raise error_of(too_many(wait).failure)
        if self._admit is not None:
            await self._admit(request)
        reader = MessageReader(request.header("grpc-encoding"), self._max_message)
        try:
            with trio.move_on_at(context.deadline):
                message = await self._message(exchange, reader)
                await _room(exchange)
                if isinstance(method, StreamingMethod):
                    return _Streamed(context.deadline, stream(request.path, method, message, context))
                response = await perform(request.path, method, message, context)
                if self._admits:
                    quota.admit()
                return response
        finally:
            self._held -= reader.held
        raise GrpcError(Code.DEADLINE_EXCEEDED, f"not done within {seconds:g} seconds, the client's deadline")

    async def _message(self, exchange: Exchange, reader: MessageReader) -> bytes:
        """Receive the whole request and return its message. Raises GrpcError."""
        with trio.move_on_after(self._body_seconds):
            while piece := await exchange.receive():
                self._held += len(piece)
                reader.receive(piece)
                if self._held > _MOST_HELD:
                    raise GrpcError(Code.RESOURCE_EXHAUSTED, "too many large requests are in progress")
            return reader.finish()
        exchange.refuse_body()
        raise GrpcError(Code.DEADLINE_EXCEEDED, f"the request took more than {self._body_seconds:g} seconds to arrive")


class _Streamed(NamedTuple):
    """The responses to a call, until its deadline on trio's clock."""

    deadline: float
    messages: AsyncGenerator[bytes, None]


async def _send_all(exchange: Exchange, response: _Streamed) -> None:
    """Send responses as they come, and the status in which they end."""
    status, reason = Code.OK, ""
    await exchange.start(200, _HEAD)
    try:
        with trio.move_on_at(response.deadline) as deadline:
            async with aclosing(response.messages) as messages:
                async for message in messages:
                    await exchange.send([frame(message)])
        if deadline.cancelled_caught:
            status, reason = Code.DEADLINE_EXCEEDED, "the client's deadline has passed"
    except GrpcError as error:
        count_error(error.code.name.lower())
        status, reason = error.code, error.message
    await exchange.finish(status_fields(status, reason))


async def _room(exchange: Exchange) -> None:
    """Wait until the connection may hold one more answer. Raises GrpcError."""
    try:
        await exchange.room()
    except OperationFailed as error:
        raise error_of(error.failure) from None


def _refusal(request: Request) -> tuple[int, HeaderList, bytes] | None:
    """Return status, headers and text of the answer to a request that is not a gRPC call; None for a call.

    A client that does not send "te: trailers" is served: the header exists to detect proxies that drop trailers.
    """
    if request.http_version != "2":
        return 505, (), b"gRPC needs HTTP/2: over TLS by ALPN, without by prior knowledge\n"
    if request.method != "POST":
        return 405, [("allow", "POST")], b"a call of gRPC is a POST\n"
    if not accepts_content_type(request.header("content-type")):
        return 415, (), b"the content-type of a call is application/grpc or application/grpc+proto\n"
    return None
