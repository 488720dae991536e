"""Appends to a segment on behalf of a writer (segment fact sheet, 1.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from penstock_codecs.byte_operations import NO_ATTRIBUTE
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import MIB
from penstock_codecs.segment import join_events, released
from penstock_codecs.segment.limits import SEGMENT_MAX_EVENT
from penstock_spark.clients.base import NumberedAppender
from penstock_spark.clients.segment.stores import EndpointStores

__all__ = ["SegmentAppender"]

_LARGEST: Final = SEGMENT_MAX_EVENT + 8
"""Largest append in bytes, including its events' headers: the most that real clients send."""
_UNDER_WAY: Final = 8 * MIB
"""Unacknowledged bytes above which an append waits."""


class SegmentAppender(NumberedAppender):
    """See `NumberedAppender`. An append is stored as a whole or not at all; its events have no headers and no
    timestamps."""

    def __init__(self, stores: EndpointStores, stream: str, writer: UUID) -> None:
        self._stream = stream
        self._writer = writer
        self._place = stores.place(stream)
        self._pending: deque[tuple[int, int]] = deque()  # last number and size of each append in flight
        self._under_way = 0
        self._closed = False
        self.acknowledged = 0
        self._failure: OperationFailed | None = None
        try:
            self._connection = self._place.pool.take()
            self._request = self._connection.next_id()
            self.last = self._set_up()
        except OperationFailed as error:
            stores.failed(stream, error)
            raise
        self._sent = self.last

    def _set_up(self) -> int | None:
        request = released.SetupAppend(self._request, self._writer, self._place.segment, self._place.token)
        try:
            self._connection.send(request)
            reply = self._connection.reply()
            if not isinstance(reply, released.AppendSetup) or reply.writer_id != self._writer:
                raise self._connection.refused(reply, self._place.segment)
        except OperationFailed as error:
            raise self._failed(error) from None
        return None if reply.last_event_number == NO_ATTRIBUTE else reply.last_event_number

    def append(self, bodies: Sequence[bytes], last: int) -> None:
        """See `NumberedAppender`. Raises LIMIT_EXCEEDED for more than 8 MiB, counting 8 bytes for each event's
        header."""
        self._check(bodies, last)
        data = join_events(bodies)
        if len(data) > _LARGEST:
            message = f"an append of {len(data)} bytes to stream {self._stream}, at most {_LARGEST} are taken"
            raise fail(FailureCode.LIMIT_EXCEEDED, message)
        try:
            while self._pending and self._under_way + len(data) > _UNDER_WAY:
                self._take(self._connection.reply())
            self._pending.append((last, len(data)))
            self._under_way += len(data)
            self._sent = last
            block = released.AppendBlockEnd(self._writer, len(data), data, len(bodies), last, self._request)
            self._connection.send(block)
            while self._pending and (reply := self._connection.reply_now()) is not None:
                self._take(reply)
        except OperationFailed as error:
            raise self._failed(error) from None

    def _check(self, bodies: Sequence[bytes], last: int) -> None:
        if self._failure is not None:
            raise self._failure
        if not bodies:
            raise fail(FailureCode.INVALID, f"an append of nothing to stream {self._stream}")
        if self._sent is not None and last <= self._sent:
            message = f"stream {self._stream}: writer {self._writer}: number {last} after {self._sent}"
            raise fail(FailureCode.STALE_WRITER_POSITION, message, position=self._sent)

    def flush(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            while self._pending:
                self._take(self._connection.reply())
        except OperationFailed as error:
            raise self._failed(error) from None

    def _take(self, reply: Any) -> None:
        """Take an acknowledgement, which may cover several appends."""
        if isinstance(reply, released.InvalidEventNumber):
            where = f"stream {self._stream}: writer {self._writer}"
            message = f"{where} has gone on without us: number {reply.event_number} is not above its last, or skips one"
            raise fail(FailureCode.STALE_WRITER_POSITION, message)
        if not isinstance(reply, released.DataAppended) or reply.writer_id != self._writer:
            raise self._connection.refused(reply, self._place.segment)
        while self._pending and self._pending[0][0] <= reply.event_number:
            _, size = self._pending.popleft()
            self._under_way -= size
            self.acknowledged += 1

    def _failed(self, error: OperationFailed) -> OperationFailed:
        self._failure = error
        self.close()
        return error

    def close(self) -> None:
        """See `NumberedAppender`. The connection is not reused: a writer is set up on it."""
        if self._failure is None:
            self._failure = fail(FailureCode.INVALID, f"the appender of stream {self._stream} was closed")
        if not self._closed:
            self._closed = True
            self._connection.close()
            self._place.pool.give_back(self._connection)
