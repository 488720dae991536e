"""Streaming reads from an S2 server: S2S frames or server-sent events (S2 fact sheet, 2.4 and 3)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

import msgspec

from penstock.model.failures import Failure
from penstock.model.records import RecordBatch, StreamPosition
from penstock.wire.codec import NEED_DATA
from penstock.wire.compression import Compression
from penstock_s2.back.calls import S2S
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.s2s.sessions import ReadClient
from penstock_s2.codec.sse.client import EventStreamClient
from penstock_s2.codec.sse.dialects import SseDialect
from penstock_s2.codec.sse.events import BatchEvent, Done, ErrorEvent, Ping

__all__ = ["ReadRemainder", "ReadSource", "S2SSource", "SourceEvent", "SseSource"]

_CODINGS = {Compression.ZSTD: "zstd", Compression.GZIP: "gzip"}


class SourceEvent(Enum):
    """Event of a source other than records, tails and failures."""

    NEED_DATA = auto()
    BEAT = auto()
    """Heartbeat: the server is alive and has nothing new."""
    END = auto()
    """The read's bounds are met."""


class ReadRemainder(msgspec.Struct, frozen=True):
    """Remainder of a read.

    `seq_num`: the next sequence number (None: no records have come, so the original start). `count`, `max_bytes`:
    records and metered bytes (None: no bound).
    """

    seq_num: int | None
    count: int | None
    max_bytes: int | None


class ReadSource(Protocol):
    """Decoder for one read, over several connections in turn.

    Never raises OperationFailed. `media` is the answers' type.
    """

    media: str

    def begin(self) -> list[tuple[str, str]]:
        """Start a new connection and return the request's headers. The query holds what is left of the read."""

    def receive(self, data: bytes | bytearray) -> None:
        """Take more of the answer's body; b"" at its end."""

    def next_event(self) -> RecordBatch | StreamPosition | Failure | SourceEvent:
        """Return the next event. Raises RemoteProtocolError."""


class S2SSource(ReadSource):
    """Source that reads S2S frames."""

    media = S2S

    def __init__(self, compression: Compression) -> None:
        coding = _CODINGS.get(compression)
        self._headers = [("content-type", S2S), *([] if coding is None else [("accept-encoding", coding)])]
        self._codec = ReadClient()

    def begin(self) -> list[tuple[str, str]]:
        self._codec = ReadClient()
        return self._headers

    def receive(self, data: bytes | bytearray) -> None:
        self._codec.receive(data)

    def next_event(self) -> RecordBatch | StreamPosition | Failure | SourceEvent:
        event = self._codec.next_event()
        if isinstance(event, RecordBatch | StreamPosition | Failure):
            return event
        return SourceEvent.NEED_DATA if event is NEED_DATA else SourceEvent.END


class SseSource(ReadSource):
    """Source that reads server-sent events, with bodies in base64 so that any bytes survive.

    A lost connection is resumed by the query, never by Last-Event-ID: servers differ in whether its counts are of this
    connection's records or of all.
    """

    media = "text/event-stream"

    def __init__(self, dialect: SseDialect) -> None:
        self._codec = EventStreamClient(dialect, BytesFormat.BASE64)
        self._dialect = dialect

    def begin(self) -> list[tuple[str, str]]:
        self._codec = EventStreamClient(self._dialect, BytesFormat.BASE64)
        return [("accept", "text/event-stream"), ("s2-format", "base64")]

    def receive(self, data: bytes | bytearray) -> None:
        self._codec.receive(data)

    def next_event(self) -> RecordBatch | StreamPosition | Failure | SourceEvent:
        event = self._codec.next_event()
        match event:
            case BatchEvent(batch):
                return batch
            case Ping(_, tail):
                return SourceEvent.BEAT if tail is None else tail
            case ErrorEvent(failure):
                return failure
            case Done():
                return SourceEvent.END
        return SourceEvent.NEED_DATA if event is NEED_DATA else SourceEvent.END
