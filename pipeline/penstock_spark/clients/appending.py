"""Conditional appends to one stream over S2S sessions (S2 fact sheet, 2.3)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.model.failures import Failure, OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.model.operations import Append, Appended
from penstock.model.records import Headers, StreamPosition, StreamRef, metered_size
from penstock.wire.codec import NEED_DATA, Pull
from penstock_s2.codec.s2s.sessions import AppendClient
from penstock_s2.codec.validation import validate_append
from penstock_spark.clients.calls import ServerRequests
from penstock_spark.clients.failing import lost
from penstock_spark.clients.http import HttpConnection
from penstock_spark.clients.transport import Buffer

__all__ = ["Appender"]

_MAX_FLYING: Final = 16 * MIB
"""Largest number of metered bytes in flight before `append` waits."""


class Appender:
    """An appender whose batches name the sequence number that they must begin at, so that a batch sent twice is stored
    once. It never resends by itself. After an error every later call raises the same error, unless it concerns a batch
    that was not sent."""

    def __init__(self, calls: ServerRequests, stream: StreamRef) -> None:
        self._calls = calls
        self._stream = stream
        self._host = calls.host_of(stream.basin)
        self._connection: HttpConnection | None = None
        self._codec = AppendClient(calls.endpoint.compression)
        self._flying: deque[Append] = deque()
        self._flying_bytes = 0
        self._end: StreamPosition | None = None
        self._error: OperationFailed | None = None
        self.acknowledged = 0
        """Number of batches known to be stored. Counts acknowledgements received up to the last call; reading it does
        not wait."""

    def append(
        self,
        bodies: Sequence[bytes],
        headers: Mapping[int, Headers],
        timestamps: Sequence[int | None] | None,
        expected: int | None,
    ) -> None:
        """Send a batch (at most 1,000 records and 1 MiB metered) that must begin at sequence number `expected` (None:
        anywhere). Several batches may be in flight; waits while some MiB are.

        Raises OperationFailed(SEQ_NUM_MISMATCH) for this or an earlier batch: that batch, and all sent after it, were
        not stored. Raises INVALID or NOT_REPRESENTABLE for a batch that S2 does not accept: nothing was sent, and other
        batches can follow.
        """
        self._check()
        listed = list(bodies)
        metered = metered_size(listed, headers)
        append = Append(self._stream, listed, metered, headers=headers, timestamps=timestamps, match_seq_num=expected)
        validate_append(append)
        with self._final():
            connection = self._session()
        pieces = self._codec.send(append)
        with self._final():
            self._flying.append(append)
            self._flying_bytes += metered
            self._send(connection, pieces)
            while self._flying and self._hear(connection, wait=self._flying_bytes > _MAX_FLYING):
                pass

    def flush(self) -> StreamPosition | None:
        """Wait until every batch sent is acknowledged and return the end of the last one (None if none was sent).
        Raises as `append`. After UNAVAILABLE, batches in flight may or may not be stored: read the stream to find
        out."""
        self._check()
        with self._final():
            while self._flying:
                assert self._connection is not None
                self._hear(self._connection, wait=True)
        return self._end

    def close(self) -> None:
        """Close the connection, without waiting."""
        if self._connection is not None and not self._flying:
            with contextlib.suppress(OperationFailed):
                self._connection.finish()  # otherwise the server would take it for an accident
        self._give_up()

    # ---- internals -----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self, connection: HttpConnection, pieces: Sequence[Buffer]) -> None:
        try:
            connection.send(pieces)
        except OperationFailed:
            while self._hear(connection, wait=False):  # the server may have sent the reason before it closed
                pass
            raise

    @contextlib.contextmanager
    def _final(self) -> Iterator[None]:
        """Close for good on a failure: later calls raise it again."""
        try:
            yield
        except OperationFailed as error:
            self._give_up()
            self._error = error
            raise

    def _session(self) -> HttpConnection:
        """Return the current session if it is alive, else a new one. A session that is to be replaced is flushed
        first."""
        connection = self._connection
        if connection is not None and not self._flying and self._is_stale(connection):
            self._give_up()
        elif connection is not None and self._codec.reconnect_advised:
            self.flush()
            self._give_up()
        return self._connection or self._calls.patience().over(self._begin)

    def _begin(self) -> HttpConnection:
        connection = self._calls.take(self._host)
        try:
            self._calls.begin_append(connection, self._stream)
        except BaseException:
            connection.close()
            self._calls.give_back(self._host, connection)
            raise
        self._codec = AppendClient(self._calls.endpoint.compression)
        self._connection = connection
        return connection

    def _is_stale(self, connection: HttpConnection) -> bool:
        """Return whether the server has ended the session, or asked for its end, while nothing is in flight."""
        if self._codec.reconnect_advised:
            return True
        try:
            return connection.receive(wait=False) is not None
        except OperationFailed:
            return True

    def _hear(self, connection: HttpConnection, *, wait: bool) -> bool:
        """Take one acknowledgement. Returns False if none has arrived and `wait` is false."""
        try:
            while (event := self._codec.next_event()) is NEED_DATA:
                data = connection.receive(wait=wait)
                if data is None:
                    return False
                self._codec.receive(data)
        except RemoteProtocolError as error:
            raise lost(self._calls.endpoint, error.failure.message) from error
        if isinstance(event, Failure):
            raise OperationFailed(event)
        if isinstance(event, Pull):
            raise lost(self._calls.endpoint, f"{self._stream}: the server ended an append session")
        self._acknowledged(event)
        return True

    def _acknowledged(self, appended: Appended) -> None:
        append = self._flying.popleft()
        self._flying_bytes -= append.metered
        if append.match_seq_num not in (None, appended.start.seq_num):
            message = f"{self._stream}: the server stored at {appended.start.seq_num} what was for"
            raise lost(self._calls.endpoint, f"{message} {append.match_seq_num}")
        self._end = appended.end
        self.acknowledged += 1

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        self._flying.clear()
        self._flying_bytes = 0
        if connection is not None:
            connection.close()
            self._calls.give_back(self._host, connection)
