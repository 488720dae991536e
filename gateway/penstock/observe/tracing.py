"""Spans: timed operations of a trace. Without `[tracing]` there are none, and they cost nothing.

Code that makes spans calls `tracer()` first, which then returns None. OpenTelemetry is behind `penstock.observe.otel`,
so that it need not be installed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Protocol, TypeVar

from penstock.model.failures import OperationFailed
from penstock.observe.context import TRACE, TraceContext

__all__ = ["REQUEST", "Attributes", "Span", "SpanKind", "Tracer", "in_span", "span", "tracer", "tracing"]

R = TypeVar("R")

Attributes = Mapping[str, str | int | bool]
REQUEST: ContextVar[Span | None] = ContextVar("penstock.request", default=None)
"""The span of the HTTP request that the current task answers."""
_tracer: Tracer | None = None


class SpanKind(Enum):
    """The side that a span is on: a server's, a client's, or neither (inside the gateway)."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class Span(Protocol):
    """An operation in progress. No method waits or raises."""

    @property
    def context(self) -> TraceContext:
        """The context that child spans have as their parent."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, reason: str) -> None:
        """Mark it as failed."""

    def end(self) -> None:
        """End the span; to be called once."""


class Tracer(Protocol):
    """A factory of spans."""

    def start(self, name: str, kind: SpanKind, parent: TraceContext | None, attributes: Attributes) -> Span:
        """Start a span. Without a parent it begins a new trace."""


def tracer() -> Tracer | None:
    """Return the tracer in use, or None if there is none."""
    return _tracer


@contextmanager
def tracing(by: Tracer) -> Iterator[None]:
    """Use a tracer while the block runs."""
    global _tracer
    before, _tracer = _tracer, by
    try:
        yield
    finally:
        _tracer = before


@contextmanager
def span(
    by: Tracer, name: str, kind: SpanKind, attributes: Attributes, parent: TraceContext | None = None
) -> Iterator[Span]:
    """Run the block within a span, which becomes the task's position in the trace. `parent` None: that position
    before."""
    new_span = by.start(name, kind, parent or TRACE.get(), attributes)
    before = TRACE.get()
    TRACE.set(new_span.context)
    try:
        yield new_span
    except OperationFailed as error:
        new_span.fail(str(error.failure))
        raise
    except Exception as error:
        new_span.fail(type(error).__name__)
        raise
    finally:
        TRACE.set(before)
        new_span.end()


async def in_span(by: Tracer, name: str, kind: SpanKind, attributes: Attributes, carried_out: Awaitable[R]) -> R:
    """Return the result of `carried_out`, awaited within a span."""
    with span(by, name, kind, attributes):
        return await carried_out
