"""Trace contexts of incoming requests, and of connections whose protocol carries none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from penstock.net.http.exchange import Exchange, Handler
from penstock.observe.context import TRACE, TraceContext
from penstock.observe.taps.tap import CONNECTION
from penstock.observe.tracing import REQUEST, Attributes, SpanKind, Tracer, span, tracer

__all__ = ["traced_connections", "traced_requests"]

_UNTRACED = "management"
"""Protocol whose requests are not traced: they observe the gateway's work and are no part of it."""

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def traced_requests(handle: Handler) -> Handler:
    """Wrap a handler so that each request joins the trace in its headers (W3C Trace Context), as a span if tracing is
    on."""

    def handle_traced(exchange: Exchange) -> Awaitable[None]:
        request = exchange.request
        told = request.header("traceparent")
        parent = None
        if told is not None:
            parent = TraceContext.parse(told, ",".join(request.header_values("tracestate")))
        by = tracer()
        where = {} if by is None else _connection()
        if by is None or where.get("penstock.protocol") == _UNTRACED:
            TRACE.set(parent)
            return handle(exchange)
        return _handle_in_span(by, handle, exchange, parent, where)

    return handle_traced


async def _handle_in_span(
    by: Tracer, handle: Handler, exchange: Exchange, parent: TraceContext | None, where: Attributes
) -> None:
    request = exchange.request
    attributes = {"http.request.method": request.method, "url.path": request.path[:200], **where}
    with span(
        by, f"{request.method} {where.get('penstock.protocol', '')}", SpanKind.SERVER, attributes, parent
    ) as request_span:
        REQUEST.set(request_span)
        await handle(exchange)


def traced_connections(serve: Serve) -> Serve:
    """Wrap the function that serves connections of a protocol without trace contexts: each connection begins a
    trace."""

    def serve_traced(stream: trio.abc.Stream) -> Awaitable[None]:
        by = tracer()
        return serve(stream) if by is None else _serve_in_span(by, serve, stream)

    return serve_traced


async def _serve_in_span(by: Tracer, serve: Serve, stream: trio.abc.Stream) -> None:
    where = _connection()
    with span(by, f"connection {where.get('penstock.protocol', '')}", SpanKind.SERVER, where):
        await serve(stream)


def _connection() -> Attributes:
    tap = CONNECTION.get()
    if tap is None:
        return {}
    conversation = tap.conversation
    return {
        "penstock.listener": conversation.name,
        "penstock.protocol": conversation.protocol,
        "penstock.connection": conversation.number,
        "client.address": conversation.client.host,
        "client.port": conversation.client.port,
    }
