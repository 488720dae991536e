"""Read bodies that are one message, JSON or protobuf: held, decompressed, decoded (S2 fact sheet, 1.2 and 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from google.protobuf.descriptor import Descriptor

from penstock.capture.dialogue.http.appends import MAX_WAITING, MAX_WAITING_BYTES, delivered
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import SeenExchange, header
from penstock.capture.dialogue.http.json_places import place_of
from penstock.capture.dialogue.http.protobuf_faults import first_fault
from penstock.capture.dialogue.http.whole_body import WholeBody
from penstock.capture.pcapng import Sender
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.wire.compression import Compression
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_proto import s2_pb2
from penstock_s2.capture.clauses import S2_BODIES, S2_MESSAGES, S2_UNARY
from penstock_s2.capture.shapes import append_fields, appended_fields, batch_fields, json_fields, position
from penstock_s2.codec import json_records, protobuf
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.formats import BytesFormat, parse_format
from penstock_s2.codec.limits import S2_MAX_UNARY_BODY
from penstock_s2.codec.media import Media
from penstock_s2.codec.routes import S2Endpoint
from penstock_s2.codec.sse import MAX_EVENT_BYTES

__all__ = [
    "ControlMessage",
    "UnaryAppendAck",
    "UnaryAppendInput",
    "UnaryBody",
    "UnaryError",
    "UnaryReadBatch",
    "UnaryTail",
]

_LIMITS: Final = {Sender.CLIENT: S2_MAX_UNARY_BODY, Sender.SERVER: MAX_EVENT_BYTES}
"""Largest body, decompressed. An answer has at most 1 MiB metered; its worst spelling in JSON is six times that."""
_CONTROL: Final[Mapping[S2Endpoint, tuple[str, str]]] = {
    S2Endpoint.LIST_BASINS: ("", "ListBasinsResponse"),
    S2Endpoint.CREATE_BASIN: ("CreateBasinRequest", "BasinInfo"),
    S2Endpoint.ENSURE_BASIN: ("EnsureBasinRequest", "BasinInfo"),
    S2Endpoint.GET_BASIN: ("", "BasinConfig"),
    S2Endpoint.RECONFIGURE_BASIN: ("BasinReconfiguration", "BasinConfig"),
    S2Endpoint.LIST_STREAMS: ("", "ListStreamsResponse"),
    S2Endpoint.CREATE_STREAM: ("CreateStreamRequest", "StreamInfo"),
    S2Endpoint.ENSURE_STREAM: ("StreamConfig", "StreamInfo"),
    S2Endpoint.GET_STREAM: ("", "StreamConfig"),
    S2Endpoint.RECONFIGURE_STREAM: ("StreamReconfiguration", "StreamConfig"),
}
"""Types of requests and responses, as the API's schema names them."""
_ANY: Final = msgspec.json.Decoder()


class UnaryBody(WholeBody):
    """A body of either media."""

    kind: Descriptor | None = None
    """The message that it is in protobuf, if it can be."""

    def __init__(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, media: Media, coding: Compression
    ) -> None:
        super().__init__(collector, exchange, sender, coding, _LIMITS[sender], S2_BODIES)
        self._media = media

    def _format(self) -> BytesFormat:
        return parse_format(header(self._exchange.headers, "s2-format"))

    def _undecodable(self, content: bytes, span: TimedRange, reason: str) -> HttpFault:
        """Return the fault of the content, as exactly as possible."""
        if self._media is Media.PROTOBUF and self.kind is not None:
            fault = first_fault(content, self.kind)
            return self._fault_in(content, span, *((0, reason) if fault is None else fault), S2_MESSAGES)
        return self._fault_in(content, span, place_of(content, reason), reason, S2_UNARY)


class UnaryAppendInput(UnaryBody):
    """The records of a unary append."""

    kind = cast(Descriptor, s2_pb2.AppendInput.DESCRIPTOR)

    def _understand(self, content: bytes, span: TimedRange) -> None:
        ref = self._exchange.ref
        if self._media is Media.PROTOBUF:
            append = protobuf.decode_append_input(content, ref)
        else:
            append = json_records.decode_append_input(content, self._format(), ref)
        if not self._exchange.appends.ask(append, span.end_ns):
            rule = f"of at most {MAX_WAITING} appends and {MAX_WAITING_BYTES} bytes an acknowledgement is waited for"
            self._fault(HttpFault(span.start, rule, ""), span.end_ns)
        carried = self._exchange.appends.carried(append, span.end_ns)
        self._report(span, "AppendInput", append_fields(append) | self._size(), event=append, carried=carried)


class UnaryAppendAck(UnaryBody):
    """The response to a unary append."""

    kind = cast(Descriptor, s2_pb2.AppendAck.DESCRIPTOR)

    def _understand(self, content: bytes, span: TimedRange) -> None:
        proto = self._media is Media.PROTOBUF
        appended = protobuf.decode_append_ack(content) if proto else json_records.decode_append_ack(content)
        waiting = self._exchange.appends.acknowledge()
        records = () if waiting is None else self._exchange.appends.records(waiting, appended)
        self._report(span, "AppendAck", appended_fields(appended) | self._size(), records=records, event=appended)


class UnaryReadBatch(UnaryBody):
    """The response to a unary read."""

    kind = cast(Descriptor, s2_pb2.ReadBatch.DESCRIPTOR)

    def _understand(self, content: bytes, span: TimedRange) -> None:
        batch, tail = self._decoded(content)
        if batch is None:
            fields = {"records": 0} | ({} if tail is None else {"tail": position(tail)})
            self._report(span, "ReadBatch", fields | self._size(), event=tail)
            return
        records = delivered(batch, self._exchange.stream, self._collector.conversation, span.end_ns)
        self._report(span, "ReadBatch", batch_fields(batch) | self._size(), records=records, event=batch)

    def _decoded(self, content: bytes) -> tuple[RecordBatch | None, StreamPosition | None]:
        if self._media is not Media.PROTOBUF:
            return json_records.decode_read_batch(content, self._format())
        decoded = protobuf.decode_read_batch(content)
        return (decoded, decoded.tail) if isinstance(decoded, RecordBatch) else (None, decoded)


class UnaryTail(UnaryBody):
    """The response to a check of the tail."""

    def _understand(self, content: bytes, span: TimedRange) -> None:
        tail = json_records.decode_tail(content)
        self._report(span, "TailResponse", {"tail": position(tail)} | self._size(), event=tail)


class UnaryError(UnaryBody):
    """The body of an error, which refuses the appended records."""

    def _understand(self, content: bytes, span: TimedRange) -> None:
        failure = failure_from_http(self._exchange.status, content)
        records = self._exchange.appends.left(str(failure))
        fields = {"code": failure.code.value, "message": failure.message, **failure.details} | self._size()
        self._report(span, "Error", fields, records=records, failure=str(failure), event=failure)


class ControlMessage(UnaryBody):
    """A message of the control plane; any other JSON of the API too."""

    def _understand(self, content: bytes, span: TimedRange) -> None:
        try:
            value = _ANY.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self._undecodable(content, span, reason) from None
        endpoint = self._exchange.subject
        client, server = ("", "") if endpoint is None else _CONTROL.get(endpoint, ("", ""))
        kind = client if self._sender is Sender.CLIENT else server
        if endpoint is S2Endpoint.CREATE_STREAM and self._sender is Sender.CLIENT:
            self._name_stream(value)
        self._report(span, kind or "JSON", json_fields(value), event=content)

    def _name_stream(self, value: object) -> None:
        name = value.get("stream") if isinstance(value, dict) else None
        if isinstance(name, str):
            ref = self._exchange.ref = StreamRef(self._exchange.ref.basin, name)
            self._exchange.stream = str(ref) if ref.basin else name
