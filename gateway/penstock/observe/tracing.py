"""Spans: what happened in a trace, from when to when. Without `[tracing]` there are none, and nobody pays for them.

Who makes spans asks `tracer()` first, which is None then. OpenTelemetry is behind `penstock.observe.otel`, so that it
need not be installed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Protocol, TypeVar

from penstock.observe.context import TRACE, TraceContext
from penstock_codecs.failures import OperationFailed

__all__ = ["REQUEST", "Attributes", "Span", "SpanKind", "Tracer", "in_span", "span", "tracer", "tracing"]

R = TypeVar("R")

Attributes = Mapping[str, str | int | bool]


class SpanKind(Enum):
    """Who is asked: we, somebody else, or nobody but ourselves."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class Span(Protocol):
    """Something that happens. No method waits or raises."""

    @property
    def context(self) -> TraceContext:
        """What is a part of it says this."""

    def note(self, attributes: Attributes) -> None:
        """More that is known of it."""

    def fail(self, reason: str) -> None:
        """It did not end well."""

    def end(self) -> None:
        """It is over; to be called once."""


class Tracer(Protocol):
    """Makes spans."""

    def start(self, name: str, kind: SpanKind, parent: TraceContext | None, attributes: Attributes) -> Span:
        """A span from now on; without a parent that of a new trace."""


REQUEST: ContextVar[Span | None] = ContextVar("penstock.request", default=None)
"""The span of the request by HTTP that the current task answers."""

_tracer: Tracer | None = None


def tracer() -> Tracer | None:
    """Who makes spans now; None: nobody wants any."""
    return _tracer


@contextmanager
def tracing(by: Tracer) -> Iterator[None]:
    """Spans are made while the block runs."""
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
    """A span while the block runs, and the trace of the task. `parent`: None: what the task is part of already."""
    one = by.start(name, kind, parent or TRACE.get(), attributes)
    before = TRACE.get()
    TRACE.set(one.context)
    try:
        yield one
    except OperationFailed as error:
        one.fail(str(error.failure))
        raise
    except Exception as error:
        one.fail(type(error).__name__)
        raise
    finally:
        TRACE.set(before)
        one.end()


async def in_span(by: Tracer, name: str, kind: SpanKind, attributes: Attributes, carried_out: Awaitable[R]) -> R:
    """What `carried_out` gives, as a span."""
    with span(by, name, kind, attributes):
        return await carried_out
