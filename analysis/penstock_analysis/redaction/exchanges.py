"""Match HTTP requests and responses: state that the two sides of a connection share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock_analysis.capture import Sender

__all__ = ["UNKNOWN", "Exchange", "Exchanges"]

_MOST: Final = 10_000
"""Most pending requests that are remembered; older ones count as unknown when they are answered, and over HTTP/1.1 so
do those behind them."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Parts of a request that determine the format of both bodies. `base64`: the header `s2-format` says so.

    `known` is False if the request passed before the recording began.
    """

    method: bytes = b""
    path: bytes = b""
    base64: bool = False
    known: bool = True


UNKNOWN: Final = Exchange(known=False)


class Exchanges:
    """Requests that wait for their responses."""

    def __init__(self) -> None:
        self.in_order: deque[Exchange] = deque(maxlen=_MOST)
        """HTTP/1.1: those that are answered next come first."""
        self.certain = True
        """True if all requests were recorded; otherwise a response may be to an unknown one."""
        self.joining = False
        """True while a prelude is read: bodies whose heads are in it are read from their middle."""
        self.resets: dict[Sender, Callable[[int], None]] = {}
        """HTTP/2: called with streams that either side resets."""
        self._by_stream: dict[int, Exchange] = {}

    def asks(self, exchange: Exchange) -> None:
        """HTTP/1.1: add a request."""
        self.certain = self.certain and len(self.in_order) < _MOST
        self.in_order.append(exchange)

    def answered(self) -> Exchange:
        """HTTP/1.1: return the request of the next response. A response to no request makes later matches uncertain."""
        self.certain = self.certain and bool(self.in_order)
        exchange = self.in_order.popleft() if self.in_order else UNKNOWN
        return exchange if self.certain else UNKNOWN

    def asked(self, stream: int, exchange: Exchange) -> None:
        """HTTP/2: add the request of a stream."""
        if len(self._by_stream) >= _MOST:
            del self._by_stream[next(iter(self._by_stream))]
        self._by_stream[stream] = exchange

    def of(self, stream: int) -> Exchange:
        """HTTP/2: return the request of a stream."""
        return self._by_stream.get(stream, UNKNOWN)

    def over(self, stream: int) -> None:
        """HTTP/2: forget a stream, on which no response will follow."""
        self._by_stream.pop(stream, None)
