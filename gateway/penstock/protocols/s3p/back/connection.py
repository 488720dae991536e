"""One connection to an S3P server: commands are sent, replies received in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from penstock.net.transport import Transport
from penstock.net.upstream import Upstream, broke, lost, reason_of, too_late
from penstock_codecs.codec import NEED_DATA, PAUSED, Pull
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock_codecs.limits import MIB, S3PLimits
from penstock_codecs.s3p import Command, ErrorReply, Reply, S3PClient, failure_of

__all__ = ["ReplyTooLarge", "S3PConnection", "failed"]

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
_PASSES: Final = 6
"""Passes of the scheduler after which an earlier close by the server has certainly been noticed."""
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class ReplyTooLarge(OperationFailed):
    """A reply is larger than the settings allow: UPSTREAM_FAULT. Asking for less may succeed."""


def failed(upstream: Upstream, reply: ErrorReply) -> OperationFailed:
    """Return the failure to report for a server's error reply.

    A command that the server cannot read is the gateway's, not the client's: UPSTREAM_FAULT.
    """
    failure = failure_of(reply)
    if failure.code is FailureCode.BAD_FORMAT or (failure.code is FailureCode.OTHER and reply.code in failure.message):
        return broke(upstream.settings, f"{reply.code} {reply.message}")
    return OperationFailed(Failure(failure.code, f"{upstream.settings.where}: {failure.message}", failure.details))


class S3PConnection:
    """Connection for one sending and one receiving task, or one task that uses `call`.

    Unusable after an OperationFailed.
    """

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, limits: S3PLimits, max_reply_bytes: int) -> None:
        self._transport = Transport(stream, READ_SIZE)
        self._upstream = upstream
        self._codec = S3PClient(limits, max_reply_bytes=max_reply_bytes)
        self.idle_since = 0.0
        self.broken = False

    async def send(self, commands: Sequence[Command]) -> None:
        """Send commands in one piece. Raises UNAVAILABLE, also if the receiving task has noticed the loss."""
        if self.broken:
            raise self._lost("the connection was closed")
        self._transport.put([piece for command in commands for piece in self._codec.send(command)])
        try:
            await self._transport.drain()
            await trio.lowlevel.checkpoint()
        except _LOST as error:
            raise self._lost(reason_of(error)) from error
        except trio.Cancelled:
            self.broken = True  # half a command may be on its way
            raise

    async def reply(self) -> Reply:
        """Receive the next reply, which may be an error. May be cancelled and called again.

        Raises UNAVAILABLE, UPSTREAM_FAULT for a server that violates the protocol, and ReplyTooLarge.
        """
        try:
            while isinstance(event := self._codec.next_event(), Pull):
                if event is PAUSED:
                    raise self._lost("the connection was closed")
                await self._receive()
        except RemoteProtocolError as error:
            self.broken = True
            settings, why = self._upstream.settings, error.failure.message
            if error.failure.code is FailureCode.UNAVAILABLE:
                raise lost(settings, why) from error
            if error.failure.code is FailureCode.LIMIT_EXCEEDED:
                raise ReplyTooLarge(broke(settings, why).failure) from error
            raise broke(settings, why) from error
        self._upstream.breaker.succeeded()
        self.broken = self.broken or (isinstance(event, ErrorReply) and event.fatal)
        return event

    async def _receive(self) -> None:
        try:
            self._codec.receive(await self._transport.receive())
        except _LOST as error:
            raise self._lost(reason_of(error)) from error

    def _lost(self, why: str) -> OperationFailed:
        self.broken = True
        return lost(self._upstream.settings, why)

    async def call(self, command: Command, seconds: float) -> Reply:
        """Send a command and receive its reply within `seconds`; error replies are raised.

        Raises OperationFailed: UNAVAILABLE or UPSTREAM_TIMEOUT if its outcome is unknown. Cancelling it breaks the
        connection.
        """
        try:
            with trio.move_on_after(seconds) as scope:
                await self.send([command])
                reply = await self.reply()
        except trio.Cancelled:
            self.broken = True
            raise
        if scope.cancelled_caught:
            raise self.late("reply", seconds)
        if isinstance(reply, ErrorReply):
            raise failed(self._upstream, reply)
        return reply

    def late(self, what: str, seconds: float) -> OperationFailed:
        """Return the failure for a missing `what` after `seconds`: UPSTREAM_TIMEOUT.

        Marks the connection as broken and tells the circuit breaker.
        """
        self.broken = True
        self._upstream.breaker.lost(f"no {what} in {seconds:g} s")
        return too_late(self._upstream.settings, what, seconds)

    async def is_open(self) -> bool:
        """Return whether an idle connection still seems to be open. One on which more than the replies arrived is not
        used: it would be taken for the reply to the next command."""
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
            return self._codec.next_event() is not NEED_DATA or self._codec.buffered > 0
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
