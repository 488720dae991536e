"""The client's end of a segment front: a socket and a codec. Requests come out, replies go in, waits are bounded."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import structlog
import trio

from penstock.faults.cutting import cut_off
from penstock.faults.messages import ON_SEGMENT_MESSAGES, Said, due_message
from penstock.fronts.draining import Draining
from penstock.fronts.segment.replies import REPLIES, Asked, Replies
from penstock.fronts.segment.settings import SegmentSettings
from penstock.limits import Crowded, Holding, Pace, current_seat
from penstock.metrics.clients import Pauses, count_told
from penstock.wire import TooSlow, Wire
from penstock_codecs.codec import NEED_DATA, PAUSED
from penstock_codecs.failures import Failure, FailureCode, RemoteProtocolError
from penstock_codecs.limits import MIB
from penstock_codecs.segment import BlockAppended, BlockData, Dialect, Message, SegmentServer

__all__ = ["Link", "Request"]

log = structlog.get_logger()

READ_SIZE: Final = 1 * MIB
"""Most that is read at a time; the buffer is shared by all connections."""
UNSENT: Final = 1 * MIB
"""While more than this waits for the client, whoever has something for it waits too, and no request is taken."""
TURN_SECONDS: Final = 0.0005
"""How long requests that are at hand are taken before other connections have their turn."""
LINGER_SECONDS: Final = 0.3
"""How long a connection that we end is still read: closing it with input unread would reset it, and could destroy the
last reply on its way. No longer, since the idle connections of Pravega's Python client never end by themselves, and a
gateway that is away for more than about a second is tried again only after ten."""

Request = Message | BlockAppended | BlockData


class Link:
    """One connection. One task takes requests; any may `say` replies, which never waits, and then wait for `room`."""

    def __init__(self, stream: trio.abc.Stream, settings: SegmentSettings, draining: Draining) -> None:
        self._wire = Wire(stream, READ_SIZE)
        self._codec = SegmentServer(settings.limits)
        self._settings = settings
        self._draining = draining
        self._listening: trio.CancelScope | None = None
        self._unsent = trio.lowlevel.ParkingLot()  # the writer waits here for something to write,
        self._sent = trio.lowlevel.ParkingLot()  # and others here until it has written some
        self._writing = False
        self._turn_ends = 0.0
        self._pauses = Pauses()
        self.seat = current_seat()
        self._held = Holding(self.seat)
        self._unsent_held = Holding(self.seat)
        self._pace = Pace()
        self._cut = False  # by a fault: nothing more is said
        self.finished = False
        """The client will send nothing more."""
        self.ended = False
        """No more requests are taken."""

    # ---- requests ------------------------------------------------------------------------------------------------

    async def next_request(self, busy: Callable[[], bool]) -> Request | None:
        """The next request; None at the end.

        The end: the client has finished, `end` was called, the gateway drains, or the client sent nothing for too long
        while it was not `busy`: nothing was under way for it. Raises RemoteProtocolError, and trio.BrokenResourceError
        where the connection is lost.
        """
        if perf_counter() > self._turn_ends:
            await trio.lowlevel.checkpoint()
            self._turn_ends = perf_counter() + TURN_SECONDS
        while not (self.ended or self._draining.begun):
            event = self._codec.next_event()
            if event is PAUSED:
                break
            if event is not NEED_DATA:
                self._pace.next()
                return event
            if not (await self._listen(busy) or busy()):
                if not (self.ended or self._draining.begun):
                    self.seat.limited("idle_timeout_seconds" if self.seat.known else "first_byte_seconds")
                break
        return None

    async def _listen(self, busy: Callable[[], bool]) -> bool:
        """Give the codec what the client sends; False where it sent nothing in time, or nobody wants to know.

        Raises RemoteProtocolError for a client that sends too slowly, or for which there is no room.
        """
        heard = False
        held = self._codec.buffered
        self._held.set(held)
        limits, now = self.seat.limits, trio.current_time()
        deadline = self._pace.deadline(held, limits, now)
        seconds = min(self._idle_seconds(), deadline - now)
        if not (held or busy()):
            self.seat.rest()
        try:
            with self._draining.interrupts(seconds) as self._listening:
                await self.seat.room()
                data = await self._wire.receive()
                self._codec.receive(data)
                self.finished = not data
                heard = True
        except Crowded as error:
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, str(error))) from None
        self._listening = None
        if heard:
            await self._heard(held)
        elif trio.current_time() >= deadline:
            self.seat.limited("min_receive_rate")
            raise RemoteProtocolError(Failure(FailureCode.LIMIT_EXCEEDED, "a message comes too slowly"))
        return heard

    async def _heard(self, before: int) -> None:
        self.seat.busy = True
        now_held = self._codec.buffered
        self._held.set(now_held)
        if pause := self.seat.received(now_held - before):
            await trio.sleep(pause)

    def _idle_seconds(self) -> float:
        if self.seat.known:
            return self._settings.idle_timeout_seconds
        return min(self._settings.idle_timeout_seconds, self.seat.limits.first_byte_seconds)

    def end(self) -> None:
        """Take no more requests."""
        self.ended = True
        if self._listening is not None:
            self._listening.cancel()

    # ---- replies -------------------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect | None:
        """Which dialect the client speaks; None until it has said something."""
        return self._codec.dialect

    @property
    def replies(self) -> Replies:
        """How replies are spelled in the client's dialect; to be asked for once it has said something."""
        assert self._codec.dialect is not None, "the client has not said anything yet"
        return REPLIES[self._codec.dialect]

    def say(self, *messages: Message) -> None:
        """Send replies, as far as that goes without waiting; the writer does the rest.

        Raises LocalProtocolError for what cannot be said, and trio.BrokenResourceError.
        """
        for message in messages:
            pieces = self._codec.send(message)
            if (said := due_message(ON_SEGMENT_MESSAGES)) is not None:
                self._put_faulty(said, pieces)
            elif not self._cut:
                self._wire.put(pieces)
        if self._writing:
            self._unsent_held.set(self._wire.pending)
            return
        if not self._wire.write_now():
            self._unsent_held.set(self._wire.pending)
            self._unsent.unpark()
        elif self._sent:  # what others wait for was written here, not by the writer
            self._sent.unpark_all()

    def _put_faulty(self, said: Said, pieces: list[bytes]) -> None:
        """A message with a fault: not, twice, or by halves, and then nothing any more."""
        if self._cut:
            return
        for _ in range(said.copies if said.cut_after is None else 0):
            self._wire.put(pieces)
        if said.cut_after is not None:
            self._cut = True
            self._wire.put([b"".join(pieces)[: said.cut_after]])
            self._wire.write_now()
            cut_off()

    def refuse(self, failure: Failure, asked: Asked) -> None:
        """Say that a request failed; where the dialect has no word for it, take no more requests."""
        count_told(failure.code)
        if failure.code is FailureCode.PERMISSION_DENIED:
            log.info("request_denied", segment=asked.segment, reason=failure.message)
        reply = self.replies.refused(failure, asked)
        if reply is not None:
            self.say(reply)
            return
        log.info("request_refused", segment=asked.segment, code=failure.code.value, reason=failure.message)
        self.end()

    async def room(self) -> None:
        """Wait while too much waits for the client."""
        while self._wire.pending > UNSENT:
            with self._pauses.writing():
                await self._sent.park()

    async def flush(self) -> None:
        """Wait until all that was said is written."""
        while self._wire.pending:
            await self._sent.park()

    async def run_writer(self) -> None:
        """Write what `say` could not, until cancelled. Raises TooSlow for a client that takes nothing for too long."""
        while True:
            while self._wire.pending:
                self._writing = True
                try:
                    await self._wire.write(self._settings.send_timeout_seconds)
                except TooSlow:
                    self.seat.limited("send_timeout_seconds")
                    raise
                self._unsent_held.set(self._wire.pending)
                self._sent.unpark_all()
            self._writing = False
            await self._unsent.park()

    async def close(self) -> None:
        """End the connection so that all that was written arrives."""
        if not self.finished:
            await self._wire.linger(LINGER_SECONDS)
        await self._wire.close()

    def forget(self) -> None:
        """Drop what is held: tasks leave cycles behind, which wait for a full garbage collection."""
        self._wire.forget()
        self._held.set(0)
        self._unsent_held.set(0)
        del self._codec
