"""Connection to a Kafka client: a socket and a codec, with requests, responses and bounded waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from penstock.net.draining import Draining
from penstock.net.limits.limiter import Crowded
from penstock.net.transport import FrontTransport, SlowSender, TooSlow
from penstock.protocols.kafka.front.settings import KafkaSettings
from penstock.routing.faults.messages import due_message, send_faulty
from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.kafka import KafkaMessage, KafkaRequest, KafkaResponse, KafkaServer
from penstock_codecs.limits import KIB, MIB

__all__ = ["KafkaLink"]

T = TypeVar("T")

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
SEND_AT_ONCE: Final = 256 * KIB
"""Bytes that a client must receive within the send timeout: a slow line is not mistaken for a dead one."""
LISTEN_UP_TO: Final = 256 * KIB
"""Bytes that a client may send behind a waiting request before the front stops watching for its disconnection."""
LINGER_SECONDS: Final = 1.0
"""Seconds for which a connection is still read after ending it, so that the last response arrives."""


class KafkaLink:
    """One client's connection, used by one task."""

    def __init__(self, stream: trio.abc.Stream, settings: KafkaSettings, draining: Draining) -> None:
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
        self._codec = KafkaServer(max_frame=settings.max_request_bytes)
        self.quota = self._transport.quota

    async def next_request(self) -> KafkaRequest | None:
        """Return the next request, or None at the end: the client has finished, was silent for too long, or the gateway
        drains. Sends all responses first if it must wait. Raises RemoteProtocolError."""
        while True:
            event = self._codec.next_event()
            if not isinstance(event, Pull):
                self._transport.message_taken = True
                return event
            await self.flush()
            if event is PAUSED or not await self._fill():
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
                f"requests must arrive within {limits.receive_grace_seconds:g} s, or {limits.min_receive_rate} bytes/s"
            )
            raise self._codec.refuse(why) from None

    async def send(self, request: KafkaRequest, message: KafkaMessage | None) -> None:
        """Respond to the oldest unanswered request; None: it wants no response."""
        pieces = self._codec.send(KafkaResponse(request, message))
        if (said := due_message()) is not None:
            await self.flush()
            await send_faulty(said, pieces, self._send, trio.lowlevel.checkpoint)
            return
        self._transport.put(pieces)
        await self.flush()

    async def flush(self) -> None:
        """Send the buffered responses.

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
        """Close the connection in such a way that all responses arrive."""
        await self.flush()
        if not self._transport.finished and self._transport.half_closes:
            await self._transport.linger(LINGER_SECONDS)
        await self._transport.close()

    async def cut(self) -> None:
        """Close the connection at once, and release the memory that is charged to its quota."""
        await self._transport.cut()

    async def while_connected(self, wait: Callable[[], Awaitable[T]], seconds: float) -> T | None:
        """Return `await wait()`; None after `seconds`, or once the client has gone or the gateway drains.

        Data that the client sends meanwhile is kept: a waiting request holds back those behind it.
        """
        await self.flush()
        if self._draining.begun:
            return None
        found: list[T] = []
        failed: list[Exception] = []
        with self._draining.interrupts(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, nursery.cancel_scope)
                try:
                    found.append(await wait())
                except Exception as error:
                    failed.append(error)
                nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return found[0] if found else None

    async def _listen(self, waiting: trio.CancelScope) -> None:
        """Cancel the wait once the client finishes. A client that only finished sending still gets its response."""
        transport = self._transport
        try:
            while not transport.finished and self._codec.buffered < LISTEN_UP_TO:
                if pause := self.quota.received(await transport.take(self._codec.receive)):
                    await trio.sleep(pause)
        except trio.BrokenResourceError:
            transport.finished = True
        if transport.finished:
            waiting.cancel()
