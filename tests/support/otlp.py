"""A collector of OpenTelemetry on loopback: takes spans by OTLP over HTTP and decodes them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


@dataclass(frozen=True)
class Collected:
    """A span as it came; identifiers in hexadecimal, `parent` "" for a root."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    failed: bool
    seconds: float
    attributes: dict[str, Any]
    resource: dict[str, Any]


def _value(value: AnyValue) -> Any:
    return getattr(value, str(value.WhichOneof("value")))


class Collector:
    """Spans and paths received so far."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/v1/traces"
        self.spans: list[Collected] = []
        self.paths: set[str] = set()

    def took(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {one.key: _value(one.value) for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [self._span(span, about) for span in scope.spans]

    def _span(self, span: WireSpan, about: dict[str, Any]) -> Collected:
        return Collected(
            span.name,
            WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.status.code == 2,
            (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
            {one.key: _value(one.value) for one in span.attributes},
            about,
        )

    def called(self, name: str) -> list[Collected]:
        """Return the spans of this name."""
        return [span for span in self.spans if span.name == name]

    def of(self, parent: Collected) -> list[Collected]:
        """The parts of a span."""
        return [span for span in self.spans if span.parent == parent.span and span.trace == parent.trace]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.took(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
