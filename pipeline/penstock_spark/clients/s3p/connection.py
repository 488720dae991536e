"""One blocking connection to an S3P server: commands are sent, and replies arrive in the same order."""

from __future__ import annotations

from typing import Final

from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock_codecs.limits import MIB, S3PLimits
from penstock_codecs.s3p import Command, ErrorReply, ReadRecords, Records, Reply, S3PClient, failure_of
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import PooledConnection
from penstock_spark.clients.transport import BlockingTransport

__all__ = ["BlockingS3PConnection"]

_LIMITS: Final = S3PLimits(max_record_bytes=MIB)
"""Limits on replies: the most that other servers send."""
_OURS: Final = {FailureCode.BAD_FORMAT: FailureCode.OTHER}
"""Failure codes to report instead: a command that the client formatted wrongly is not the user's mistake."""


class BlockingS3PConnection(PooledConnection):
    """See `pool.Connection`. Raises OperationFailed: the server's error, UNAVAILABLE if it goes away or breaks the
    protocol, LIMIT_EXCEEDED for a reply that is too large."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport = BlockingTransport(endpoint)
        self._codec = S3PClient(_LIMITS)
        self._outstanding = 0
        self._broken = False

    @property
    def clean(self) -> bool:
        return self._transport.open and not self._broken and not self._outstanding

    def send(self, command: Command) -> None:
        """Send a command; take its reply with `reply`."""
        try:
            pieces = self._codec.send(command)
        except LocalProtocolError as error:
            raise fail(FailureCode.INVALID, f"{self._endpoint}: {error}") from None
        self._outstanding += 1
        self._transport.send(pieces)

    def reply(self) -> Reply:
        """Return the next reply; raise error replies."""
        self._broken = True  # until a whole reply has arrived
        try:
            while isinstance(event := self._codec.next_event(), Pull):
                if event is PAUSED:
                    raise lost(self._endpoint, "it closed the connection")
                self._codec.receive(self._transport.receive())
        except RemoteProtocolError as error:
            if error.failure.code is FailureCode.LIMIT_EXCEEDED:
                raise fail(error.failure.code, f"{self._endpoint}: {error.failure.message}") from None
            raise lost(self._endpoint, error.failure.message) from None
        self._outstanding -= 1
        self._broken = isinstance(event, ErrorReply) and event.fatal
        if isinstance(event, ErrorReply):
            failure = failure_of(event)
            code = _OURS.get(failure.code, failure.code)
            raise OperationFailed(Failure(code, f"{self._endpoint}: {failure.message}", failure.details))
        return event

    def records(self) -> Records:
        """Return the reply to a READ."""
        reply = self.reply()
        assert isinstance(reply, Records), "the codec lets nothing else pass"
        return reply

    def read(self, command: ReadRecords) -> Records:
        """Send a READ and return its records."""
        self.send(command)
        return self.records()

    def call(self, command: Command) -> Reply:
        """Send a command and return its reply."""
        self.send(command)
        return self.reply()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
