"""A connection to a server whose protocol has a codec of its own on bare TCP, and a pool of them.

`CodecConnection` is the part that such protocols share: sending whole messages, receiving the next event of the codec,
and finding out whether an idle connection is still good. A subclass makes the codec's messages of requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.net.transport import Transport
from penstock.net.upstream import Upstream, broke, lost, reason_of, too_late, unreachable
from penstock.wire.codec import NEED_DATA, PAUSED, Pull

__all__ = ["CodecConnection", "CodecPool"]

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
_PASSES: Final = 6
"""Passes of the scheduler after which an earlier close by the server has certainly been noticed."""
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class _Receiving(Protocol):
    """The receiving half of a client's codec."""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes; b"" is the end."""

    def next_event(self) -> Any:
        """Return the next event, or a `Pull`. Raises RemoteProtocolError."""

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered."""


class CodecConnection:
    """Connection for one sending and one receiving task, or one task that does both. Unusable once `broken`.

    `idle_since`: the time at which it was put back into its pool.
    """

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, codec: _Receiving) -> None:
        self._transport = Transport(stream, READ_SIZE)
        self.upstream = upstream
        self._receiving = codec
        self.idle_since = 0.0
        self.broken = False

    async def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send bytes, as one write; they are asked for once the connection is known to be good.

        Raises UNAVAILABLE, also if the receiving task has noticed the loss.
        """
        if self.broken:
            raise self._lost("the connection was closed")
        self._transport.put(list(pieces))
        try:
            await self._transport.drain()
            await trio.lowlevel.checkpoint()
        except _LOST as error:
            raise self._lost(reason_of(error)) from error
        except trio.Cancelled:
            self.broken = True  # half a message may be on its way
            raise

    async def next_event(self) -> Any:
        """Return the codec's next event. May be cancelled and called again.

        Raises UNAVAILABLE, UPSTREAM_FAULT for a server that violates the protocol, and what `refused` makes of the
        codec's other errors.
        """
        try:
            while isinstance(event := self._receiving.next_event(), Pull):
                if event is PAUSED:
                    raise self._lost("the connection was closed")
                await self._receive()
        except RemoteProtocolError as error:
            self.broken = True
            settings, reason = self.upstream.settings, error.failure.message
            if error.failure.code is FailureCode.UNAVAILABLE:
                raise lost(settings, reason) from error
            raise self.refused(broke(settings, reason), error.failure.code) from error
        self.upstream.breaker.succeeded()
        return event

    def refused(self, error: OperationFailed, code: FailureCode) -> OperationFailed:  # noqa: ARG002
        """Return the error to raise for one of the codec with this code."""
        return error

    async def _receive(self) -> None:
        try:
            self._receiving.receive(await self._transport.receive())
        except _LOST as error:
            raise self._lost(reason_of(error)) from error

    def _lost(self, reason: str) -> OperationFailed:
        self.broken = True
        return lost(self.upstream.settings, reason)

    @asynccontextmanager
    async def within(self, seconds: float, what: str) -> AsyncIterator[None]:
        """Run a block that sends and receives `what` within `seconds`. Raises UPSTREAM_TIMEOUT. A block that is
        cancelled breaks the connection."""
        try:
            with trio.move_on_after(seconds) as scope:
                yield
        except trio.Cancelled:
            self.broken = True
            raise
        if scope.cancelled_caught:
            raise self.late(what, seconds)

    def late(self, what: str, seconds: float) -> OperationFailed:
        """Return the failure for a missing `what` after `seconds`: UPSTREAM_TIMEOUT.

        Marks the connection as broken and tells the circuit breaker.
        """
        self.broken = True
        self.upstream.breaker.lost(f"no {what} in {seconds:g} s")
        return too_late(self.upstream.settings, what, seconds)

    async def is_open(self) -> bool:
        """Return whether an idle connection still seems to be open. One on which more than the replies arrived is not
        used: it would be taken for the reply to the next request."""
        if self.broken or self._has_surplus():
            return False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_replies)
            for _ in range(_PASSES):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return not self.broken

    def _has_surplus(self) -> bool:
        try:
            return self._receiving.next_event() is not NEED_DATA or self._receiving.buffered > 0
        except RemoteProtocolError:
            return True

    async def _read_replies(self) -> None:
        """Mark the idle connection as broken if anything arrives: it can only be its end."""
        with suppress(*_LOST):
            await self._transport.receive()
        self.broken = True

    async def close(self) -> None:
        """Close the connection at once."""
        await self._transport.cut()


C = TypeVar("C", bound=CodecConnection)


class CodecPool(Generic[C]):
    """Pool of at most `max_connections` connections to one server, made by `make`; idle ones are kept for a while."""

    def __init__(self, upstream: Upstream, make: Callable[[trio.abc.Stream, Upstream], C]) -> None:
        self.upstream = upstream
        self._make = make
        self._idle: deque[C] = deque()  # the most recently used at the end
        self._limiter = trio.Semaphore(upstream.settings.max_connections)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[C]:
        """Use a connection exclusively while the block runs. Raises HOT_SERVER if none is available."""
        await self._enter()
        try:
            connection = await self._connection()
            try:
                yield connection
            finally:
                await self._put_back(connection)
        finally:
            self._limiter.release()

    async def _enter(self) -> None:
        seconds = self.upstream.settings.connect_seconds
        with trio.move_on_after(seconds):
            await self._limiter.acquire()
            return
        raise unreachable(self.upstream.settings, f"no connection was free in {seconds:g} s")

    async def _put_back(self, connection: C) -> None:
        if connection.broken:
            await connection.close()
            return
        connection.idle_since = trio.current_time()
        self._idle.append(connection)
        oldest = trio.current_time() - self.upstream.settings.idle_seconds
        while self._idle[0].idle_since < oldest:
            await self._idle.popleft().close()

    async def _connection(self) -> C:
        oldest = trio.current_time() - self.upstream.settings.idle_seconds
        while self._idle:
            connection = self._idle.pop()
            good = False
            try:
                good = connection.idle_since >= oldest and await connection.is_open()
            finally:
                if not good:
                    await connection.close()
            if good:
                return connection
        return self._make(await self.upstream.connect(), self.upstream)

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().close()
