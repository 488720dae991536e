"""Spans of OpenTelemetry, sent by OTLP over HTTP from a thread of its SDK.

Its environment variables work as usual (`OTEL_EXPORTER_OTLP_HEADERS`, for a collector that requires a token), except
for settings of the configuration, which take precedence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace import Tracer as OtelTracer

from penstock import DISTRIBUTION
from penstock.observe.context import TraceContext
from penstock.observe.tracing import Attributes, SpanKind, Tracer

__all__ = ["OtelSpans", "exporting"]

_KINDS: Final = {
    SpanKind.SERVER: OtelKind.SERVER,
    SpanKind.CLIENT: OtelKind.CLIENT,
    SpanKind.INTERNAL: OtelKind.INTERNAL,
}
_EMPTY: Final = Context()
"""An empty context, instead of the SDK's current one: a task gives the parent of each span itself."""
_EXPORT_SECONDS: Final = 5.0
"""Timeout for one request to the collector, and for sending the remaining spans when the gateway ends."""


class _Span:
    """See `penstock.observe.tracing.Span`."""

    def __init__(self, inner: OtelSpan) -> None:
        self._inner = inner

    @property
    def context(self) -> TraceContext:
        known = self._inner.get_span_context()
        state = known.trace_state.to_header()
        return TraceContext(format_trace_id(known.trace_id), format_span_id(known.span_id), known.trace_flags, state)

    def note(self, attributes: Attributes) -> None:
        self._inner.set_attributes(dict(attributes))

    def fail(self, reason: str) -> None:
        self._inner.set_status(Status(StatusCode.ERROR, reason))

    def end(self) -> None:
        self._inner.end()


class OtelSpans(Tracer):
    """See `penstock.observe.tracing.Tracer`."""

    def __init__(self, inner: OtelTracer) -> None:
        self._inner = inner

    def start(self, name: str, kind: SpanKind, parent: TraceContext | None, attributes: Attributes) -> _Span:
        context = _EMPTY if parent is None else set_span_in_context(_as_span(parent), _EMPTY)
        return _Span(self._inner.start_span(name, context, _KINDS[kind], dict(attributes)))


def _as_span(parent: TraceContext) -> NonRecordingSpan:
    state = TraceState.from_header([parent.state]) if parent.state else TraceState()
    ids = int(parent.trace_id, 16), int(parent.span_id, 16)
    return NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(parent.flags), trace_state=state))


@contextmanager
def exporting(endpoint: str, sample_ratio: float, service_name: str) -> Iterator[OtelSpans]:
    """Yield a tracer whose spans are sent to `endpoint` until the block ends.

    The end waits for the collector, for up to `_EXPORT_SECONDS`: run it in a thread.
    """
    resource = Resource.create(
        {"service.name": service_name, "service.version": version(DISTRIBUTION), "process.pid": os.getpid()}
    )
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(sample_ratio), resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint, timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield OtelSpans(provider.get_tracer("penstock", version(DISTRIBUTION)))
    finally:
        provider.shutdown()
