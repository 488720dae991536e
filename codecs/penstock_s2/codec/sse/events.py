"""Events of an event stream, independent of the dialect (S2 fact sheet, section 3)."""

from __future__ import annotations

from msgspec import Struct

from penstock.model.failures import Failure
from penstock.model.records import RecordBatch, StreamPosition
from penstock_s2.codec.sse.dialects import EventId

__all__ = ["BatchEvent", "Done", "ErrorEvent", "Event", "Ping"]


class BatchEvent(Struct, frozen=True):
    """Records. `id` is the server's event id, for `last-event-id`; the server's codec ignores it and counts itself."""

    batch: RecordBatch
    id: EventId | None = None


class Ping(Struct, frozen=True):
    """A heartbeat: the server's time in ms and the stream's tail, if the dialect carries them."""

    timestamp: int | None
    tail: StreamPosition | None


class ErrorEvent(Struct, frozen=True):
    """The read failed; nothing follows."""

    failure: Failure


class Done(Struct, frozen=True):
    """The read has reached its bounds; nothing follows."""


Event = BatchEvent | Ping | ErrorEvent | Done
