"""Read event streams of either dialect, which the first event reveals (S2 fact sheet, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.capture.dialogue.http.appends import delivered
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.event_reader import EventReader
from penstock.capture.dialogue.http.exchange import SeenExchange, header
from penstock.capture.pcapng import Sender
from penstock.wire.http.event_stream import RawEvent
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock_s2.capture.clauses import S2_EVENTS
from penstock_s2.capture.shapes import batch_fields, position
from penstock_s2.codec.sse import (
    MAX_EVENT_BYTES,
    BatchEvent,
    Done,
    ErrorEvent,
    Event,
    EventStreamClient,
    Ping,
    SseDialect,
)
from penstock_s2.codec.sse.dialects import S2, SEED

__all__ = ["EventStream"]

_KINDS: Final[Mapping[type, str]] = {Ping: "ping", Done: "done"}


class EventStream(EventReader):
    """Reader of the server's side of an event stream."""

    layer = "sse"

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        super().__init__(collector, exchange, sender, MAX_EVENT_BYTES, S2_EVENTS)
        self._client: EventStreamClient | None = None
        self._over = False  # the last event has come

    def finish(self, end: TimedRange) -> None:
        """Finish: the body must have ended behind the last event."""
        if not self._over:
            rule = "an event stream ends with an error, or with what says that the read is done"
            self._fault(HttpFault(end.start, rule, S2_EVENTS), end.end_ns)

    def _event(self, raw: RawEvent, span: TimedRange) -> None:
        if self._client is None:
            dialect = _dialect_of(raw)
            self._client = EventStreamClient(dialect, dialect.parse_format(header(self._exchange.headers, "s2-format")))
        event = self._client.understand(raw)
        self._over |= isinstance(event, ErrorEvent | Done)
        fields: dict[str, Any] = {"id": raw.last_event_id} if raw.sets_id else {}
        if isinstance(event, BatchEvent):
            batch = event.batch
            records = delivered(batch, self._exchange.stream, self._collector.conversation, span.end_ns)
            self._report(span, "batch", batch_fields(batch) | fields, records=records, event=event)
        elif isinstance(event, ErrorEvent):
            failure = event.failure
            self._report(span, "error", {"message": failure.message} | fields, failure=str(failure), event=event)
        else:
            kind = _KINDS.get(type(event), raw.name)
            self._report(span, kind, _spoken(event) | fields, event=event or raw)


def _spoken(event: Event | None) -> dict[str, Any]:
    if not isinstance(event, Ping):
        return {}
    return {"timestamp": event.timestamp, "tail": position(event.tail)}


def _dialect_of(raw: RawEvent) -> SseDialect:
    """Return the dialect of a first event: ids with colons, pings without data and a named end are the seeds'."""
    if raw.name == "ping":
        return S2 if raw.data else SEED
    if raw.name == SEED.done_name:
        return SEED
    return SEED if SEED.read_id(raw.last_event_id) is not None else S2
