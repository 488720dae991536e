"""The server's side of an event stream (S2 fact sheet, section 3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.model.failures import LocalProtocolError
from penstock.model.records import U64_MAX, RecordBatch, StreamPosition
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock.wire.http_failures import failure_to_body
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.json_records import read_batch_pieces
from penstock_s2.codec.json_values import spell_position
from penstock_s2.codec.sse.dialects import S2, EventId, SseDialect
from penstock_s2.codec.sse.events import BatchEvent, ErrorEvent, Event, Ping

__all__ = ["EventStreamServer"]

_NOTHING_DELIVERED: Final = EventId(0, 0, 0)


class EventStreamServer:
    """Encodes events. `data_format` None is the dialect's default.

    Ids count the records and metered bytes that the reader has got, starting from those of `resumed`, its
    `last-event-id`. So a reader that is cut off any number of times, and repeats its request with its newest id, gets
    what it asked for.
    """

    def __init__(
        self, dialect: SseDialect = S2, data_format: BytesFormat | None = None, resumed: EventId = _NOTHING_DELIVERED
    ) -> None:
        self._dialect = dialect
        self._format = data_format or dialect.default_format
        self._last = resumed
        self._ended = False
        self._hung_up = False

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Ignore the body of a GET, which means nothing (RFC 9110, 9.3.1); b"": the peer has finished."""
        self._hung_up = self._hung_up or not data

    def next_event(self) -> Pull:
        """Return PAUSED or NEED_DATA: readers send no events."""
        return PAUSED if self._hung_up or self._ended else NEED_DATA

    def send(self, event: Event) -> list[bytes]:
        """Return the bytes that encode `event`; all readers of a batch share the piece with its records.

        Raises LocalProtocolError after ErrorEvent or Done, which are the last.
        """
        if self._ended:
            raise LocalProtocolError(f"the event stream has ended, so {type(event).__name__} cannot be sent")
        if isinstance(event, BatchEvent):
            return self._batch(event.batch)
        if isinstance(event, Ping):
            return [self._ping(event)]
        self._ended = True
        if isinstance(event, ErrorEvent):
            return [self._fields("error") + _data(failure_to_body(event.failure))]
        return [self._fields(self._dialect.done_name) + _data(self._dialect.done_data)]

    @property
    def buffered(self) -> int:
        """Always 0: nothing is held."""
        return 0

    def _batch(self, batch: RecordBatch) -> list[bytes]:
        last = self._last
        count, size = min(last.count + batch.count, U64_MAX), min(last.bytes + batch.metered, U64_MAX)
        self._last = EventId(batch.next_seq_num - 1, count, size)
        opening, records, closing = read_batch_pieces(batch, self._format, omit_empty=self._dialect.omit_empty)
        return [b"%bdata: %b" % (self._fields("batch", self._last), opening), records, closing + b"\n\n"]

    def _ping(self, ping: Ping) -> bytes:
        data = b""
        if self._dialect.ping_data:
            if ping.timestamp is None or ping.tail is None:
                raise LocalProtocolError(f"a ping in dialect {self._dialect.name!r} says time and tail")
            data = _time_and_tail(ping.timestamp, ping.tail)
        # Before the first record there is no last position: any id would make the reader skip a record.
        known = self._dialect.ping_id and self._last.count > 0
        return self._fields("ping", self._last if known else None) + _data(data)

    def _fields(self, name: str | None, event_id: EventId | None = None) -> bytes:
        fields = [] if name is None else [f"event: {name}\n"]
        if event_id is not None:
            fields.insert(0 if self._dialect.id_first else 1, f"id: {self._dialect.spell_id(event_id)}\n")
        return "".join(fields).encode()


@lru_cache(16)
def _time_and_tail(timestamp: int, tail: StreamPosition) -> bytes:
    """Return the data of a ping. Many readers of a stream get theirs in the same millisecond."""
    return b'{"timestamp":%d,"tail":%b}' % (timestamp, spell_position(tail))


def _data(data: bytes) -> bytes:
    return b"data: %b\n\n" % data if data else b"data:\n\n"
