"""Server-sent events: reads of a stream as `text/event-stream` (S2 fact sheet, section 3), both roles."""

from __future__ import annotations

from typing import Any, Final

from penstock.model.records import Columns, Header, RecordBatch, StreamPosition
from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock_s2.codec.sse.client import MAX_EVENT_BYTES, EventStreamClient
from penstock_s2.codec.sse.dialects import DIALECTS, EventId, SseDialect
from penstock_s2.codec.sse.events import BatchEvent, Done, ErrorEvent, Event, Ping
from penstock_s2.codec.sse.server import EventStreamServer

__all__ = [
    "DIALECTS",
    "MAX_EVENT_BYTES",
    "PLUGIN",
    "BatchEvent",
    "Done",
    "ErrorEvent",
    "Event",
    "EventId",
    "EventStreamClient",
    "EventStreamServer",
    "Ping",
    "SseDialect",
]


def _make(role: Role, dialect: str) -> Codec[Any, Any]:
    return EventStreamClient(DIALECTS[dialect]) if role is Role.CLIENT else EventStreamServer(DIALECTS[dialect])


def _sample(role: Role, dialect: str) -> bytes:
    """Return the bytes of a server; a client sends nothing."""
    if role is Role.SERVER:
        return b""
    plain = RecordBatch(Columns([0, 1], [1000, 1001], [b"first", b""]))
    tail = StreamPosition(3, 1002)
    rich = RecordBatch(Columns([2], [1002], [b"third\n"], {0: (Header(b"name", b"value"),)}), tail=tail)
    server = EventStreamServer(DIALECTS[dialect])
    events: list[Event] = [BatchEvent(plain), Ping(1003, tail), BatchEvent(rich), Done()]
    return b"".join(piece for event in events for piece in server.send(event))


PLUGIN: Final = CodecPlugin("sse", _make, tuple(DIALECTS), _sample, MAX_EVENT_BYTES)
