"""Read event streams of Durable Streams: data and the position behind it are one message (protocol, 5.7)."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.event_reader import EventReader
from penstock.capture.dialogue.http.exchange import SeenExchange, header
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed
from penstock.wire.http.event_stream import RawEvent
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_durable.capture.clauses import EVENTS
from penstock_durable.capture.content import BodyRecords, delivered, first_number, number_of, position_fields
from penstock_durable.codec import MAX_EVENT_BYTES, Control, DataEvent, DurableEventsClient, EventMode
from penstock_durable.codec.media import split_messages

__all__ = ["DurableEvents"]


class _Data(NamedTuple):
    """Data whose position has not come."""

    records: BodyRecords
    span: TimedRange


class DurableEvents(EventReader):
    """Reader of an event stream.

    Its head says whether data is in base64, and not whether it is JSON: that shows in the first data, since JSON is
    always in an array.
    """

    layer = "durable"

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        super().__init__(collector, exchange, sender, MAX_EVENT_BYTES, EVENTS)
        encoding = header(exchange.response_headers, "stream-sse-data-encoding")
        self._mode = EventMode.BASE64 if encoding is not None and encoding.strip().lower() == "base64" else None
        self._start: int | None = exchange.subject.start
        self._data: _Data | None = None

    def finish(self, end: TimedRange) -> None:
        """Finish: data must have its position behind it."""
        if self._data is not None:
            self.abandon()
            rule = "an event control follows each event data"
            self._fault(HttpFault(end.start, rule, EVENTS), end.end_ns)

    def abandon(self) -> None:
        """Report data without its position."""
        if self._data is not None:
            self._batch(self._data, None, self._data.span)

    def _event(self, raw: RawEvent, span: TimedRange) -> None:
        if self._mode is None and raw.name == "data":
            self._mode = EventMode.JSON if _is_array(raw.data) else EventMode.TEXT
        event = DurableEventsClient(self._mode or EventMode.TEXT).understand(raw)
        if isinstance(event, DataEvent):
            self.abandon()
            self._data = _Data(BodyRecords(event.bodies), span)
        elif isinstance(event, Control):
            if self._data is not None:
                self._batch(self._data, event, self._data.span.to(span))
            else:
                self._report(span, "control", position_fields(event), event=event)
            self._start = number_of(event.next_offset)

    def _batch(self, data: _Data, position: Control | None, span: TimedRange) -> None:
        self._data = None
        records, first = data.records, None
        fields: dict[str, Any] = {"records": len(records.bodies), "bytes": sum(map(len, records.bodies))}
        if position is not None:
            behind = number_of(position.next_offset)
            first = first_number(records, self._start, behind, exact=self._mode is EventMode.JSON)
            fields |= position_fields(position)
        if first is not None:
            fields["first_seq_num"] = first
        seen = delivered(records, first, self._exchange.stream, self._collector.conversation, span.end_ns)
        self._report(span, "batch", fields, records=seen, event=position)


def _is_array(data: bytes) -> bool:
    try:
        return data.lstrip(b" \t\r\n").startswith(b"[") and bool(split_messages(data))
    except OperationFailed:
        return False
