"""HTTP/1.1 over a transport: one exchange after the other, with bodies streamed in either direction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.wire.codec import NEED_DATA, Role
from penstock.wire.http import HttpLimits
from penstock.wire.http.events import Body, Data, End, Ended, Noise, Received, RequestHead, ResponseHead
from penstock.wire.http.h1 import Http1Connection
from penstock_spark.clients.failing import late, lost
from penstock_spark.clients.transport import BlockingTransport, Buffer

__all__ = ["HeaderList", "HttpConnection"]

HeaderList = Sequence[tuple[str, str]]
_ALL: Final = 2**31
_TLS_ALERT: Final = b"\x15"
"""The first byte of an answer to what is not TLS (RFC 8446, 5.1)."""


class HttpConnection:
    """A client connection. For each exchange call `request`, or `open` and `send`; then `head`; then `receive` until
    b"".

    Every method raises OperationFailed as `BlockingTransport` does, also UNAVAILABLE if the server does not speak HTTP.
    `authority`: the server's name in requests.
    """

    def __init__(self, transport: BlockingTransport, authority: str) -> None:
        self._transport = transport
        self._authority = authority
        self._codec = Http1Connection(Role.CLIENT, HttpLimits(), "https" if transport.endpoint.tls else "http")
        self._exchange = 0
        self._complete = True
        self._streams = False

    @property
    def reusable(self) -> bool:
        """True if another exchange can follow: the last one is complete and the server has not closed."""
        if self._streams or not self._complete or self._codec.closed:
            return False
        try:
            # between exchanges a server sends nothing but the end of the connection
            return self._transport.receive_now() is None
        except OperationFailed:
            return False

    def request(self, method: str, target: str, headers: HeaderList, body: bytes = b"") -> None:
        """Send a request with its whole body."""
        sized = [("content-length", str(len(body)))] if body or method == "POST" else []
        self._begin(method, target, [*headers, *sized])
        self._codec.send(Body(self._exchange, [body], end=True))
        self._flush()

    def open(self, method: str, target: str, headers: HeaderList) -> None:
        """Send the head of a request whose body follows with `send`. No other exchange can follow."""
        self._streams = True
        self._begin(method, target, [*headers, ("transfer-encoding", "chunked")])
        self._flush()

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Send a piece of the body."""
        self._codec.send(Body(self._exchange, pieces))
        self._flush()

    def finish(self) -> None:
        """End the body that was sent with `send`."""
        self._codec.send(End(self._exchange))
        self._flush()

    def head(self) -> ResponseHead:
        """Wait for the response head, for `request_seconds` in all, skipping anything that precedes it."""
        endpoint = self._transport.endpoint
        deadline = time.monotonic() + endpoint.request_seconds
        while time.monotonic() <= deadline:
            event = self._next(wait=True)
            if isinstance(event, ResponseHead):
                return event
        self._transport.close()
        raise late(endpoint, endpoint.request_seconds)

    def receive(self, *, wait: bool = True) -> bytes | None:
        """Return the next piece of the response body; b"" at its end. Without `wait`, return None if none has arrived
        yet."""
        while not self._complete:
            event = self._next(wait=wait)
            if event is None:
                return None
            if isinstance(event, Data):
                return bytes(event.data)
            self._complete = isinstance(event, End)
        return b""

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    # ---- internals -----------------------------------------------------------------------------------------------

    def _begin(self, method: str, target: str, headers: HeaderList) -> None:
        self._exchange = self._codec.new_stream()
        self._complete = False
        self._codec.send(RequestHead(self._exchange, method, target, tuple(headers), self._authority))

    def _flush(self) -> None:
        self._transport.send(self._codec.output(_ALL))

    def _next(self, *, wait: bool) -> Received | None:
        """Return the next event, reading as necessary; without `wait`, None if none has arrived."""
        data: Buffer | None = b""
        try:
            while (event := self._codec.next_event()) is NEED_DATA:
                data = self._transport.receive() if wait else self._transport.receive_now()
                if data is None:
                    return None
                self._codec.receive(data)
        except RemoteProtocolError as error:
            self._transport.close()
            if bytes(data or b"")[:1] == _TLS_ALERT and not self._transport.endpoint.tls:
                message = f"{self._transport.endpoint}: the server speaks TLS: write https:// instead of http://"
                raise fail(FailureCode.INVALID, message) from error
            raise lost(self._transport.endpoint, error.failure.message) from error
        if isinstance(event, ResponseHead | Data | End | Noise):
            return event
        if isinstance(event, Ended) or self._codec.closed:
            self._transport.close()
            raise lost(self._transport.endpoint, "the server closed the connection amid an exchange")
        return Noise()
