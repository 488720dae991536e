"""Spans of measured work, if tracing is on: operations, sessions, and the appends of a session in groups.

A span for each batch would cost more than the batch. A group ends when everything is acknowledged, or after a second:
so a single append has a span of its own, and pipelined appends have one a second.
"""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter
from typing import Final, TypeVar

from penstock.observe.context import TRACE, TraceContext
from penstock.observe.metrics.meters import Meter
from penstock.observe.tracing import Attributes, Span, SpanKind, Tracer, in_span

__all__ = ["AppendGroups", "SessionSpan", "operation_span"]

R = TypeVar("R")

_GROUP_SECONDS: Final = 1.0


def _said(meter: Meter) -> Attributes:
    _, route, back, protocol = meter.labels
    attributes = {"penstock.back": back, "penstock.protocol": protocol}
    return {**attributes, "penstock.route": route} if route else attributes


def operation_span(by: Tracer, meter: Meter, name: str, carried_out: Awaitable[R]) -> Awaitable[R]:
    """Return the operation wrapped in a span."""
    return in_span(by, name, SpanKind.INTERNAL, _said(meter), carried_out)


class SessionSpan:
    """The span of a session. All spans of its task meanwhile are parts of it."""

    def __init__(self, by: Tracer, meter: Meter, name: str) -> None:
        self._before = TRACE.get()
        self._span = by.start(name, SpanKind.INTERNAL, self._before, _said(meter))
        self.groups = AppendGroups(by, meter, self._span.context)
        TRACE.set(self._span.context)

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        self._span.fail(reason)

    def end(self) -> None:
        """End the span, and that of its group."""
        self.groups.end()
        TRACE.set(self._before)
        self._span.end()


class AppendGroups:
    """The spans of one session's appends, in groups; see the module."""

    def __init__(self, by: Tracer, meter: Meter, session: TraceContext) -> None:
        self._by = by
        self._said = _said(meter)
        self._session = session
        self._span: Span | None = None
        self._began = 0.0
        self._batches = self._records = 0

    def sent(self) -> None:
        """Note that a batch is being sent."""
        if self._span is None:
            self._span = self._by.start("append", SpanKind.INTERNAL, self._session, self._said)
            self._began = perf_counter()

    def acknowledged(self, batches: int, records: int, left: int) -> None:
        """Add acknowledged batches and records to the group. `left`: batches that are not acknowledged yet."""
        self._batches += batches
        self._records += records
        if not left or perf_counter() - self._began > _GROUP_SECONDS:
            self.end()

    def end(self) -> None:
        """End the current group, if there is one."""
        if self._span is not None:
            self._span.note({"penstock.batches": self._batches, "penstock.records": self._records})
            self._span.end()
            self._span, self._batches, self._records = None, 0, 0
