"""One blocking connection to a segment store: requests carry ids, and each reply names the request that it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import FailureCode, LocalProtocolError, OperationFailed, RemoteProtocolError, fail
from penstock_codecs.segment import Dialect, SegmentClient, SegmentMessage, released
from penstock_codecs.segment.limits import SEGMENT_VERSIONS
from penstock_codecs.segment.refusals import refusal
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import PooledConnection
from penstock_spark.clients.transport import BlockingTransport

__all__ = ["BlockingStoreConnection"]

M = TypeVar("M", bound=SegmentMessage)
_UNSOLICITED: Final = (released.KeepAlive,)
_EXPIRED: Final = 1


class BlockingStoreConnection(PooledConnection):
    """See `pool.Connection`. Construction exchanges Hello. Every method raises OperationFailed with the store's error,
    or UNAVAILABLE if it goes away or breaks the protocol."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport = BlockingTransport(endpoint)
        self._codec = SegmentClient(Dialect.RELEASED)
        self._last_id = 0
        self._outstanding = 0
        self._broken = False
        try:
            self.send(released.Hello(*SEGMENT_VERSIONS))
            self.reply()  # Hello is always the first reply
        except OperationFailed:
            self._transport.close()
            raise

    @property
    def clean(self) -> bool:
        return self._transport.open and not self._broken and not self._outstanding

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def next_id(self) -> int:
        """Return a request id that is unused on this connection."""
        self._last_id += 1
        return self._last_id

    def send(self, request: SegmentMessage) -> None:
        """Send a request; the caller must take its reply. Raises LIMIT_EXCEEDED for a request too large for a
        message."""
        try:
            pieces = self._codec.send(request)
        except LocalProtocolError as error:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"{self._endpoint} cannot be asked: {error}") from None
        self._outstanding += 1
        self._transport.send(pieces)

    def reply(self) -> Any:
        """Return the next reply, even if it is a refusal."""
        reply = self._reply(wait=True)
        assert reply is not None, "it was waited for"
        return reply

    def reply_now(self) -> Any:
        """Return the next reply, or None if none has arrived yet."""
        return self._reply(wait=False)

    def ask(self, kind: type[M], segment: str, make: Callable[[int], SegmentMessage]) -> M:
        """Send the request that `make` returns for a request id, and return its reply. Raises the failure that the
        reply reports."""
        request_id = self.next_id()
        self.send(make(request_id))
        reply = self.reply()
        if not isinstance(reply, kind) or getattr(reply, "request_id", request_id) != request_id:
            raise self.refused(reply, segment)
        return reply

    def refused(self, reply: Any, segment: str) -> OperationFailed:
        """Return the failure that an unexpected reply reports; UNAVAILABLE if it reports none. An expired token is
        HOT_SERVER, which is retryable: the retry gets a new token."""
        failure = refusal(reply, str(self._endpoint), segment)
        if isinstance(reply, released.AuthTokenCheckFailed) and reply.error_code == _EXPIRED:
            return fail(
                FailureCode.HOT_SERVER, f"{self._endpoint}: segment {segment}: the delegation token has expired"
            )
        if failure is not None:
            return OperationFailed(failure)
        self._broken = True
        return lost(self._endpoint, f"it answers with {type(reply).__name__} what was not asked for")

    def _reply(self, *, wait: bool) -> Any:
        healthy, self._broken = not self._broken, True
        try:
            while True:
                while isinstance(event := self._codec.next_event(), Pull):
                    if event is PAUSED:
                        raise lost(self._endpoint, "it closed the connection")
                    data = self._transport.receive() if wait else self._transport.receive_now()
                    if data is None:
                        self._broken = not healthy
                        return None
                    self._codec.receive(data)
                if not isinstance(event, _UNSOLICITED):
                    break
        except RemoteProtocolError as error:
            raise lost(self._endpoint, error.failure.message) from None
        self._outstanding -= 1
        self._broken = not healthy
        return event
