"""Events of an event stream, independent of the dialect (S2 fact sheet, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_codecs.failures import Failure
from penstock_codecs.model import RecordBatch, StreamPosition
from penstock_codecs.sse.dialects import EventId

__all__ = ["BatchEvent", "Done", "ErrorEvent", "Event", "Ping"]


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """Records. `id` is the server's event id, for `last-event-id`; the server's codec ignores it and counts itself."""

    batch: RecordBatch
    id: EventId | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """A heartbeat: the server's time in ms and the stream's tail, if the dialect carries them."""

    timestamp: int | None
    tail: StreamPosition | None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The read failed; nothing follows."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Done:
    """The read has reached its bounds; nothing follows."""


Event = BatchEvent | Ping | ErrorEvent | Done
