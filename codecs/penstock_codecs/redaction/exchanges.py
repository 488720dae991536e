"""What the two sides of an HTTP connection know of each other: which request an answer is to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock_codecs.capture import Sender

__all__ = ["UNKNOWN", "Exchange", "Exchanges"]

_MOST: Final = 10_000
"""Requests that are remembered until they are answered; older ones are answered as if nobody knew them, and over
HTTP/1.1 those behind them too."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, as far as it says what the bodies of both sides are. `base64`: header `s2-format` says so.

    `known` False: the request went by before the recording began.
    """

    method: bytes = b""
    path: bytes = b""
    base64: bool = False
    known: bool = True


UNKNOWN: Final = Exchange(known=False)


class Exchanges:
    """Requests that wait for their answers."""

    def __init__(self) -> None:
        self.in_order: deque[Exchange] = deque(maxlen=_MOST)
        """HTTP/1.1: those that are answered next come first."""
        self.certain = True
        """Whether all requests went by; else an answer may be to one that nobody knows."""
        self.resets: dict[Sender, Callable[[int], None]] = {}
        """HTTP/2: to be told of streams that are reset, by either side."""
        self._by_stream: dict[int, Exchange] = {}

    def asks(self, exchange: Exchange) -> None:
        """HTTP/1.1: one more request."""
        self.certain = self.certain and len(self.in_order) < _MOST
        self.in_order.append(exchange)

    def answered(self) -> Exchange:
        """HTTP/1.1: which request the next answer is to. An answer to none makes those after it uncertain."""
        self.certain = self.certain and bool(self.in_order)
        exchange = self.in_order.popleft() if self.in_order else UNKNOWN
        return exchange if self.certain else UNKNOWN

    def asked(self, stream: int, exchange: Exchange) -> None:
        """HTTP/2: a request on a stream."""
        if len(self._by_stream) >= _MOST:
            del self._by_stream[next(iter(self._by_stream))]
        self._by_stream[stream] = exchange

    def of(self, stream: int) -> Exchange:
        """HTTP/2: the request on a stream."""
        return self._by_stream.get(stream, UNKNOWN)

    def over(self, stream: int) -> None:
        """HTTP/2: nothing more will be answered there."""
        self._by_stream.pop(stream, None)
