"""One connection to an S3P server: commands go out, replies come in, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from penstock.backs.upstream import Upstream, lost, reason_of, too_late
from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock_codecs.limits import KIB, MIB, S3PLimits
from penstock_codecs.s3p import Command, ErrorReply, Reply, S3PClient, failure_of

__all__ = ["S3PConnection", "failed"]

LEAST_READ: Final = 64 * KIB
MOST_READ: Final = 1 * MIB
"""Reads grow up to this while they come back full."""
_PASSES: Final = 6
"""So many passes of the scheduler it takes until what a server did long ago has been noticed."""
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
_OURS: Final = {
    FailureCode.BAD_FORMAT: FailureCode.OTHER,  # not what our client sent
}


def failed(upstream: Upstream, reply: ErrorReply) -> OperationFailed:
    """What a server's error reply means to our client."""
    failure = failure_of(reply)
    code = _OURS.get(failure.code, failure.code)
    return OperationFailed(Failure(code, f"{upstream.settings.where}: {failure.message}", failure.details))


class S3PConnection:
    """One task sends and one receives; or one does both with `call`. After OperationFailed it is of no use any more."""

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, limits: S3PLimits, max_reply_bytes: int) -> None:
        self._stream = stream
        self._upstream = upstream
        self._codec = S3PClient(limits, max_reply_bytes=max_reply_bytes)
        self._read_size = LEAST_READ
        self.idle_since = 0.0
        self.broken = False

    async def send(self, commands: Sequence[Command]) -> None:
        """Send commands in one piece. Raises UNAVAILABLE, also where the loss was seen by who receives."""
        if self.broken:
            raise self._lost("the connection was closed")
        pieces = [piece for command in commands for piece in self._codec.send(command)]
        try:
            await self._stream.send_all(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except _LOST as error:
            raise self._lost(reason_of(error)) from error
        except trio.Cancelled:
            self.broken = True  # half a command may be on its way
            raise

    async def reply(self) -> Reply:
        """The next reply, which may be an error. May be cancelled and called again. Raises UNAVAILABLE, also for a
        server that breaks the protocol, and LIMIT_EXCEEDED for a reply that is too large."""
        try:
            while isinstance(event := self._codec.next_event(), Pull):
                if event is PAUSED:
                    raise self._lost("the connection was closed")
                await self._receive()
        except RemoteProtocolError as error:
            if error.failure.code is FailureCode.LIMIT_EXCEEDED:
                self.broken = True
                raise OperationFailed(error.failure) from error
            raise self._lost(error.failure.message) from error
        self._upstream.breaker.succeeded()
        self.broken = self.broken or (isinstance(event, ErrorReply) and event.fatal)
        return event

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(self._read_size)
        except _LOST as error:
            raise self._lost(reason_of(error)) from error
        if len(data) == self._read_size:
            self._read_size = min(2 * self._read_size, MOST_READ)
        elif len(data) < self._read_size // 4:
            self._read_size = max(self._read_size // 2, LEAST_READ)
        self._codec.receive(data)

    def _lost(self, why: str) -> OperationFailed:
        self.broken = True
        return lost(self._upstream.settings, why)

    async def call(self, command: Command, seconds: float) -> Reply:
        """Send a command and receive its reply within so many seconds; error replies are raised.

        Raises OperationFailed: UNAVAILABLE and UPSTREAM_TIMEOUT where it is not known what became of it. Cancelled, the
        connection is broken."""
        try:
            with trio.move_on_after(seconds) as scope:
                await self.send([command])
                reply = await self.reply()
        except trio.Cancelled:
            self.broken = True
            raise
        if scope.cancelled_caught:
            self.broken = True
            self._upstream.breaker.lost("no reply in time")
            raise too_late(self._upstream.settings, "reply", seconds)
        if isinstance(reply, ErrorReply):
            raise failed(self._upstream, reply)
        return reply

    async def is_open(self) -> bool:
        """Whether the server has not closed it while nobody used it, as far as can be seen."""
        if self.broken:
            return False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear)
            for _ in range(_PASSES):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        return not self.broken

    async def _hear(self) -> None:
        """Nobody asked for anything: that it ends is all that can come."""
        with suppress(*_LOST):
            await self._stream.receive_some(1)
        self.broken = True

    async def close(self) -> None:
        """Close it at once."""
        await trio.aclose_forcefully(self._stream)
