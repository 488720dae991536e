"""Connections to clients, beneath every front that does not speak HTTP: a socket and a codec, with bounded waits.

- `FrontLink`: requests are answered one after the other, by the task that takes them. It watches for the client's
  disconnection while a request waits.
- `DuplexLink`: the server may send at any time. One task takes requests; any task sends, which never blocks, and waits
  for room before it makes more. A front gives a task to each subscription, in the nursery of the connection. Credit in
  messages, such as those that a client has not acknowledged, is a `trio.Semaphore` of the subscription.

Both charge what they hold to the client's quota, end a connection that is silent, sends or receives too slowly, and end
when the gateway drains. Faults that are configured for messages are injected as they send.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

import trio

from penstock.model.failures import Failure, FailureCode, RemoteProtocolError
from penstock.model.limits import KIB, MIB
from penstock.net.cutting import cut_off
from penstock.net.draining import Draining
from penstock.net.limits.limiter import Crowded
from penstock.net.limits.work import Work
from penstock.net.transport import FrontTransport, SlowSender, TooSlow
from penstock.routing.faults.messages import ON_WHOLE_MESSAGES, MessageFaults, due_message, send_faulty
from penstock.wire.codec import PAUSED, UNFINISHED, Pull
from penstock.wire.http import Buffer

__all__ = ["DuplexLink", "FrontCodec", "FrontLink"]

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
T = TypeVar("T")

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
SEND_AT_ONCE: Final = 256 * KIB
"""Bytes that a client must receive within the send timeout: a slow line is not mistaken for a dead one."""
LISTEN_UP_TO: Final = 256 * KIB
"""Bytes that a client may send behind a waiting request before the front stops watching for its disconnection."""
LISTEN_TURNS: Final = 64
"""Turns of a long request after which the front listens even if no other client is served, and need not wait."""
LISTEN_SECONDS: Final = 0.001
HALF_CLOSE_SECONDS: Final = 1.0
"""Seconds for which work on a long request goes on after its client has finished sending."""
LINGER_SECONDS: Final = 1.0
"""Seconds for which a connection is still read after ending it: closing it with input unread would reset it, and could
destroy the last answer on its way (S3P fact sheet 3, item 12)."""
UNSENT: Final = 1 * MIB
"""Unsent bytes above which senders of a `DuplexLink` wait in `room`."""
TURN_SECONDS: Final = 0.0005
"""Seconds for which a `DuplexLink` gives buffered requests before other connections have their turn."""


class RequestCodec(Protocol[M_co]):
    """The server side of a codec, as far as it takes requests. See `penstock.wire.codec.Codec`."""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the client; b"" means that it has finished sending."""

    def next_event(self) -> M_co | Pull:
        """Return the next request, NEED_DATA, or PAUSED at the end. Raises RemoteProtocolError."""

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered as whole requests."""


class FrontCodec(RequestCodec[M_co], Protocol[M_co]):
    """A codec that tells the client why its requests are no longer read."""

    def refuse(self, message: str) -> RemoteProtocolError:
        """Stop reading because the client exceeds a limit; return the error that `next_event` raises from now on."""


class FrontLink(Generic[M]):
    """One client's connection, used by one task.

    `gathers`: bytes of answers that may be buffered while more requests are at hand. See `FrontTransport` for the
    time-outs, in seconds.
    """

    __slots__ = ("_draining", "_ends_at", "_gathers", "_incoming", "_transport", "quota", "work")

    def __init__(
        self,
        stream: trio.abc.Stream,
        codec: FrontCodec[M],
        draining: Draining,
        *,
        send_timeout: float,
        idle_timeout: float,
        gathers: int = 0,
    ) -> None:
        self._transport = FrontTransport(
            stream,
            READ_SIZE,
            send_timeout,
            least=SEND_AT_ONCE,
            idle=idle_timeout,
            draining=draining,
            finishes=True,
        )
        self._draining = draining
        self._incoming = codec
        self._gathers = gathers
        self._ends_at = math.inf
        self.quota = self._transport.quota
        self.work = Work(self.quota, self._pause)
        """The work on the request in progress."""

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def next_message(self) -> M | None:
        """Return the next request, or None at the end. Sends all answers first if it must wait.

        The end: the client has finished, was silent for too long, was told of an unrecoverable error, or the gateway
        drains. Raises RemoteProtocolError.
        """
        self.work.begin()
        while True:
            event = self._incoming.next_event()
            if not isinstance(event, Pull):
                self._transport.message_taken = True
                return event
            if event is UNFINISHED:
                if self.work.is_due:
                    await self.work.rest()
                continue
            if not self.is_busy():  # else the task that sends an answer flushes it
                await self.flush()
            if event is PAUSED or not await self._fill():
                return None
            self.work.begin()

    def is_busy(self) -> bool:
        """Return whether other tasks carry out requests of the client, so that its silence does not end the connection,
        and send their answers."""
        return False

    async def _fill(self) -> bool:
        """Receive data for the codec. Returns False if the client was silent for too long, or the gateway drains.

        Raises RemoteProtocolError for a client that sends too slowly, or if there is no room for it.
        """
        held = self._incoming.buffered
        if not held and self._draining.begun:
            return False
        try:
            busy = self.is_busy()  # also if it no longer is when the time is over: the time of silence begins again
            received = await self._transport.read_into(self._incoming.receive, held, lambda: busy)
            return received is not None or (busy and not self._draining.begun)
        except Crowded as error:
            raise self._incoming.refuse(str(error)) from None
        except SlowSender:
            limits = self.quota.limits
            pace = f"{limits.receive_grace_seconds:g} s, or {limits.min_receive_rate} bytes/s"
            raise self._incoming.refuse(f"a request must arrive within {pace}") from None

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def put(self, pieces: Iterable[Buffer]) -> None:
        """Send an answer, with the faults that are due for it. It may be buffered until `flush`."""
        if (faults := due_message()) is not None:
            await self.flush()
            await send_faulty(faults, b"".join(pieces), self._send, trio.lowlevel.checkpoint)
            return
        self._transport.put(pieces)
        if self._transport.pending >= self._gathers:
            await self.flush()

    async def flush(self) -> None:
        """Send the buffered answers.

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
        """Close the connection in such a way that all answers arrive."""
        await self.flush()
        if not self._transport.finished and self._transport.half_closes:
            await self._transport.linger(LINGER_SECONDS)
        await self._transport.close()

    async def cut(self) -> None:
        """Close the connection at once, and release the memory that is charged to its quota."""
        del self.work  # which refers to the link
        await self._transport.cut()

    # ---- waiting -----------------------------------------------------------------------------------------------------

    async def while_connected(self, wait: Callable[[], Awaitable[T]], seconds: float) -> T | None:
        """Return `await wait()`; None after `seconds`, or once the client has gone or the gateway drains.

        Data that the client sends meanwhile is kept: a waiting request holds back those behind it.
        """
        await self.flush()
        if self._draining.begun:
            return None
        results: list[T] = []
        failed: list[Exception] = []
        with self._draining.interrupts(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                try:
                    results.append(await wait())
                except Exception as error:
                    failed.append(error)
                nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return results[0] if results else None

    async def _watch(self, waiting: trio.CancelScope) -> None:
        """Cancel the wait once the client finishes. A client that only finished sending still gets its answer."""
        try:
            await self._listen()
        except trio.BrokenResourceError:
            self._transport.finished = True
        if self._transport.finished:
            waiting.cancel()

    async def _listen(self) -> None:
        """Take what the client sends, until it has finished or `LISTEN_UP_TO` is reached. Raises
        trio.BrokenResourceError."""
        while not self._transport.finished and self._incoming.buffered < LISTEN_UP_TO:
            if pause := self.quota.received(await self._transport.take(self._incoming.receive)):
                await trio.sleep(pause)

    async def _pause(self, seconds: float) -> None:
        """Wait in the work on a long request, and listen meanwhile.

        Raises trio.BrokenResourceError if the client has gone: at once after a reset, else `HALF_CLOSE_SECONDS` after
        the end of what it sends, since it may still want the answer.
        """
        if not self.work.turns % LISTEN_TURNS:
            seconds = max(seconds, LISTEN_SECONDS)
        if not seconds:
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(seconds):
            await self._listen()
            if self._transport.finished:
                self._ends_at = min(self._ends_at, trio.current_time() + HALF_CLOSE_SECONDS)
            await trio.sleep_forever()
        if trio.current_time() > self._ends_at:
            raise trio.BrokenResourceError("the client has gone")


class DuplexLink(Generic[M]):
    """One client's connection, on which any task may `send`, while one task takes requests. See `FrontTransport` for
    the time-outs, in seconds."""

    __slots__ = (
        "_cut",
        "_draining",
        "_expects_heartbeats",
        "_incoming",
        "_sent_at",
        "_transport",
        "_turn_ends",
        "quota",
    )

    def __init__(
        self,
        stream: trio.abc.Stream,
        codec: RequestCodec[M],
        draining: Draining,
        *,
        send_timeout: float,
        idle_timeout: float,
    ) -> None:
        self._transport = FrontTransport(stream, READ_SIZE, send_timeout, idle=idle_timeout, draining=draining)
        self._draining = draining
        self._incoming = codec
        self._turn_ends = 0.0
        self._sent_at = trio.current_time()
        self._expects_heartbeats = False  # silence ends the connection, also while it is busy
        self._cut = False  # by an injected fault: nothing more is sent
        self.quota = self._transport.quota

    def begin(self, nursery: trio.Nursery) -> None:
        """Let `send` leave messages that cannot be sent at once to a task in `nursery`, which raises TooSlow for a
        client that receives nothing for too long."""
        self._transport.begin(nursery)

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def next_message(self, busy: Callable[[], bool] = lambda: False) -> M | None:
        """Return the next request; None at the end.

        The end: the client has finished, `end` was called, the gateway drains, or the client sent nothing for too long
        while it was not `busy`, with nothing in progress for it. Raises RemoteProtocolError, and
        trio.BrokenResourceError if the connection is lost.
        """
        if perf_counter() > self._turn_ends:
            await trio.lowlevel.checkpoint()
            self._turn_ends = perf_counter() + TURN_SECONDS
        while not (self._transport.stopped or self._draining.begun):
            event = self._incoming.next_event()
            if event is PAUSED:
                break
            if not isinstance(event, Pull):
                self._transport.message_taken = True
                return event
            if not await self._listen(busy) and (self._expects_heartbeats or not busy()):
                break
        return None

    async def _listen(self, busy: Callable[[], bool]) -> bool:
        """Receive data for the codec. Returns False if nothing came in time, or the wait was interrupted.

        Raises RemoteProtocolError for a client that sends too slowly, or if there is no room for it.
        """
        buffered = self._incoming.buffered
        try:
            size = await self._transport.read_into(self._incoming.receive, buffered, busy)
        except Crowded as error:
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, str(error))) from None
        except SlowSender:
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, "a message arrives too slowly")) from None
        if size is not None:
            self._transport.hold(buffered + size)
        return size is not None

    def expect_within(self, seconds: float) -> None:
        """End the connection if the client sends nothing for so long, from the next wait on: it has agreed to
        heartbeats."""
        self._transport.idle = seconds
        self._expects_heartbeats = True

    def end(self) -> None:
        """Take no more requests."""
        self._transport.stop()

    @property
    def has_ended(self) -> bool:
        """True once no more requests are taken: the client has finished, `end` was called, or the gateway drains."""
        return self._transport.stopped or self._transport.finished or self._draining.begun

    # ---- messages to the client --------------------------------------------------------------------------------------

    def send(self, *messages: Iterable[Buffer]) -> None:
        """Send messages, as far as that is possible without waiting; a task sends the rest. Raises
        trio.BrokenResourceError."""
        for pieces in messages:
            if (faults := due_message(ON_WHOLE_MESSAGES)) is not None:
                self._put_faulty(faults, b"".join(pieces))
            elif not self._cut:
                self._transport.put(pieces)
        self._sent_at = trio.current_time()
        self._transport.flush()

    def _put_faulty(self, faults: MessageFaults, message: bytes) -> None:
        """Drop a message, or send its beginning and cut the connection, after which nothing more is sent."""
        if self._cut:
            return
        cut_after = faults.cut_in(len(message))
        if cut_after is not None:
            self._cut = True
            self._transport.put([message[:cut_after]])
            self._transport.write_now()
            cut_off()
        elif not faults.dropped:
            self._transport.put([message])

    async def beat(self, seconds: float, heartbeat: Sequence[Buffer]) -> None:
        """Send a heartbeat whenever nothing was sent for so long, until cancelled."""
        while True:
            await trio.sleep_until(self._sent_at + seconds)
            if trio.current_time() >= self._sent_at + seconds:
                self.send(heartbeat)

    async def room(self) -> None:
        """Wait while more than `UNSENT` bytes are unsent."""
        await self._transport.room(UNSENT)

    async def flush(self) -> None:
        """Wait until all messages are written."""
        await self._transport.room()

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def close(self, linger: float = LINGER_SECONDS) -> None:
        """Close the connection in such a way that all messages arrive, reading it for up to `linger` seconds."""
        if not self._transport.finished:
            await self._transport.linger(linger)
        await self._transport.close()

    async def cut(self) -> None:
        """Close the connection at once, and release memory: tasks leave reference cycles behind, which only a full
        garbage collection frees."""
        del self._incoming
        await self._transport.cut()
