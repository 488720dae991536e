"""Connection to a segment client: a socket and a codec, with requests, replies and bounded waits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, TypeVar

import structlog
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.net.cutting import cut_off
from penstock.net.draining import Draining
from penstock.net.limits.limiter import Crowded
from penstock.net.retries import retry_after
from penstock.net.transport import FrontTransport, SlowSender
from penstock.observe.metrics.clients import count_error
from penstock.routing.faults.messages import ON_WHOLE_MESSAGES, MessageFaults, due_message
from penstock.wire.codec import PAUSED, Pull
from penstock_pravega.codec import BlockAppended, BlockData, Dialect, SegmentMessage, SegmentServer
from penstock_pravega.segment.front.replies import LOST, REPLIES, Replies, RequestFields
from penstock_pravega.segment.front.settings import SegmentSettings

__all__ = ["Request", "SegmentLink"]

T = TypeVar("T")

log = structlog.get_logger()

READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
UNSENT: Final = 1 * MIB
"""Unsent bytes above which senders wait in `room` and no request is taken."""
TURN_SECONDS: Final = 0.0005
"""Seconds for which buffered requests are taken before other connections have their turn."""
LINGER_SECONDS: Final = 0.3
"""Seconds for which a connection is still read after ending it: closing it with input unread would reset it, and could
destroy the last reply on its way. Not longer, since idle connections of Pravega's Python client never end by
themselves, and it retries a gateway that is away for more than about a second only after ten."""

LEAST_HOLD: Final = 0.1
MOST_HOLD: Final = 10.0
"""Bounds in seconds on holding a client whose server cannot be reached, before its request is given up and its
connection ended. There is no reply for that, and real clients reconnect at once, as often as they are refused, or after
pauses that grow to 10 s and continue when the server is back."""

Request = SegmentMessage | BlockAppended | BlockData


class SegmentLink:
    """One connection.

    One task takes requests; any task may `send` replies, which never blocks, and then wait for `room`.
    """

    __slots__ = ("_codec", "_cut", "_draining", "_held_until", "_transport", "_turn_ends", "quota")

    def __init__(self, stream: trio.abc.Stream, settings: SegmentSettings, draining: Draining) -> None:
        self._transport = FrontTransport(
            stream,
            READ_SIZE,
            settings.send_timeout_seconds,
            idle=settings.idle_timeout_seconds,
            draining=draining,
        )
        self._codec = SegmentServer(settings.limits)
        self._draining = draining
        self._turn_ends = 0.0
        self._cut = False  # by an injected fault: nothing more is sent
        self._held_until = -math.inf
        self.quota = self._transport.quota

    def begin(self, nursery: trio.Nursery) -> None:
        """Let `send` leave replies that cannot be sent at once to a task in `nursery`, which raises TooSlow for a
        client that receives nothing for too long."""
        self._transport.begin(nursery)

    # ---- requests ------------------------------------------------------------------------------------------------

    async def next_request(self, busy: Callable[[], bool]) -> Request | None:
        """Return the next request; None at the end.

        The end: the client has finished, `end` was called, the gateway drains, or the client sent nothing for too long
        while it was not `busy`, with nothing in progress for it. Raises RemoteProtocolError, and
        trio.BrokenResourceError if the connection is lost.
        """
        if perf_counter() > self._turn_ends:
            await trio.lowlevel.checkpoint()
            self._turn_ends = perf_counter() + TURN_SECONDS
        while not (self._transport.stopped or self._draining.begun):
            event = self._codec.next_event()
            if event is PAUSED:
                break
            if not isinstance(event, Pull):
                self._transport.message_taken = True
                return event
            if not (await self._listen(busy) or busy()):
                break
        return None

    async def _listen(self, busy: Callable[[], bool]) -> bool:
        """Receive data for the codec. Returns False if nothing came in time, or the wait was interrupted.

        Raises RemoteProtocolError for a client that sends too slowly, or if there is no room for it.
        """
        held = self._codec.buffered
        try:
            size = await self._transport.read_into(self._codec.receive, held, busy)
        except Crowded as error:
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, str(error))) from None
        except SlowSender:
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, "a message arrives too slowly")) from None
        if size is not None:
            self._transport.hold(held + size)
        return size is not None

    def end(self, failure: Failure | None = None) -> None:
        """Take no more requests.

        `failure`: the reason, for which there is no reply and the connection ends after a pause.
        """
        if failure is not None:
            hold = min(max(retry_after(failure), LEAST_HOLD), MOST_HOLD)
            self._held_until = max(self._held_until, trio.current_time() + hold)
        self._transport.stop()

    # ---- replies -------------------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect | None:
        """The client's dialect; None until it has sent something."""
        return self._codec.dialect

    @property
    def replies(self) -> Replies:
        """Replies in the client's dialect. The client must have sent something."""
        assert self._codec.dialect is not None, "the client has not sent anything yet"
        return REPLIES[self._codec.dialect]

    def send(self, *messages: SegmentMessage) -> None:
        """Send replies, as far as that is possible without waiting; a task sends the rest.

        Raises LocalProtocolError for what cannot be encoded, and trio.BrokenResourceError.
        """
        for message in messages:
            pieces = self._codec.send(message)
            if (faults := due_message(ON_WHOLE_MESSAGES)) is not None:
                self._put_faulty(faults, pieces)
            elif not self._cut:
                self._transport.put(pieces)
        self._transport.flush()

    def _put_faulty(self, faults: MessageFaults, pieces: list[bytes]) -> None:
        """Drop a message, or send its beginning and cut the connection, after which nothing more is sent."""
        if self._cut:
            return
        message = b"".join(pieces)
        cut_after = faults.cut_in(len(message))
        if cut_after is not None:
            self._cut = True
            self._transport.put([message[:cut_after]])
            self._transport.write_now()
            cut_off()
        elif not faults.dropped:
            self._transport.put([message])

    def refuse(self, failure: Failure, fields: RequestFields) -> None:
        """Reply that a request failed; if the dialect has no such reply, take no more requests."""
        count_error(failure.code)
        if failure.code is FailureCode.PERMISSION_DENIED:
            log.info("request_denied", segment=fields.segment, reason=failure.message)
        reply = self.replies.refused(failure, fields)
        if reply is not None:
            self.send(reply)
            return
        log.info("request_refused", segment=fields.segment, code=failure.code.value, reason=failure.message)
        self.end(failure)

    async def carried_out(self, attempt: Callable[[], Awaitable[T]], *, idempotent: bool = False) -> T:
        """Return the result of `attempt`, retrying for up to `MOST_HOLD` seconds while a server cannot be reached.

        Failures after which it may have been done are retried only if `idempotent`. Raises the last failure.
        """
        until = trio.current_time() + MOST_HOLD
        while True:
            try:
                return await attempt()
            except OperationFailed as error:
                failure = error.failure
                hold = max(retry_after(failure), LEAST_HOLD)
                useful = failure.code in LOST and (idempotent or not failure.side_effect_possible)
                over = self._transport.stopped or self._transport.finished or self._draining.begun
                if not useful or over or trio.current_time() + hold > until:
                    raise
            with self._draining.interrupts():
                await trio.sleep(hold)

    async def room(self) -> None:
        """Wait while more than `UNSENT` bytes are unsent."""
        await self._transport.room(UNSENT)

    async def flush(self) -> None:
        """Wait until all replies are written."""
        await self._transport.room()

    async def close(self) -> None:
        """Close the connection in such a way that all replies arrive; see `MOST_HOLD`."""
        if not self._transport.finished:
            with self._draining.interrupts():
                await trio.sleep_until(self._held_until)
            await self._transport.linger(LINGER_SECONDS)
        await self._transport.close()

    async def cut(self) -> None:
        """Close the connection at once, and release memory: tasks leave reference cycles behind, which only a full
        garbage collection frees."""
        del self._codec
        await self._transport.cut()
