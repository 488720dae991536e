"""Append sessions: pipelined APPENDs on one connection, and recovery when it is lost.

A batch that is larger than one APPEND may be is split, if the settings allow that.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from penstock.backends.background import background
from penstock.core.delivery import Delivery
from penstock.core.native import NativeAck, NativeAppendSession
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import KIB
from penstock.model.operations import Append
from penstock.model.records import RecordId
from penstock.net.retries import RetryPolicy, worth_retrying
from penstock.net.upstream import broke, doubtful
from penstock_s3p.back.bodies import to_bodies
from penstock_s3p.back.connection import S3PConnection, S3PPool, failed
from penstock_s3p.back.settings import S3PBackSettings
from penstock_s3p.codec import AppendedId, AppendRecords, ErrorReply

__all__ = ["S3PAppendSession", "append_session", "split"]

_TOGETHER: Final = 64 * KIB
"""Approximate number of bytes up to which commands are sent together."""
_PAUSES: Final = RetryPolicy()


def split(bodies: list[bytes], settings: S3PBackSettings) -> list[list[bytes]]:
    """Split a batch's bodies into as many APPENDs as the server's limits require, mostly one.

    Raises LIMIT_EXCEEDED for a record that is too large, and for a batch that is too large and must not be split.
    """
    limits = settings.limits
    size = 0
    for index, body in enumerate(bodies):
        size += len(body)
        if len(body) > limits.max_record_bytes:
            raise fail(
                FailureCode.LIMIT_EXCEEDED,
                f"record {index + 1} of the batch has {len(body)} bytes; the server takes {limits.max_record_bytes}",
            )
    if len(bodies) <= limits.max_records_per_append and size <= limits.max_append_bytes:
        return [bodies]
    if not settings.split_appends:
        raise fail(
            FailureCode.LIMIT_EXCEEDED,
            f"a batch of {len(bodies)} records and {size} bytes; the server takes {limits.max_records_per_append} "
            f"records and {limits.max_append_bytes} bytes at once",
        )
    pieces: list[list[bytes]] = [[]]
    room = limits.max_append_bytes
    for body in bodies:
        if pieces[-1] and (len(pieces[-1]) >= limits.max_records_per_append or len(body) > room):
            pieces.append([])
            room = limits.max_append_bytes
        pieces[-1].append(body)
        room -= len(body)
    return pieces


class _Part:
    """One APPEND: a whole batch or a part of it. `again`: it was sent before, on a connection that was lost."""

    __slots__ = ("again", "command", "last", "size")

    def __init__(self, command: AppendRecords, last: bool) -> None:
        self.command = command
        self.last = last
        self.size = sum(map(len, command.bodies))
        self.again = False


class S3PAppendSession(NativeAppendSession):
    """An append session with an S3P server. `run` must run in the background while it is used.

    An APPEND with option ID is sent alone, because it may fail while those behind it succeed.
    """

    def __init__(self, pool: S3PPool, settings: S3PBackSettings, name: bytes) -> None:
        self._pool = pool
        self._settings = settings
        self._name = name
        self._waiting: deque[_Part] = deque()  # to be sent
        self._sent: deque[_Part] = deque()  # to be acknowledged
        self._acked: list[NativeAck] = []  # parts of an incomplete batch
        self._acks: deque[NativeAck] = deque()
        self._bytes = 0
        self._failure: Failure | None = None
        self._closed = False
        self._ended = False
        self._changed = trio.lowlevel.ParkingLot()
        self._turn = trio.Lock()
        self._due = trio.CancelScope()  # ends when an acknowledgement is overdue
        self._newest_id: RecordId | None = None  # of the appends acknowledged since one was in flight alone
        self._lost: Failure | None = None  # why the connection cannot be used any more
        self._refused: OperationFailed | None = None  # the server's error for an append
        self._failures = 0  # since the last acknowledgement; retried until `_until`
        self._until: float | None = None

    # ---- the client's side ---------------------------------------------------------------------------------------

    async def send(self, append: Append) -> None:
        """Send a batch; see `NativeAppendSession.send`.

        Raises NOT_REPRESENTABLE and LIMIT_EXCEEDED, which change nothing.
        """
        bodies = to_bodies(append, self._settings.loss)
        batches = split(bodies, self._settings)
        parts = [_Part(AppendRecords(self._name, batch, append.exact_timestamp), False) for batch in batches]
        parts[-1].last = True
        size = sum(command_part.size for command_part in parts)
        async with self._turn:
            while self._must_wait(append, size) and self._failure is None:
                await self._changed.park()
            if self._failure is None and not self._ended:
                self._bytes += size
                self._waiting += parts
                self._changed.unpark_all()

    def _must_wait(self, append: Append, size: int) -> bool:
        if not self._bytes:
            return False
        under_way = self._waiting or self._sent
        alone = append.exact_timestamp is not None or (under_way and self._newest.command.ms is not None)
        return bool(under_way and alone) or self._bytes + size > self._settings.append_inflight_bytes

    @property
    def _newest(self) -> _Part:
        return self._waiting[-1] if self._waiting else self._sent[-1]

    def close(self) -> None:
        self._closed = True
        self._changed.unpark_all()

    async def receive(self) -> list[NativeAck]:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._acks:
            if self._failure is not None:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if self._closed and not self._waiting and not self._sent:
                await trio.lowlevel.checkpoint()
                return []
            await self._changed.park()
        acks = list(self._acks)
        self._acks.clear()
        return acks

    # ---- the server's side ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send the waiting APPENDs until the session is closed and done, reconnecting if necessary."""
        try:
            while await self._work():
                lost = await self._use_connection()
                if lost is not None:
                    await self._recover(lost)
        except OperationFailed as error:
            self._failure = error.failure
        finally:
            self._ended = True
            self._changed.unpark_all()

    async def _work(self) -> bool:
        """Wait for something to send. Returns False if the session was closed and nothing is waiting."""
        while not self._waiting and not self._closed:
            await self._changed.park()
        return bool(self._waiting)

    async def _recover(self, lost: Failure) -> None:
        """Queue the unacknowledged APPENDs again and pause, after the connection was lost or could not be made.

        Raises OperationFailed if they must not be sent again, or the time for recovery is over.
        """
        if self._sent and self._settings.delivery is Delivery.REFUSE:
            raise OperationFailed(lost)
        for command_part in self._sent:
            command_part.again = True
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        if not self._waiting:
            return  # nothing was in flight: just use another connection
        if not any(command_part.again for command_part in self._waiting):
            raise OperationFailed(lost)
        self._failures += 1
        pause = _PAUSES.pause(self._failures, random.random())
        if self._until is None:
            self._until = trio.current_time() + self._settings.recover_seconds
        if trio.current_time() + pause > self._until or not worth_retrying(lost):
            raise OperationFailed(doubtful(lost))
        await trio.sleep(pause)

    async def _use_connection(self) -> Failure | None:
        """Use one connection until it is lost, and return why, or until there is nothing more to do.

        Raises OperationFailed if the server refuses an append.
        """
        self._lost = self._refused = None
        try:
            async with self._pool.use() as connection:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, connection, nursery.cancel_scope)
                    nursery.start_soon(self._read, connection, nursery.cancel_scope)
                    while self._waiting or self._sent or not self._closed:
                        await self._changed.park()
                    nursery.cancel_scope.cancel()
                connection.broken = connection.broken or bool(self._sent)
        except OperationFailed as error:
            return error.failure
        if self._refused is not None:
            raise self._refused
        return self._lost

    async def _write(self, connection: S3PConnection, scope: trio.CancelScope) -> None:
        try:
            while True:
                while not self._waiting:
                    await self._changed.park()
                if not self._sent:
                    self._newest_id = None
                commands, size = [], 0
                while self._waiting and size < _TOGETHER:
                    command_part = self._waiting.popleft()
                    self._sent.append(command_part)
                    commands.append(command_part.command)
                    size += command_part.size
                self._arm()
                await connection.send(commands)
        except OperationFailed as error:
            self._lost = self._lost or error.failure
            scope.cancel()

    async def _read(self, connection: S3PConnection, scope: trio.CancelScope) -> None:
        seconds = self._pool.upstream.settings.request_seconds
        try:
            while self._refused is None:
                with trio.CancelScope() as self._due:
                    self._arm()
                    reply = await connection.reply()
                if self._due.cancelled_caught:
                    raise connection.late("acknowledgement", seconds)
                if isinstance(reply, ErrorReply):
                    self._refused = self._error(reply)
                else:
                    assert isinstance(reply, AppendedId), "the codec lets nothing else pass"
                    self._acknowledge(reply)
        except OperationFailed as error:
            self._lost = self._lost or error.failure
        scope.cancel()

    def _arm(self) -> None:
        seconds = self._pool.upstream.settings.request_seconds
        self._due.deadline = trio.current_time() + seconds if self._sent else math.inf

    def _acknowledge(self, reply: AppendedId) -> None:
        """Raises UPSTREAM_FAULT for a reply that came twice: nothing but its identifier tells."""
        if self._newest_id is not None and reply.record_id <= self._newest_id:
            reason = f"it answered an APPEND with {reply.record_id} after {self._newest_id}"
            raise broke(self._pool.upstream.settings, reason)
        self._newest_id = reply.record_id
        command_part = self._sent.popleft()
        self._bytes -= command_part.size
        self._failures, self._until = 0, None
        last = (reply.record_id.ms, reply.record_id.seq)
        ack = NativeAck(len(command_part.command.bodies), last)
        if self._acked or not command_part.last:
            self._acked.append(ack)
            if not command_part.last:
                return
            ack = NativeAck(sum(ack_part.count for ack_part in self._acked), last, parts=tuple(self._acked))
            self._acked = []
        self._acks.append(ack)
        self._changed.unpark_all()

    def _error(self, reply: ErrorReply) -> OperationFailed:
        error = failed(self._pool.upstream, reply)
        command_part = self._sent[0]
        if command_part.again and error.failure.code is FailureCode.NON_MONOTONIC_TIMESTAMP:
            # It was sent before, and those behind it too: the later timestamp may be its own or theirs.
            return fail(FailureCode.UNAVAILABLE, error.failure.message)
        return error


@asynccontextmanager
async def append_session(pool: S3PPool, settings: S3PBackSettings, name: bytes) -> AsyncIterator[S3PAppendSession]:
    """Open an append session for the stream that the server calls `name`."""
    session = S3PAppendSession(pool, settings, name)
    async with background() as nursery:
        nursery.start_soon(session.run)
        yield session
