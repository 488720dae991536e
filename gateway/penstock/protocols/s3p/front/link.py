"""Connection to an S3P client: a socket and a codec, with commands, replies and bounded waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from penstock.core.back import Following, ReadSession
from penstock.net.draining import Draining
from penstock.net.limits import Pace, current_quota
from penstock.net.limits.limiter import Crowded, Holding
from penstock.observe.metrics.clients import Pauses
from penstock.observe.taps.tapped import TappedStream
from penstock.protocols.s3p.front.settings import S3PSettings
from penstock.routing.faults.messages import due_message, send_faulty
from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import OperationFailed, RemoteProtocolError
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.model import RecordBatch
from penstock_codecs.s3p import AppendRecords, Command, Reply, S3PServer

__all__ = ["Link"]

LEAST_READ: Final = 64 * KIB
MOST_READ: Final = 1 * MIB
"""Bytes up to which reads grow while they come back full: an awaited read costs about 7 us whatever its size."""
FLUSH_FROM: Final = 16 * KIB
"""Bytes up to which replies are gathered while more commands are at hand."""
SEND_AT_ONCE: Final = 256 * KIB
"""Bytes that a client must receive within the send timeout. Larger replies are sent in pieces, about 10 us each, so
that a slow line is not mistaken for a dead one."""
LISTEN_UP_TO: Final = 256 * KIB
"""Bytes that a client may send behind a waiting READ before the front stops watching for its disconnection."""
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 1 * MIB
"""Bounds on reading a connection after ending it: closing it with input unread would reset it, and could destroy the
last reply on its way (S3P fact sheet 3, item 12)."""


class Link:
    """One client's connection, used by one task."""

    def __init__(self, stream: trio.abc.Stream, settings: S3PSettings, draining: Draining) -> None:
        self._stream = stream
        self._tapped = stream if isinstance(stream, TappedStream) else None
        self._settings = settings
        self._draining = draining
        self._codec = S3PServer(settings.limits)
        self._ahead: Command | None = None
        self._read_size = LEAST_READ
        self._finished = False  # the client has finished sending
        self._out: list[bytes] = []
        self._out_size = 0
        self._pauses = Pauses()
        self._seat = current_quota()
        self._held = Holding(self._seat)
        self._pace = Pace()

    # ---- commands ------------------------------------------------------------------------------------------------

    async def next_command(self) -> Command | None:
        """Return the next command, or None at the end. Sends all replies first if it must wait.

        The end: the client has finished, was silent for too long, was told of an unrecoverable error, or the gateway
        drains. Raises RemoteProtocolError.
        """
        while self._ahead is None:
            event = self._codec.next_event()
            if not isinstance(event, Pull):
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
        self._held.set(held)
        if held:
            return await self._fill_up(held)
        self._pace.next()
        self._seat.rest()
        if not self._draining.begun:
            seconds = self._settings.idle_timeout_seconds if self._seat.known else self._first_seconds()
            with self._draining.interrupts(seconds):
                await self._receive()
                self._seat.busy = True
        if not (self._seat.busy or self._draining.begun):
            self._seat.limited("idle_timeout_seconds" if self._seat.known else "first_byte_seconds")
        return self._seat.busy

    def _first_seconds(self) -> float:
        return min(self._settings.idle_timeout_seconds, self._seat.limits.first_byte_seconds)

    async def _fill_up(self, held: int) -> bool:
        """Receive more of an incomplete command. Returns False if the client is silent for too long."""
        limits = self._seat.limits
        now = trio.current_time()
        deadline = self._pace.deadline(held, limits, now)
        try:
            with trio.move_on_at(min(deadline, now + self._settings.idle_timeout_seconds)):
                await self._seat.room()
                await self._receive()
                return True
        except Crowded as error:
            raise self._codec.refuse(str(error)) from None
        if trio.current_time() < deadline:
            self._seat.limited("idle_timeout_seconds")
            return False
        self._seat.limited("min_receive_rate")
        why = f"a command must come within {limits.receive_grace_seconds:g} s, or {limits.min_receive_rate} bytes/s"
        raise self._codec.refuse(why)

    async def _receive(self) -> None:
        data = await self._stream.receive_some(self._read_size)
        if len(data) == self._read_size:
            self._read_size = min(2 * self._read_size, MOST_READ)
        elif len(data) < self._read_size // 4:
            self._read_size = max(self._read_size // 2, LEAST_READ)
        self._codec.receive(data)
        self._finished = not data
        if pause := self._seat.received(len(data)):
            await trio.sleep(pause)

    # ---- replies -------------------------------------------------------------------------------------------------

    async def say(self, reply: Reply) -> None:
        """Reply to the oldest unanswered command. The reply may be buffered until `flush`."""
        pieces = self._codec.send(reply)
        if (said := due_message()) is not None:
            await self.flush()
            await send_faulty(said, pieces, self._send, trio.lowlevel.checkpoint)
            return
        self._out += pieces
        self._out_size += sum(map(len, pieces))
        if self._out_size >= FLUSH_FROM:
            await self.flush()

    async def flush(self) -> None:
        """Send the buffered replies.

        Raises TooSlowError if a client receives less than a piece within the send timeout.
        """
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            await self._send(data)

    async def _send(self, data: bytes) -> None:
        """Send data, without waiting if the kernel takes all of it, as it nearly always does."""
        sent = 0 if self._tapped is None else self._tapped.send_now(data)
        if sent == len(data):
            await trio.lowlevel.checkpoint()
        else:
            await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, data: memoryview) -> None:
        with Holding(self._seat) as unsent:
            unsent.set(len(data))
            for piece in _pieces(data):
                with self._pauses.writing(), trio.move_on_after(self._settings.send_timeout_seconds) as patience:
                    await self._stream.send_all(piece)
                if patience.cancelled_caught:
                    self._seat.limited("send_timeout_seconds")
                    raise trio.TooSlowError

    def forget(self) -> None:
        """Release the memory that is charged to the connection's quota."""
        self._held.set(0)

    async def close(self) -> None:
        """Close the connection in such a way that all replies arrive."""
        await self.flush()
        if not self._finished and isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
            unread = LINGER_BYTES
            with trio.move_on_after(LINGER_SECONDS):
                while unread > 0 and (data := await self._stream.receive_some(LEAST_READ)):
                    unread -= len(data)
        await self._stream.aclose()

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
        try:
            while not self._finished and self._codec.buffered < LISTEN_UP_TO:
                await self._receive()
        except trio.BrokenResourceError:
            self._finished = True
        if self._finished:
            waiting.cancel()


def _pieces(data: memoryview) -> Iterable[memoryview]:
    if len(data) <= SEND_AT_ONCE:
        return (data,)
    return (data[at : at + SEND_AT_ONCE] for at in range(0, len(data), SEND_AT_ONCE))
