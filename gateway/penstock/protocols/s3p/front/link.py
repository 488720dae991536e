"""Connection to an S3P client: a socket and a codec, with commands, replies and bounded waits."""

from __future__ import annotations

from typing import Final

import trio

from penstock.core.back import Following, ReadSession
from penstock.net.draining import Draining
from penstock.net.limits.limiter import Crowded
from penstock.net.transport import FrontTransport, SlowSender, TooSlow
from penstock.protocols.s3p.front.settings import S3PSettings
from penstock.routing.faults.messages import due_message, send_faulty
from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import OperationFailed, RemoteProtocolError
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.model import RecordBatch
from penstock_codecs.s3p import AppendRecords, Command, Reply, S3PServer

__all__ = ["S3PLink"]

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
FLUSH_FROM: Final = 16 * KIB
"""Bytes up to which replies are gathered while more commands are at hand."""
SEND_AT_ONCE: Final = 256 * KIB
"""Bytes that a client must receive within the send timeout: a slow line is not mistaken for a dead one."""
LISTEN_UP_TO: Final = 256 * KIB
"""Bytes that a client may send behind a waiting READ before the front stops watching for its disconnection."""
LINGER_SECONDS: Final = 1.0
"""Seconds for which a connection is still read after ending it: closing it with input unread would reset it, and could
destroy the last reply on its way (S3P fact sheet 3, item 12)."""


class S3PLink:
    """One client's connection, used by one task."""

    def __init__(self, stream: trio.abc.Stream, settings: S3PSettings, draining: Draining) -> None:
        self._transport = FrontTransport(
            stream,
            READ_SIZE,
            settings.send_timeout_seconds,
            least=SEND_AT_ONCE,
            idle=settings.idle_timeout_seconds,
            draining=draining,
            finishes=True,
        )
        self._draining = draining
        self._codec = S3PServer(settings.limits)
        self._ahead: Command | None = None
        self.quota = self._transport.quota

    # ---- commands ------------------------------------------------------------------------------------------------

    async def next_command(self) -> Command | None:
        """Return the next command, or None at the end. Sends all replies first if it must wait.

        The end: the client has finished, was silent for too long, was told of an unrecoverable error, or the gateway
        drains. Raises RemoteProtocolError.
        """
        while self._ahead is None:
            event = self._codec.next_event()
            if not isinstance(event, Pull):
                self._transport.message_taken = True
                return event
            await self.flush()
            if event is PAUSED or not await self._fill():
                return None
        ahead, self._ahead = self._ahead, None
        return ahead

    def append_at_hand(self, name: bytes) -> AppendRecords | None:
        """Return the next command if it was received already and is an APPEND to this stream; else None."""
        if self._ahead is None:
            try:
                event = self._codec.next_event()
            except RemoteProtocolError:
                return None  # raised again by `next_command`
            if not isinstance(event, Pull):
                self._ahead = event
        if isinstance(self._ahead, AppendRecords) and self._ahead.name == name:
            ahead, self._ahead = self._ahead, None
            return ahead
        return None

    async def _fill(self) -> bool:
        """Receive data for the codec. Returns False if the client was silent for too long, or the gateway drains.

        Raises RemoteProtocolError for a client that sends too slowly, or if there is no room for it.
        """
        held = self._codec.buffered
        if not held and self._draining.begun:
            return False
        try:
            return await self._transport.read_into(self._codec.receive, held) is not None
        except Crowded as error:
            raise self._codec.refuse(str(error)) from None
        except SlowSender:
            limits = self.quota.limits
            why = (
                f"commands must arrive within {limits.receive_grace_seconds:g} s, or {limits.min_receive_rate} bytes/s"
            )
            raise self._codec.refuse(why) from None

    # ---- replies -------------------------------------------------------------------------------------------------

    async def send(self, reply: Reply) -> None:
        """Reply to the oldest unanswered command. The reply may be buffered until `flush`."""
        pieces = self._codec.send(reply)
        if (said := due_message()) is not None:
            await self.flush()
            await send_faulty(said, pieces, self._send, trio.lowlevel.checkpoint)
            return
        self._transport.put(pieces)
        if self._transport.pending >= FLUSH_FROM:
            await self.flush()

    async def flush(self) -> None:
        """Send the buffered replies.

        Raises TooSlowError if a client receives less than `SEND_AT_ONCE` within the send timeout.
        """
        if self._transport.pending:
            try:
                if not self._transport.write_now():
                    await self._transport.drain()
            except TooSlow:
                raise trio.TooSlowError from None
            await trio.lowlevel.checkpoint()

    async def _send(self, data: bytes) -> None:
        self._transport.put((data,))
        await self.flush()

    async def close(self) -> None:
        """Close the connection in such a way that all replies arrive."""
        await self.flush()
        if not self._transport.finished and self._transport.half_closes:
            await self._transport.linger(LINGER_SECONDS)
        await self._transport.close()

    async def cut(self) -> None:
        """Close the connection at once, and release the memory that is charged to its quota."""
        await self._transport.cut()

    # ---- waiting for records ---------------------------------------------------------------------------------------

    async def wait_for_next(self, session: ReadSession, deadline: float) -> RecordBatch | Following | None:
        """Return `session.next()`; None after `deadline`, or once the client has gone or the gateway drains.

        Data that the client sends meanwhile is kept, so a waiting READ holds back the commands behind it.
        """
        await self.flush()
        if self._draining.begun:
            return None
        found: RecordBatch | Following | None = None
        failed: OperationFailed | None = None
        with self._draining.interrupts(deadline - trio.current_time()):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, nursery.cancel_scope)
                try:
                    found = await session.next()
                except OperationFailed as error:
                    failed = error
                nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return found

    async def _listen(self, waiting: trio.CancelScope) -> None:
        """Cancel the wait once the client finishes. A client that only finished sending still gets its reply."""
        transport = self._transport
        try:
            while not transport.finished and self._codec.buffered < LISTEN_UP_TO:
                if pause := self.quota.received(await transport.take(self._codec.receive)):
                    await trio.sleep(pause)
        except trio.BrokenResourceError:
            transport.finished = True
        if transport.finished:
            waiting.cancel()
