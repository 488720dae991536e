"""Read event streams (HTML Living Standard, 9.2): events with their places, whatever they carry."""

from __future__ import annotations

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, SeenExchange
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.wire.http.event_stream import EventParser, RawEvent
from penstock.wire.http.observer.faults import HttpFault, TimedRange

__all__ = ["EventReader"]


class EventReader(BodyReader):
    """Reader of an event stream. `limit`: largest event, in bytes; `clause`: where its events are specified."""

    session = True

    def __init__(
        self, collector: MessageCollector, exchange: SeenExchange, sender: Sender, limit: int, clause: str
    ) -> None:
        super().__init__(collector, exchange, sender)
        self._parser = EventParser(limit)
        self._clause = clause

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Report every event that these bytes complete."""
        self._places.add(offset, len(data), time_ns)
        self._parser.receive(data)
        try:
            while (raw := self._parser.next_event()) is not None:
                span = self._places.take(self._places.left - self._parser.unread)
                try:
                    self._event(raw, span)
                except (RemoteProtocolError, OperationFailed) as error:
                    self._fault(HttpFault(span.start, error.failure.message, self._clause), time_ns)
        except RemoteProtocolError as error:
            raise HttpFault(self._places.offset(), error.failure.message, self._clause) from None

    @property
    def half(self) -> str:
        """Name of the incomplete event, if there is one."""
        return "an event" if self._parser.buffered and self._places.left else ""

    def _event(self, raw: RawEvent, span: TimedRange) -> None:
        """Report an event. Raises RemoteProtocolError, OperationFailed for one that cannot be decoded."""
        raise NotImplementedError
