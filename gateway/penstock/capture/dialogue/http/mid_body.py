"""Read bodies from their middle: find the first whole frame or event of a session."""

from __future__ import annotations

from collections.abc import Callable

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, SeenExchange
from penstock.capture.pcapng import Sender
from penstock.wire.http.observer.faults import HttpFault, TimedRange

__all__ = ["MidBodyReader"]

_MOST_TRIED = 4


class MidBodyReader(BodyReader):
    """Reader that tries the body's reader from each piece on, until one decodes something; that one reads on.

    Senders write whole frames, or events, so nearly always the first piece begins with one. Bytes before it are not
    reported: they belong to a message whose beginning was not recorded. Bodies that are one message yield nothing.
    """

    session = True

    def __init__(
        self,
        collector: MessageCollector,
        exchange: SeenExchange,
        sender: Sender,
        make: Callable[[MessageCollector, SeenExchange, Sender], BodyReader],
    ) -> None:
        super().__init__(collector, exchange, sender)
        self._make = make
        self._tried: list[BodyReader] = []
        self._found: BodyReader | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Read a piece of the body."""
        if self._found is not None:
            self._found.receive(data, offset, time_ns)
            return
        if len(self._tried) < _MOST_TRIED:
            reader = self._make(self._collector, self._exchange, self._sender)
            if not reader.session:
                return
            self._tried.append(reader)
        for reader in list(self._tried):
            before = self._collector.count
            try:
                reader.receive(data, offset, time_ns)
            except HttpFault:
                if self._collector.count == before:
                    self._tried.remove(reader)
                    continue
            if self._collector.count > before:
                self._found = reader
                self._tried.clear()
                return

    def finish(self, end: TimedRange) -> None:
        """Finish: the body is complete."""
        if self._found is not None:
            self._found.finish(end)

    def abandon(self) -> None:
        """Report what waits."""
        if self._found is not None:
            self._found.abandon()

    @property
    def half(self) -> str:
        """Name of the incomplete part if the body ends here."""
        return "" if self._found is None else self._found.half

    @property
    def offset(self) -> int:
        """Offset of the incomplete part."""
        return super().offset if self._found is None else self._found.offset
