"""The client's side of an event stream (S2 fact sheet, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock.wire.http.event_stream import EventParser, RawEvent
from penstock_s2.codec.errors import failure_from_body
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.json_records import decode_read_batch
from penstock_s2.codec.json_values import U64, PositionShape, decode_answer, remote_error, remote_position
from penstock_s2.codec.sse.dialects import S2, SseDialect
from penstock_s2.codec.sse.events import BatchEvent, Done, ErrorEvent, Event, Ping

__all__ = ["MAX_EVENT_BYTES", "EventStreamClient"]

MAX_EVENT_BYTES: Final = 8 * MIB
"""Largest event accepted, in bytes. A batch is at most 1 MiB metered; as RAW each byte may take six (`\\u0000`), and
names and numbers of 1000 records add less than 200 KiB."""


class _PingData(msgspec.Struct):
    timestamp: U64
    tail: PositionShape


_ping_data: Final = msgspec.json.Decoder(_PingData)


class EventStreamClient:
    """Decodes events. `data_format` is the format that was requested; None is the dialect's default.

    Events of other names, comments and `retry` are skipped, as the standard demands.
    """

    def __init__(
        self,
        dialect: SseDialect = S2,
        data_format: BytesFormat | None = None,
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        self._dialect = dialect
        self._format = data_format or dialect.default_format
        self._parser = EventParser(max_event_bytes)
        self._finished = False  # the peer has finished sending
        self._ended = False  # the last event has been delivered
        self._error: RemoteProtocolError | None = None
        self._readers: dict[str, Callable[[RawEvent], Event | None]] = {
            "batch": self._batch,
            "ping": self._ping,
            "error": self._failure,
            dialect.done_name or "message": self._done,
        }

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the response body; b"" at its end."""
        if not data:
            self._finished = True
        elif not self._ended and self._error is None:
            self._parser.receive(data)

    def next_event(self) -> Event | Pull:
        """Return the next event; PAUSED after ErrorEvent or Done.

        Raises RemoteProtocolError: BAD_JSON or INVALID for an invalid event, LIMIT_EXCEEDED for one that is too large,
        UNAVAILABLE if the body ended without Done or ErrorEvent: reconnect and resume.
        """
        if self._error is not None:
            raise self._error
        try:
            event = PAUSED if self._ended else self._next()
        except RemoteProtocolError as error:
            self._stop()
            self._error = error
            raise
        if isinstance(event, Done | ErrorEvent):
            self._ended = True
            self._stop()
        return event

    def understand(self, raw: RawEvent) -> Event | None:
        """Return the event that a raw one encodes, or None if it encodes none. Raises RemoteProtocolError."""
        read = self._readers.get(raw.name)
        return None if read is None else read(raw)

    def send(self, event: Event) -> list[bytes]:
        """Raise LocalProtocolError: readers send nothing."""
        raise LocalProtocolError(f"a reader cannot send {type(event).__name__}")

    @property
    def buffered(self) -> int:
        """Bytes held of events that are incomplete, or have not been pulled."""
        return self._parser.buffered

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds to wait before reconnecting, if the server gave a number."""
        return self._parser.retry_ms

    def _stop(self) -> None:
        """Drop what is held: nothing more will be read."""
        retry_ms = self._parser.retry_ms
        self._parser = EventParser(0)
        self._parser.retry_ms = retry_ms

    def _next(self) -> Event | Pull:
        while (raw := self._parser.next_event()) is not None:
            if (event := self.understand(raw)) is not None:
                return event
        if self._finished:
            raise remote_error(FailureCode.UNAVAILABLE, "the event stream ended before the read was complete")
        return NEED_DATA

    def _batch(self, raw: RawEvent) -> Event | None:
        batch, tail = decode_read_batch(raw.data, self._format)
        if batch is None:
            return None if tail is None else Ping(None, tail)  # the batch has nothing but the tail
        if not raw.sets_id:
            return BatchEvent(batch)
        event_id = self._dialect.read_id(raw.last_event_id)
        if event_id is None:
            raise remote_error(FailureCode.BAD_HEADER, f"malformed event id {raw.last_event_id[:100]!r}")
        if event_id.seq_num != batch.next_seq_num - 1:
            reason = f"event id has {event_id.seq_num}, but the batch's last record is {batch.next_seq_num - 1}"
            raise remote_error(FailureCode.INVALID, reason)
        return BatchEvent(batch, event_id)

    def _ping(self, raw: RawEvent) -> Ping:
        if not raw.data:
            return Ping(None, None)
        ping = decode_answer(_ping_data, raw.data)
        return Ping(ping.timestamp, remote_position(ping.tail))

    def _failure(self, raw: RawEvent) -> ErrorEvent:
        return ErrorEvent(failure_from_body(raw.data))

    def _done(self, raw: RawEvent) -> Done | None:
        return Done() if raw.data == self._dialect.done_data else None
