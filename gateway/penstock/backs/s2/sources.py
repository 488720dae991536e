"""The two ways to read from an S2 server for long: S2S frames and server-sent events (S2 fact sheet, 2.4 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from penstock.backs.s2.calls import S2S
from penstock_codecs.codec import NEED_DATA
from penstock_codecs.compression import Compression
from penstock_codecs.failures import Failure
from penstock_codecs.model import RecordBatch, StreamPosition
from penstock_codecs.s2.formats import Format
from penstock_codecs.s2s.sessions import ReadClient
from penstock_codecs.sse.client import EventStreamClient
from penstock_codecs.sse.dialects import Dialect, EventId
from penstock_codecs.sse.events import BatchEvent, Done, ErrorEvent, Ping

__all__ = ["Left", "Mark", "S2SSource", "Source", "SseSource"]


class Mark(Enum):
    """What a source says beside records, tails and failures."""

    NEED_DATA = auto()
    BEAT = auto()
    """The server is alive, and has nothing new."""
    END = auto()
    """The read's bounds are met."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a read: from which number on (None: nothing has come, so from where it was to begin), how many
    records, and how many metered bytes (None: no bound)."""

    seq_num: int | None
    count: int | None
    max_bytes: int | None


class Source(Protocol):
    """One connection after the other of one read. Never raises OperationFailed."""

    def begin(self, left: Left) -> tuple[Left, list[tuple[str, str]]]:
        """A new connection: what to ask for, where that is said by the query, and the headers."""

    def receive(self, data: bytes | bytearray) -> None:
        """More of the answer's body; b"" at its end."""

    def next_event(self) -> RecordBatch | StreamPosition | Failure | Mark:
        """What comes next. Raises RemoteProtocolError."""


_CODINGS = {Compression.ZSTD: "zstd", Compression.GZIP: "gzip"}


class S2SSource:
    """Frames."""

    def __init__(self, compression: Compression) -> None:
        coding = _CODINGS.get(compression)
        self._headers = [("content-type", S2S), *([] if coding is None else [("accept-encoding", coding)])]
        self._codec = ReadClient()

    def begin(self, left: Left) -> tuple[Left, list[tuple[str, str]]]:
        """See `Source`."""
        self._codec = ReadClient()
        return left, self._headers

    def receive(self, data: bytes | bytearray) -> None:
        """See `Source`."""
        self._codec.receive(data)

    def next_event(self) -> RecordBatch | StreamPosition | Failure | Mark:
        """See `Source`."""
        event = self._codec.next_event()
        if isinstance(event, RecordBatch | StreamPosition | Failure):
            return event
        return Mark.NEED_DATA if event is NEED_DATA else Mark.END


class SseSource:
    """Events. Bodies come as base64, so that they are what they were; a lost connection is resumed by Last-Event-ID,
    whose counts the server takes off what is asked for."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._codec = self._new_codec()
        self._first: Left | None = None  # what was asked for at first,
        self._begun = Left(None, None, None)  # and on the connection that there is now,
        self._counted = Left(None, None, None)  # and on the one that the last id came by
        self._last: EventId | None = None

    def _new_codec(self) -> EventStreamClient:
        return EventStreamClient(self._dialect, Format.BASE64)

    def begin(self, left: Left) -> tuple[Left, list[tuple[str, str]]]:
        """See `Source`."""
        self._codec = self._new_codec()
        headers = [("accept", "text/event-stream"), ("s2-format", "base64")]
        self._begun = left
        self._first = self._first or left
        if self._last is None or self._last.seq_num + 1 != left.seq_num:
            return left, headers
        headers.append(("last-event-id", self._dialect.spell_id(self._last)))
        # The id's counts are taken off by the server, so it is asked for what was left when they began.
        counted = self._first if self._dialect.counts_on else self._counted
        return Left(left.seq_num, counted.count, counted.max_bytes), headers

    def receive(self, data: bytes | bytearray) -> None:
        """See `Source`."""
        self._codec.receive(data)

    def next_event(self) -> RecordBatch | StreamPosition | Failure | Mark:
        """See `Source`."""
        event = self._codec.next_event()
        match event:
            case BatchEvent(batch, event_id):
                if event_id is not None:
                    self._last, self._counted = event_id, self._begun
                return batch
            case Ping(_, tail):
                return Mark.BEAT if tail is None else tail
            case ErrorEvent(failure):
                return failure
            case Done():
                return Mark.END
        return Mark.NEED_DATA if event is NEED_DATA else Mark.END
