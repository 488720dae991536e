"""HTTP/1.1 over a wire: one exchange after the other, each with bodies that are streamed either way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from penstock_codecs.codec import NEED_DATA, Role
from penstock_codecs.failures import OperationFailed, RemoteProtocolError
from penstock_codecs.http import HttpLimits
from penstock_codecs.http.events import Body, Data, End, Ended, Noise, Received, RequestHead, ResponseHead
from penstock_codecs.http.h1 import Http1Connection
from penstock_spark.clients.failing import late, lost
from penstock_spark.clients.wire import Buffer, Wire

__all__ = ["HeaderList", "HttpConnection"]

HeaderList = Sequence[tuple[str, str]]
_ALL: Final = 2**31


class HttpConnection:
    """See the module: `request` or `open` and `send`, then `head`, then `receive` to its b"".

    All raise OperationFailed as `Wire` does, UNAVAILABLE also where the server does not speak HTTP. `authority`: what
    the server is called in requests.
    """

    def __init__(self, wire: Wire, authority: str) -> None:
        self._wire = wire
        self._authority = authority
        self._codec = Http1Connection(Role.CLIENT, HttpLimits(), "https" if wire.endpoint.tls else "http")
        self._exchange = 0
        self._complete = True
        self._streams = False

    @property
    def reusable(self) -> bool:
        """Whether another exchange can follow: the last one is complete, and the server has not closed."""
        if self._streams or not self._complete or self._codec.closed:
            return False
        try:
            return self._wire.receive_now() is None  # between exchanges the server has nothing to say but its end
        except OperationFailed:
            return False

    def request(self, method: str, target: str, headers: HeaderList, body: bytes = b"") -> None:
        """Send a request with all of its body."""
        sized = [("content-length", str(len(body)))] if body or method == "POST" else []
        self._begin(method, target, [*headers, *sized])
        self._codec.send(Body(self._exchange, [body], end=True))
        self._flush()

    def open(self, method: str, target: str, headers: HeaderList) -> None:
        """Send the head of a request whose body comes by `send`. No other exchange follows it."""
        self._streams = True
        self._begin(method, target, [*headers, ("transfer-encoding", "chunked")])
        self._flush()

    def send(self, pieces: Sequence[Buffer]) -> None:
        """A piece of body."""
        self._codec.send(Body(self._exchange, pieces))
        self._flush()

    def finish(self) -> None:
        """The body that comes by `send` is complete."""
        self._codec.send(End(self._exchange))
        self._flush()

    def head(self) -> ResponseHead:
        """Wait for the answer's head, for `request_seconds` in all, whatever comes before it."""
        endpoint = self._wire.endpoint
        deadline = time.monotonic() + endpoint.request_seconds
        while time.monotonic() <= deadline:
            event = self._next(wait=True)
            if isinstance(event, ResponseHead):
                return event
        self._wire.close()
        raise late(endpoint, endpoint.request_seconds)

    def receive(self, *, wait: bool = True) -> bytes | None:
        """The next piece of the answer's body; b"" at its end. Without `wait`, None where nothing has come yet."""
        while not self._complete:
            event = self._next(wait=wait)
            if event is None:
                return None
            if isinstance(event, Data):
                return event.data
            self._complete = isinstance(event, End)
        return b""

    def close(self) -> None:
        """Give it up."""
        self._wire.close()

    # ---- inside --------------------------------------------------------------------------------------------------

    def _begin(self, method: str, target: str, headers: HeaderList) -> None:
        self._exchange = self._codec.new_stream()
        self._complete = False
        self._codec.send(RequestHead(self._exchange, method, target, tuple(headers), self._authority))

    def _flush(self) -> None:
        self._wire.send(self._codec.output(_ALL))

    def _next(self, *, wait: bool) -> Received | None:
        """The next event, read where there is none; None where that is not to be waited for."""
        try:
            while (event := self._codec.next_event()) is NEED_DATA:
                data = self._wire.receive() if wait else self._wire.receive_now()
                if data is None:
                    return None
                self._codec.receive(data)
        except RemoteProtocolError as error:
            self._wire.close()
            raise lost(self._wire.endpoint, error.failure.message) from error
        if isinstance(event, ResponseHead | Data | End | Noise):
            return event
        if isinstance(event, Ended) or self._codec.closed:
            self._wire.close()
            raise lost(self._wire.endpoint, "the server closed the connection amid an exchange")
        return Noise()
