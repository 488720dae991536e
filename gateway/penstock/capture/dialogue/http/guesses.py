"""Find messages in DATA of streams whose heads were not recorded: reported if they decode, for want of a media type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.capture.dialogue.http.appends import PendingAppendLimit, PendingAppends
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, SeenExchange, SilentReader
from penstock.capture.dialogue.http.exchanges import http_protocols
from penstock.capture.pcapng import Sender
from penstock.model.records import StreamRef
from penstock.wire.http.observer.faults import HttpFault

__all__ = ["Guesses"]

_MOST_STREAMS: Final = 100


class _Guess:
    """State of one side of one stream. `reader`: the reader whose first frame decoded; before that, all are tried."""

    def __init__(self) -> None:
        self.reader: BodyReader | None = None
        self.tried: list[BodyReader] = []


class Guesses:
    """The streams of one connection, at most 100 of them."""

    def __init__(self, collector: MessageCollector, noted_streams: Sequence[str]) -> None:
        self._collector = collector
        self._noted = noted_streams
        self._guesses: dict[tuple[int, Sender], _Guess] = {}

    def receive(self, number: int, sender: Sender, data: memoryview, offset: int, time_ns: int, begins: bool) -> None:
        """Read content of DATA; `begins`: the first of its frame, where an S2S frame may begin."""
        guess = self._guesses.get((number, sender))
        if guess is None:
            if len(self._guesses) >= 2 * _MOST_STREAMS:
                self._guesses.pop(next(iter(self._guesses)))
            guess = self._guesses[number, sender] = _Guess()
        if guess.reader is not None:
            self._read_on(guess, guess.reader, number, sender, data, offset, time_ns)
            return
        if begins and not guess.tried:
            guess.tried = [
                kind(self._collector, self._exchange(number, session), sender)
                for protocol in http_protocols(self._collector.conversation.protocol)
                for kind, session in protocol.guesses.get(sender, {}).items()
            ]
        for reader in list(guess.tried):
            before = self._collector.count
            try:
                reader.receive(data, offset, time_ns)
            except HttpFault:
                guess.tried.remove(reader)
                continue
            if self._collector.count > before:
                guess.reader = reader
                guess.tried.clear()
                return

    def clear(self) -> None:
        """Forget all streams: bytes were lost."""
        self._guesses.clear()

    def end(self, number: int, sender: Sender) -> None:
        """Forget a side of a stream, which has finished."""
        self._guesses.pop((number, sender), None)

    def _read_on(
        self,
        guess: _Guess,
        reader: BodyReader,
        number: int,
        sender: Sender,
        data: memoryview,
        offset: int,
        time_ns: int,
    ) -> None:
        try:
            reader.receive(data, offset, time_ns)
        except HttpFault as fault:
            self._collector.fault(sender, time_ns, fault, exchange=number)
            guess.reader = SilentReader(self._collector, self._exchange(number), sender)

    def _exchange(self, number: int, session: str = "") -> SeenExchange:
        exchange = SeenExchange(number, PendingAppends(self._collector.conversation, PendingAppendLimit()))
        exchange.session = session
        if len(self._noted) == 1:
            exchange.stream = self._noted[0]
            exchange.ref = StreamRef(*exchange.stream.partition("/")[::2])
        return exchange
