"""One HTTP connection of a server: a reader, a task for each request, and a writer while there is a wait.

All of the codec's calls are synchronous and made from whichever task has something to say; what comes out is written
at once where the kernel takes it, and by the writer task where it does not. A cancelled handler therefore never
leaves half a frame behind.
"""

from __future__ import annotations

import math
from time import perf_counter

import structlog
import trio

from penstock.fronts.exchange import Handler
from penstock.fronts.http.exchange import HttpExchange
from penstock.fronts.http.room import SendRoom
from penstock.fronts.http.settings import TURN_SECONDS, WAKE_SECONDS, Drain, HttpSettings
from penstock.fronts.http.usage import TooNoisy, Usage
from penstock.limits import Crowded
from penstock.metrics.clients import Pauses, count_told
from penstock.outflow import WIRE_ROOM, Outflow
from penstock.wire import TooSlow, Wire
from penstock_codecs.codec import Pull
from penstock_codecs.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock_codecs.http import (
    CANCEL,
    ENHANCE_YOUR_CALM,
    INTERNAL_ERROR,
    REFUSED_STREAM,
    Credit,
    Data,
    End,
    GoAway,
    HttpCodec,
    Outgoing,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
)

__all__ = ["HttpServerConnection"]

_log = structlog.get_logger()


class HttpServerConnection:
    """Serves one connection with `run`; the other methods are for its exchanges, and do not wait."""

    def __init__(self, wire: Wire, codec: HttpCodec, handler: Handler, settings: HttpSettings) -> None:
        self._wire = wire
        self._codec = codec
        self._handler = handler
        self._settings = settings
        self._exchanges: dict[int, HttpExchange] = {}
        self._usage = Usage(wire, codec, settings.streams_before_auth)
        self._seat = self._usage.seat
        self._send_room = SendRoom(
            codec, self._exchanges, settings.max_unsent, settings.slow_reader, self._reset_stream
        )
        self._outflow = Outflow(
            wire,
            codec,
            settings.slow_reader,
            filled=self._send_room.review,
            moved=self._after_writing,
            lost=self._stop_writing,
        )
        # On HTTP/2 the windows bound what is unread.
        self._unread_limit = math.inf if codec.version == "2" else settings.receive_buffer
        self._unread = 0
        self._woken = 0
        self._lost = self._broken = False
        self._peer_ended = False
        self._idle = False
        self._head_begun = False
        self._draining = self._taking_turns = False
        self._reading = trio.CancelScope()
        self._room: trio.Event | None = None
        self._pauses = Pauses()
        self._progress = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery

    async def run(self, start: bytes, drain: Drain) -> None:
        """Serve until the connection ends; `start` was read from it already."""
        try:
            await self._run(start, drain)
        finally:
            # These may hold much, and tasks leave cycles behind, which wait for a full garbage collection.
            del self._codec, self._send_room, self._outflow
            self._wire.forget()
            self._usage.end()

    async def _run(self, start: bytes, drain: Drain) -> None:
        self._task = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            with drain.watched_by(self._drain):
                if start:  # b"" would say that the client has finished; after ALPN nothing has been read yet
                    self._codec.receive(start)
                self._pump()
                await self._read()
        if not (self._lost or self._peer_ended or self._idle):
            await self._wire.linger(self._settings.linger)

    # ---- in ------------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        try:
            with self._reading:
                while not self._peer_ended:
                    await self._wait_for_room()
                    await self._seat.room()
                    data = await self._wire.receive()
                    self._idle = False
                    if data:
                        self._codec.receive(data)
                        self._pump()
                        if pause := self._usage.read(len(data), self._unread):
                            await trio.sleep(pause)
                    else:
                        self._peer_gone()
        except trio.BrokenResourceError:
            self._lose("connection lost")
        except (Crowded, TooNoisy) as error:
            self._calm(str(error))
        if self._head_begun and trio.current_time() >= self._reading.deadline:
            self._seat.limited("head_timeout_seconds")

    def _calm(self, reason: str) -> None:
        """End the connection: its client asks too much."""
        _log.info("connection_refused", reason=reason)
        self._seat.abused()
        self._codec.send(GoAway(ENHANCE_YOUR_CALM))
        self._cancel_all()
        self.flush()

    async def _wait_for_room(self) -> None:
        limit = self._settings.receive_buffer
        while (
            self._taking_turns
            or self._unread >= self._unread_limit
            or self._codec.buffered >= limit + self._settings.read_size
            or self._wire.pending >= self._settings.send_buffer + WIRE_ROOM
        ):
            self._room = trio.Event()
            with self._pauses.reading():
                await self._room.wait()

    def _pump(self, in_turn: bool = False) -> None:
        """Deliver what has come, and write what there is to say; what takes too long goes on in a task."""
        if self._taking_turns or (self._seat.account.turns.locked() and not in_turn):
            self._wait_for_turn()
            self.flush()
            return
        until, self._woken = perf_counter() + TURN_SECONDS, 0
        try:
            while self._unread < self._unread_limit and not (self._broken or self._lost):
                if perf_counter() + self._woken * WAKE_SECONDS > until:
                    self._wait_for_turn()
                    break
                event = self._codec.next_event()
                if isinstance(event, Pull):
                    break
                self._deliver(event)
        except RemoteProtocolError as error:
            self._break_off(error)
        self._set_deadline()
        self.flush()

    def _wait_for_turn(self) -> None:
        if not self._taking_turns:
            self._taking_turns = True
            self._nursery.start_soon(self._take_turn)

    async def _take_turn(self) -> None:
        async with self._seat.account.turns:  # which passes through the scheduler
            self._taking_turns, before = False, self._codec.buffered
            self._pump(in_turn=True)
            await self._seat.rest_after_turn(before, self._codec.buffered)
        self._wake_reader()

    def _deliver(self, event: Received) -> None:
        if isinstance(event, RequestHead):
            if not self._usage.begin(len(self._exchanges)):
                self._codec.send(Reset(event.stream_id, REFUSED_STREAM))
                return
            exchange = self._exchanges[event.stream_id] = HttpExchange(self, event)
            if self._peer_ended:
                self._limit_half_closed(exchange)
            # It was read by whichever task had the time, which may serve a request of somebody else: what that one has
            # noted in its context is none of this one's.
            self._task.context.copy().run(self._nursery.start_soon, self._serve, exchange)
        elif isinstance(event, Data):
            self._deliver_data(event)
        elif isinstance(event, End) and event.stream_id in self._exchanges:
            self._exchanges[event.stream_id].inbox.end()
        elif isinstance(event, Reset) and event.stream_id in self._exchanges:
            self._exchanges[event.stream_id].scope.cancel()

    def _deliver_data(self, event: Data) -> None:
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None:
            self._codec.send(Credit(event.stream_id, event.credit))
        else:
            self._unread += event.credit
            self._woken += exchange.inbox.feed(event.data)

    def consumed(self, stream_id: int, length: int) -> None:
        """A handler has taken `length` bytes of body: more may come."""
        held_back = self._unread >= self._unread_limit
        self._unread -= length
        self._codec.send(Credit(stream_id, length))
        self._wake_reader()
        if held_back:
            self._pump()
        else:
            self.flush()

    def _wake_reader(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def _set_deadline(self) -> None:
        """How long the reader waits: a running exchange may take its time, a head and an idle client may not."""
        if self._exchanges:
            if self._reading.deadline != math.inf:  # setting it costs more than asking
                self._reading.deadline = math.inf
            self._idle = False
            self._head_begun = False
            return
        self._usage.rest()
        if not (self._codec.buffered or self._codec.amid_answered):
            self._reading.deadline = trio.current_time() + self._settings.keep_alive
            self._idle = not self._codec.closed
            self._head_begun = False
        elif not self._head_begun:
            self._reading.deadline = trio.current_time() + self._settings.head_timeout
            self._idle = False
            self._head_begun = True

    # ---- out -----------------------------------------------------------------------------------------------------
    def say(self, *events: Outgoing) -> None:
        """Send events of one exchange, and write them if the kernel takes them. Raises LocalProtocolError."""
        for event in events:
            self._codec.send(event)
        self.flush()

    def flush(self) -> None:
        """Write what there is to write, as far as that goes without waiting; a task of its own does the rest."""
        if not self._lost:
            self._outflow.flush(self._nursery, len(self._exchanges) <= 1)

    def _after_writing(self) -> None:
        self._wake_reader()
        if self._usage.written():
            self._progress.unpark_all()
        if not self._wire.pending and not self._exchanges and self._codec.closed:
            self._reading.cancel()

    def _stop_writing(self, error: Exception) -> None:
        if slow := isinstance(error, TooSlow):
            self._seat.limited("slow_reader_seconds")
        self._lose("client reads too slowly" if slow else "connection lost")

    async def wait_sent(self, stream_id: int, finish: bool = False) -> None:
        """Wait until no more than `send_buffer` bytes of the stream are on their way; with `finish`, all written.

        Where the whole connection holds more than `max_unsent`, until nothing of this stream does.
        """
        await self._wait_sent(stream_id, 0 if finish else self._settings.max_unsent)

    async def wait_written(self, stream_id: int) -> None:
        """Wait until the kernel has all that was sent of the stream, and all that went before it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._codec.unsent(stream_id) or self._wire.pending:
            await self._progress.park()

    async def _wait_sent(self, stream_id: int, most: int) -> None:
        while self._clogged(stream_id, most):
            unsent = self._codec.unsent(stream_id)
            with trio.move_on_after(self._settings.slow_reader) as patience:
                while self._clogged(stream_id, most) and self._codec.unsent(stream_id) == unsent:
                    with self._pauses.writing():
                        await self._progress.park()
            if patience.cancelled_caught and unsent and not self._wire.pending:
                self._reset_stream(stream_id, "client gives no window")
                await trio.lowlevel.checkpoint()

    def _clogged(self, stream_id: int, most: int) -> bool:
        unsent = self._codec.unsent(stream_id)
        if self._usage.clogged(unsent + self._wire.pending, self._settings.send_buffer):
            return True
        return unsent > 0 and self._codec.held > most

    async def wait_for_room(self, stream_id: int, keep: bool) -> None:
        """See `Exchange.room`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if keep:
            await self._seat.answer_room()
            await self._send_room.wait(stream_id)
        else:
            self._send_room.leave(stream_id)
            await self._wait_sent(stream_id, self._settings.max_unsent // 2)

    def leave_room(self, stream_id: int) -> None:
        """What an exchange wanted room for has been said."""
        self._send_room.leave(stream_id)

    def _reset_stream(self, stream_id: int, reason: str) -> None:
        _log.info("stream_reset", reason=reason, stream=stream_id)
        self._seat.limited("slow_reader_seconds")
        self._codec.send(Reset(stream_id, CANCEL))
        self._exchanges[stream_id].scope.cancel()

    # ---- exchanges -----------------------------------------------------------------------------------------------
    async def _serve(self, exchange: HttpExchange) -> None:
        try:
            with exchange.scope:
                if exchange.scope.cancel_called:
                    return  # it was reset as it came: unwinding a handler takes 80 us
                await self._handler(exchange)
                if not exchange.finished:
                    raise RuntimeError("the handler returned without a complete answer")
        except Exception:
            _log.exception("handler_failed", path=exchange.request.path)
            self._answer_failure(exchange)
        finally:
            self._over(exchange)

    def _answer_failure(self, exchange: HttpExchange) -> None:
        if exchange.started:
            return
        try:
            head = ResponseHead(exchange.stream_id, 500, [("content-length", "0")])
            self.say(head, End(exchange.stream_id))
            exchange.finished = True
        except LocalProtocolError:
            return  # the answer that failed had begun

    def _over(self, exchange: HttpExchange) -> None:
        del self._exchanges[exchange.stream_id]
        self._send_room.leave(exchange.stream_id)
        unread = exchange.inbox.unread
        self._unread -= unread
        if unread:
            self._codec.send(Credit(exchange.stream_id, unread))
        if not exchange.finished:
            self._outflow.fill()  # what was sent before goes out before
            self._codec.send(Reset(exchange.stream_id, CANCEL if exchange.scope.cancel_called else INTERNAL_ERROR))
        if self._draining and not self._exchanges:
            self._outflow.fill()
            self._codec.send(GoAway())
        self._wake_reader()
        if self._unread_limit < math.inf and self._codec.buffered:  # it pipelines requests
            self._wait_for_turn()
        self._pump()

    # ---- the end -------------------------------------------------------------------------------------------------
    def _peer_gone(self) -> None:
        self._peer_ended = True
        self._codec.receive(b"")
        self._pump()
        for exchange in self._exchanges.values():
            self._limit_half_closed(exchange)

    def _limit_half_closed(self, exchange: HttpExchange) -> None:
        grace = 0.0 if self._codec.version == "2" else self._settings.half_close
        exchange.scope.deadline = trio.current_time() + grace

    def _break_off(self, error: RemoteProtocolError) -> None:
        count_told(error.failure.code)
        _log.info("protocol_error", code=error.failure.code.value, reason=error.failure.message)
        if error.failure.code is FailureCode.LIMIT_EXCEEDED:
            self._seat.abused()
        self._cancel_all()

    def _cancel_all(self) -> None:
        self._broken = True
        for exchange in self._exchanges.values():
            exchange.scope.cancel()

    def _lose(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            _log.info("connection_lost", reason=reason)
            self._nursery.cancel_scope.cancel()

    def _drain(self) -> None:
        """On HTTP/2, GOAWAY waits until no exchange is running: clients on python-h2 (S2's SDK) take no frame after it,
        so it would cut off the answers under way. Until then it is the handler that refuses new requests."""
        self._draining = True
        if not (self._exchanges and self._codec.version == "2"):
            self._codec.send(GoAway())
            self.flush()
