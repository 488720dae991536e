"""Read bodies from their middle: find the first whole frame or event of a session."""

from __future__ import annotations

from collections.abc import Callable

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue.http.exchange import Exchange, Reader
from penstock_analysis.dialogue.http.telling import Teller
from penstock_codecs.http.observer.faults import Fault, Span

__all__ = ["Amid"]

_MOST_TRIED = 4


class Amid(Reader):
    """Reader that tries the body's reader from each piece on, until one decodes something; that one reads on.

    Senders write whole frames, or events, so nearly always the first piece begins with one. Bytes before it are not
    reported: they belong to a message whose beginning was not recorded. Bodies that are one message yield nothing.
    """

    session = True

    def __init__(
        self, teller: Teller, exchange: Exchange, sender: Sender, make: Callable[[Teller, Exchange, Sender], Reader]
    ) -> None:
        super().__init__(teller, exchange, sender)
        self._make = make
        self._tried: list[Reader] = []
        self._found: Reader | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Read a piece of the body."""
        if self._found is not None:
            self._found.receive(data, offset, time_ns)
            return
        if len(self._tried) < _MOST_TRIED:
            reader = self._make(self._teller, self._exchange, self._sender)
            if not reader.session:
                return
            self._tried.append(reader)
        for reader in list(self._tried):
            before = self._teller.count
            try:
                reader.receive(data, offset, time_ns)
            except Fault:
                if self._teller.count == before:
                    self._tried.remove(reader)
                    continue
            if self._teller.count > before:
                self._found = reader
                self._tried.clear()
                return

    def finish(self, end: Span) -> None:
        """Finish: the body is complete."""
        if self._found is not None:
            self._found.finish(end)

    @property
    def half(self) -> str:
        """Name of the incomplete part if the body ends here."""
        return "" if self._found is None else self._found.half

    @property
    def offset(self) -> int:
        """Offset of the incomplete part."""
        return super().offset if self._found is None else self._found.offset
