"""One connection to an S3P server: commands are sent, replies received in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.net.codec_connection import CodecConnection, CodecPool
from penstock.net.upstream import Upstream, broke
from penstock_s3p.codec import Command, ErrorReply, Reply, S3PClient, failure_of
from penstock_s3p.codec.limits import S3PLimits

__all__ = ["ReplyTooLarge", "S3PConnection", "S3PPool", "failed"]


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


class S3PConnection(CodecConnection):
    """Connection for one sending and one receiving task, or one task that uses `call`.

    Unusable after an OperationFailed.
    """

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, limits: S3PLimits, max_reply_bytes: int) -> None:
        self._codec = S3PClient(limits, max_reply_bytes=max_reply_bytes)
        super().__init__(stream, upstream, self._codec)

    async def send(self, commands: Sequence[Command]) -> None:
        """Send commands in one piece. Raises UNAVAILABLE, also if the receiving task has noticed the loss."""
        await self.send_pieces(piece for command in commands for piece in self._codec.send(command))

    async def reply(self) -> Reply:
        """Receive the next reply, which may be an error. May be cancelled and called again.

        Raises UNAVAILABLE, UPSTREAM_FAULT for a server that violates the protocol, and ReplyTooLarge.
        """
        reply: Reply = await self.next_event()
        self.broken = self.broken or (isinstance(reply, ErrorReply) and reply.fatal)
        return reply

    def refused(self, error: OperationFailed, code: FailureCode) -> OperationFailed:
        return ReplyTooLarge(error.failure) if code is FailureCode.LIMIT_EXCEEDED else error

    async def call(self, command: Command, seconds: float) -> Reply:
        """Send a command and receive its reply within `seconds`; error replies are raised.

        Raises OperationFailed: UNAVAILABLE or UPSTREAM_TIMEOUT if its outcome is unknown. Cancelling it breaks the
        connection.
        """
        async with self.within(seconds, "reply"):
            await self.send([command])
            reply = await self.reply()
        if isinstance(reply, ErrorReply):
            raise failed(self.upstream, reply)
        return reply


S3PPool = CodecPool[S3PConnection]
"""Connections to one server."""
