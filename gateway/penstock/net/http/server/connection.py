"""A server's HTTP connection and its exchanges.

`HttpServerConnection` has one task that reads, one for each request in progress, and one that writes while the kernel
takes no more. One task that has served its request waits for the next, since making a task and a cancel scope takes a
tenth of the time of a small request. All calls of the codec are synchronous and made by the task that has something to
send; output is written at once if the kernel takes it, else by the writer task. A cancelled handler therefore never
leaves half a frame behind.
`HttpExchange` is the handler's view of one request.

To be fair to others the reader processes input for TURN_SECONDS at a time; the rest is left to a task that takes turns
with the client's other connections. It stops reading while too much body, output or input is buffered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from email.utils import formatdate
from functools import lru_cache, partial
from time import perf_counter
from typing import Final

import structlog
import trio

from penstock.core.waiters import Waiters
from penstock.model.failures import FailureCode, LocalProtocolError, OperationFailed, RemoteProtocolError
from penstock.net.body_buffer import BodyBuffer
from penstock.net.draining import Draining
from penstock.net.http.exchange import Handler, HeaderList, Refetch, Request
from penstock.net.http.server.room import AHEAD, Remainder, SendRoom
from penstock.net.http.server.settings import TURN_SECONDS, WAKE_SECONDS, HttpSettings
from penstock.net.http.server.usage import ConnectionUsage, TooNoisy
from penstock.net.limits.limiter import Crowded
from penstock.net.proxies import FORWARDED, BadForwarding
from penstock.net.transport import WRITE_ROOM, TooSlow, Transport
from penstock.observe.metrics.clients import Pauses, count_error, count_response
from penstock.observe.tracing import REQUEST
from penstock.wire.codec import Pull
from penstock.wire.http import (
    CANCEL,
    ENHANCE_YOUR_CALM,
    INTERNAL_ERROR,
    NO_ERROR,
    REFUSED_STREAM,
    Body,
    Buffer,
    Continue,
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
    body_forbidden,
)

__all__ = ["HttpExchange", "HttpServerConnection"]

_SENDS_PER_CHECKPOINT: Final = 8
"""Sends between checkpoints: a fast client must not let its handler starve the others, but a pass of the scheduler
costs more than a send."""
_date: tuple[int, str] = (0, "")
_log = structlog.get_logger()


def _now() -> str:
    """Return the value of the Date header (RFC 9110, 6.6.1), made once a second."""
    global _date
    second = int(time.time())
    if _date[0] != second:
        _date = (second, formatdate(second, usegmt=True))
    return _date[1]


@lru_cache
def _keep_alive_hint(seconds: int) -> tuple[tuple[str, str], ...]:
    """Return the headers of a response on HTTP/1.1 after which the connection stays open (RFC 2068, 19.7.1.1)."""
    return (("connection", "keep-alive"), ("keep-alive", f"timeout={seconds}")) if seconds else ()


def _answered(status: int) -> None:
    count_response(status)
    request = REQUEST.get()
    if request is not None:
        request.note({"http.response.status_code": status})


class HttpExchange:
    """An `Exchange` (`penstock.net.http.exchange`). `scope` is cancelled when the client goes away."""

    __slots__ = (
        "_connection",
        "_sends",
        "_waits",
        "finished",
        "inbox",
        "refusal",
        "refuses_body",
        "request",
        "scope",
        "started",
        "stream_id",
    )

    def __init__(self, connection: HttpServerConnection, head: RequestHead, scope: trio.CancelScope) -> None:
        path, _, query = head.target.partition("?")
        self.request = Request(head.method, path, query, tuple(head.headers), head.authority, head.version, head.scheme)
        self.stream_id = head.stream_id
        self.scope = scope
        self.refusal = ""
        """Reason why the request is refused before its handler sees it."""
        self.started = False
        self.finished = False
        self.refuses_body = False
        self.inbox = BodyBuffer()
        """The request's body."""
        self._connection = connection
        self._waits = head.expects_continue
        self._sends = 0

    # ---- the handler's side --------------------------------------------------------------------------------------
    async def receive(self) -> bytes:
        """Return the next piece of the request body; b"" at its end."""
        self._let_continue()
        inbox = self.inbox
        while not inbox.unread:
            if inbox.ended:
                return b""
            await inbox.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        data = inbox.take()
        self._connection.consumed(self.stream_id, len(data))
        return data

    @property
    def arrived(self) -> bool:
        """True once the whole request body has come; see `Exchange`."""
        return self.inbox.ended

    @property
    def ended(self) -> bool:
        """True once the whole request body has been received; see `Exchange`."""
        return self.inbox.ended and not self.inbox.unread

    def refuse_body(self) -> None:
        """Take no more of the request; see `Exchange`."""
        self.refuses_body = not self.inbox.ended

    async def room(self, keep: bool = True) -> None:
        """Wait until the connection may hold more."""
        await self._connection.wait_for_room(self.stream_id, keep)

    def spare(self) -> int:
        """Return how many bytes may be sent besides the piece that has room."""
        return self._connection.spare()

    async def respond(
        self,
        status: int,
        headers: HeaderList,
        body: bytes = b"",
        trailers: HeaderList | None = None,
        refetch: Refetch | None = None,
    ) -> None:
        """Send a whole response, in one write if it is small."""
        _answered(status)
        fields = self._fields(headers)
        measured = trailers is None and status not in (204, 304) and status >= 200
        if measured and "content-length" not in dict(fields):
            fields.append(("content-length", str(len(body))))
        parts: list[Buffer] = [] if body_forbidden(self.request.method, status) or not body else [body]
        del body  # see `Exchange.send`
        if refetch is not None and self._connection.exceeds_window(self.stream_id, parts):
            self._connection.send_events(ResponseHead(self.stream_id, status, fields))
            self.started = True
            await self._connection.send_refetchable(self.stream_id, parts, refetch)
            await self.finish(trailers or ())
            return
        if trailers:
            last: tuple[Outgoing, ...] = (Body(self.stream_id, parts), End(self.stream_id, tuple(trailers)))
        else:
            last = (Body(self.stream_id, parts, end=True),) if parts else ()
        self._connection.send_events(ResponseHead(self.stream_id, status, fields, end=not last), *last)
        self.started = self.finished = True
        self._connection.leave_room(self.stream_id)
        await self._connection.wait_sent(self.stream_id, finish=True)

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a streamed response; it is on its way to the client when this returns."""
        _answered(status)
        if status < 300:  # full duplex: the body is wanted, and 100 Continue cannot follow the head
            self._let_continue()
        self._connection.send_events(ResponseHead(self.stream_id, status, tuple(self._fields(headers))))
        self.started = True
        await trio.lowlevel.checkpoint_if_cancelled()

    async def send(self, pieces: Sequence[Buffer], refetch: Refetch | None = None) -> None:
        """Send more of a streamed body. Waits for a slow client."""
        if refetch is not None and self._connection.exceeds_window(self.stream_id, pieces):
            assert isinstance(pieces, list), "it is emptied"
            await self._connection.send_refetchable(self.stream_id, pieces, refetch)
        else:
            self._connection.send_events(Body(self.stream_id, pieces))
            self._connection.leave_room(self.stream_id)
        self._sends += 1
        if self._sends % _SENDS_PER_CHECKPOINT:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        await self._connection.wait_sent(self.stream_id)

    def send_now(self, piece: bytes) -> bool:
        """Send a small piece without waiting; see `Exchange`."""
        return not self.scope.cancel_called and self._connection.send_now(self.stream_id, piece)

    async def written(self) -> None:
        """Wait until the kernel has taken all that was sent."""
        await self._connection.wait_written(self.stream_id)

    async def finish(self, trailers: HeaderList = ()) -> None:
        """End a streamed response."""
        self._connection.send_events(End(self.stream_id, tuple(trailers)))
        self.finished = True
        self._connection.leave_room(self.stream_id)
        await self._connection.wait_sent(self.stream_id, finish=True)

    def _let_continue(self) -> None:
        """Send 100 Continue to a client that expects it before its body (RFC 9110, 10.1.1)."""
        if self._waits:
            self._waits = False
            if not (self.started or self.inbox.unread):
                self._connection.send_events(Continue(self.stream_id))

    def _fields(self, headers: HeaderList) -> list[tuple[str, str]]:
        request = self.request
        if request.http_version == "2":
            return [("date", _now()), *headers]
        if self.refuses_body:
            return [("date", _now()), ("connection", "close"), *headers]
        if request.http_version == "1.1" and "close" not in (request.header("connection") or "").lower():
            return [("date", _now()), *self._connection.keep_alive_hint(), *headers]
        return [("date", _now()), *headers]


class _Waiting:
    """A task that has served an exchange and waits, within its cancel scope, for the next one: None ends it."""

    __slots__ = ("exchange", "scope", "task")

    def __init__(self, scope: trio.CancelScope) -> None:
        self.task = trio.lowlevel.current_task()
        self.scope = scope
        self.exchange: HttpExchange | None = None


class HttpServerConnection:
    """One connection, served by `run`. The public methods are for its exchanges."""

    __slots__ = (
        "_broken",
        "_codec",
        "_complete",
        "_draining",
        "_due",
        "_ended",
        "_ending",
        "_exchanges",
        "_forwarded",
        "_handler",
        "_head_begun",
        "_idle",
        "_lost",
        "_multiplexed",
        "_nursery",
        "_pauses",
        "_peer_ended",
        "_progress",
        "_quota",
        "_reading",
        "_room",
        "_send_room",
        "_settings",
        "_taking_turns",
        "_task",
        "_transport",
        "_unread",
        "_unread_limit",
        "_usage",
        "_waiting",
        "_woken",
    )

    def __init__(self, transport: Transport, codec: HttpCodec, handler: Handler, settings: HttpSettings) -> None:
        self._transport = transport
        self._codec = codec
        self._handler = handler
        self._settings = settings
        self._exchanges: dict[int, HttpExchange] = {}
        self._usage = ConnectionUsage(transport, codec, settings.streams_before_auth)
        self._quota = self._usage.quota
        transport.within(self._quota)
        self._send_room = SendRoom(
            codec, self._exchanges, settings.max_unsent, settings.slow_reader, self._reset_stream
        )
        self._forwarded = FORWARDED.get()
        self._multiplexed = codec.version == "2"
        # On HTTP/2 the flow-control windows bound the unread bytes.
        self._unread_limit = math.inf if self._multiplexed else settings.receive_buffer
        self._unread = 0
        self._woken = 0
        self._lost = self._broken = False
        self._peer_ended = self._ended = self._ending = False
        self._idle = False
        self._head_begun = False
        self._complete = False  # the last read ended a request of HTTP/1.1: the client waits for the answer
        self._draining = self._taking_turns = False
        self._reading = trio.CancelScope()
        self._due = math.inf  # end of the wait for a request, or for the rest of a head
        self._room: trio.Event | None = None
        self._pauses = Pauses()
        self._progress = Waiters()
        self._nursery: trio.Nursery
        self._waiting: _Waiting | None = None

    async def run(self, drain: Draining) -> None:
        """Serve until the connection ends. The codec may have received its first bytes already."""
        self._task = trio.lowlevel.current_task()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._transport.begin(nursery, source=self._output, moved=self._after_writing, lost=self._stop_writing)
                with drain.watched_by(self._drain):
                    self._pump()
                    await self._read()
                self._ended = True
                if self._waiting is not None:
                    self._hand_over(self._waiting, None, self._task.context.copy())
            if not (self._lost or self._peer_ended or self._idle):
                await self._transport.linger(self._settings.linger)
        finally:
            # These may hold much memory, and tasks leave reference cycles, which only a full garbage collection frees.
            del self._codec, self._send_room
            self._transport.forget()
            self._usage.end()

    # ---- in ------------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        try:
            while True:
                with self._reading:
                    while not self._peer_ended:
                        await self._wait_for_room()
                        await self._quota.room()
                        if pause := self._take(await self._transport.receive(later=self._complete)):
                            await trio.sleep(pause)
                if not self._reading.cancelled_caught or self._due <= trio.current_time():
                    break
                self._reading = trio.CancelScope(deadline=self._due)
        except trio.BrokenResourceError:
            self._lose("connection lost")
        except (Crowded, TooNoisy) as error:
            self._throttle(str(error))
        if self._head_begun and trio.current_time() >= self._due:
            self._quota.limited("head_timeout_seconds")

    def _take(self, data: Buffer) -> float:
        """Handle what was read; return how long to pause before the next read, in seconds."""
        self._idle = self._complete = False
        if not data:
            self._peer_gone()
            return 0.0
        size = len(data)
        self._codec.receive(data)
        self._pump()
        return self._usage.read(size, self._unread)

    def _throttle(self, reason: str) -> None:
        """End the connection with ENHANCE_YOUR_CALM, and slow its client."""
        _log.info("connection_refused", reason=reason)
        self._quota.abused()
        self._codec.send(GoAway(ENHANCE_YOUR_CALM))
        self._cancel_all()
        self.flush()

    async def _wait_for_room(self) -> None:
        limit = self._settings.receive_buffer
        while (
            self._taking_turns
            or self._unread >= self._unread_limit
            or self._codec.buffered >= limit + self._settings.read_size
            or self._transport.pending >= self._settings.send_buffer + WRITE_ROOM
        ):
            self._room = trio.Event()
            with self._pauses.reading():
                await self._room.wait()

    def _pump(self, in_turn: bool = False) -> None:
        """Deliver received events and flush the output; what takes too long is continued in a task."""
        if self._taking_turns or (self._quota.account.turns.locked() and not in_turn):
            self._wait_for_turn()
            self.flush()
            return
        until, self._woken = perf_counter() + TURN_SECONDS, 0
        try:
            while self._unread < self._unread_limit and not (self._broken or self._lost):
                if perf_counter() + self._woken * WAKE_SECONDS > until and self._codec.buffered:
                    self._wait_for_turn()
                    break
                event = self._codec.next_event()
                if isinstance(event, Pull):
                    break
                self._deliver(event)
        except RemoteProtocolError as error:
            self._break_off(error)
        self._set_deadline()
        if self._multiplexed or self._codec.closed:  # nothing else answers by itself, or lets others send
            self.flush()

    def _wait_for_turn(self) -> None:
        if not self._taking_turns:
            self._taking_turns = True
            self._nursery.start_soon(self._take_turn)

    async def _take_turn(self) -> None:
        async with self._quota.account.turns:  # acquiring it passes through the scheduler
            self._taking_turns, before = False, self._codec.buffered
            self._pump(in_turn=True)
            await self._quota.rest_after_turn(before, self._codec.buffered)
        self._wake_reader()

    def _deliver(self, event: Received) -> None:
        if isinstance(event, RequestHead):
            if not self._usage.begin(len(self._exchanges)):
                self._codec.send(Reset(event.stream_id, REFUSED_STREAM))
                return
            self._begin(event)
        elif isinstance(event, Data):
            self._deliver_data(event)
        elif isinstance(event, End) and event.stream_id in self._exchanges:
            self._exchanges[event.stream_id].inbox.end()
            self._complete = not self._multiplexed
        elif isinstance(event, Reset):
            if event.reason:
                count_error(FailureCode.BAD_FORMAT)
                _log.info("stream_refused", reason=event.reason)
            if event.stream_id in self._exchanges:
                self._exchanges[event.stream_id].scope.cancel()

    def _deliver_data(self, event: Data) -> None:
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None:
            self._codec.send(Credit(event.stream_id, event.credit))
        else:
            self._unread += event.credit
            self._woken += exchange.inbox.feed(event.data)

    def consumed(self, stream_id: int, length: int) -> None:
        """Record that a handler has taken `length` bytes of body, and make room for more."""
        held_back = self._unread >= self._unread_limit
        self._unread -= length
        self._codec.send(Credit(stream_id, length))
        self._wake_reader()
        if held_back:
            self._pump()
        elif self._codec.has_output:
            self.flush()

    def _wake_reader(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def _set_deadline(self) -> None:
        """Set the reader's deadline: none while an exchange runs, else the time limit of a head or of an idle
        connection.

        The cancel scope may have an earlier one, at which the reader looks: changing it twice for each request costs 8
        us.
        """
        if self._exchanges:
            self._due = math.inf
            self._idle = False
            self._head_begun = False
            return
        now = trio.current_time()
        self._usage.rest(now)
        if not (self._codec.buffered or self._codec.amid_answered):
            self._due = now + self._settings.keep_alive
            self._idle = not self._codec.closed
            self._head_begun = False
        elif not self._head_begun:
            self._due = now + self._settings.head_timeout
            self._idle = False
            self._head_begun = True
        if self._due < self._reading.deadline:
            self._reading.deadline = self._due

    # ---- out -----------------------------------------------------------------------------------------------------
    def send_events(self, *events: Outgoing) -> None:
        """Send events of one exchange, and write them if the kernel takes them. Raises LocalProtocolError."""
        for event in events:
            self._codec.send(event)
        self.flush()

    def send_now(self, stream_id: int, piece: bytes) -> bool:
        """Send a small piece of one exchange's body if nothing else waits for the client; see `Exchange.send_now`. It
        may be called from a task of another connection."""
        if self._lost or self._transport.pending:
            return False
        framed = self._codec.framed(stream_id, piece)
        if framed is None:
            return False
        if not self._transport.write_piece(framed):
            self._task.context.run(self.flush)
        return True

    def flush(self) -> None:
        """Write output as far as possible without waiting; another task writes the rest."""
        if not self._lost:
            self._transport.flush(at_once=len(self._exchanges) <= 1)

    def _output(self, room: int) -> list[Buffer]:
        out = self._codec.output(room)
        self._send_room.review()
        return out

    def _after_writing(self) -> None:
        self._wake_reader()
        if self._usage.written(self._send_room.parked):
            self._progress.unpark_all()
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        if not self._transport.pending and not self._exchanges and (self._codec.closed or self._ending):
            self._due = -math.inf
            self._reading.cancel()

    def _stop_writing(self, error: Exception) -> None:
        if slow := isinstance(error, TooSlow):
            self._quota.limited("slow_reader_seconds")
        self._lose("the client reads too slowly" if slow else "connection lost")

    def keep_alive_hint(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that tell a client for how long its connection stays open."""
        return _keep_alive_hint(int(self._settings.keep_alive))

    async def wait_sent(self, stream_id: int, finish: bool = False) -> None:
        """Wait until no more than `send_buffer` bytes of the stream are on their way; with `finish`, also until none is
        left in the codec.

        If the whole connection holds more than `max_unsent`, wait until nothing of this stream is left.
        """
        if self._multiplexed or self._transport.pending:  # else nothing waits
            await self._wait_sent(stream_id, 0 if finish else self._settings.max_unsent)

    def exceeds_window(self, stream_id: int, pieces: Sequence[Buffer]) -> bool:
        """Return whether some of the pieces would wait for flow-control window."""
        return self._multiplexed and sum(map(len, pieces)) > self._codec.window(stream_id) + AHEAD

    async def send_refetchable(self, stream_id: int, pieces: list[Buffer], refetch: Refetch) -> None:
        """Send body of one exchange, as its window opens; what waits may be dropped, and is fetched again then."""
        codec, room, remainder = self._codec, self._send_room, Remainder(pieces)
        while True:
            if not remainder.in_memory:
                await room.wait(stream_id)
                try:
                    is_same = remainder.restore(await refetch())
                except OperationFailed:
                    is_same = False
                if not is_same:
                    self._reset_stream(stream_id, "what it waits for is gone")
                    await trio.lowlevel.checkpoint()
            ahead = max(0, codec.window(stream_id) + AHEAD - codec.unsent(stream_id))
            room.leave(stream_id)
            self.send_events(Body(stream_id, remainder.take(ahead)))
            if not remainder.size:
                return
            room.park(stream_id, remainder)
            try:
                await self._wait_while(
                    stream_id, lambda: codec.unsent(stream_id) > (AHEAD // 2 if remainder.in_memory else 0)
                )
            finally:
                room.unpark(stream_id)

    def has_unsent(self, stream_id: int) -> bool:
        """Return whether anything that was sent of the stream, or of those before it, waits for the client."""
        return bool(self._codec.unsent(stream_id) or self._transport.pending)

    async def wait_written(self, stream_id: int) -> None:
        """Wait until the kernel has taken all that was sent of the stream, and all before it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self.has_unsent(stream_id):
            await self._progress.park()

    async def _wait_sent(self, stream_id: int, most: int) -> None:
        await self._wait_while(stream_id, lambda: self._clogged(stream_id, most))

    async def _wait_while(self, stream_id: int, is_blocked: Callable[[], bool]) -> None:
        """Wait while output of the stream is blocked; reset the stream if nothing moves for `slow_reader` seconds."""
        while is_blocked():
            await self._wait_moved(stream_id, is_blocked)

    async def _wait_moved(self, stream_id: int, is_blocked: Callable[[], bool]) -> None:
        unsent = self._codec.unsent(stream_id)

        def has_moved() -> bool:
            return self._codec.unsent(stream_id) != unsent or not is_blocked()

        with trio.move_on_after(self._settings.slow_reader) as patience:
            while not has_moved():
                with self._pauses.writing():
                    await self._progress.park(has_moved)
        if patience.cancelled_caught and unsent and not self._transport.pending:
            self._reset_stream(stream_id, "the client gives no flow-control window")
            await trio.lowlevel.checkpoint()

    def _clogged(self, stream_id: int, most: int) -> bool:
        unsent = self._codec.unsent(stream_id)
        if self._usage.clogged(unsent + self._transport.pending, self._settings.send_buffer):
            return True
        return unsent > 0 and self._codec.held > most

    async def wait_for_room(self, stream_id: int, keep: bool) -> None:
        """Wait until the connection may hold more of the stream, as `Exchange.room` specifies."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if keep:
            if self._multiplexed:  # nothing is fetched for a closed window
                codec = self._codec
                await self._wait_while(
                    stream_id, lambda: codec.unsent(stream_id) > AHEAD and not codec.window(stream_id)
                )
            await self._quota.answer_room()
            await self._send_room.wait(stream_id)
        else:
            self._send_room.leave(stream_id)
            await self._wait_sent(stream_id, self._settings.max_unsent // 2)

    def spare(self) -> int:
        """Return how many bytes may be sent besides what has room, as `Exchange.spare` specifies."""
        return 0 if self._quota.crowded else self._send_room.spare()

    def leave_room(self, stream_id: int) -> None:
        """Release the room that was reserved for an exchange."""
        self._send_room.leave(stream_id)

    def _reset_stream(self, stream_id: int, reason: str) -> None:
        _log.info("stream_reset", reason=reason, stream=stream_id)
        self._quota.limited("slow_reader_seconds")
        self._codec.send(Reset(stream_id, CANCEL))
        self._exchanges[stream_id].scope.cancel()

    # ---- exchanges -----------------------------------------------------------------------------------------------
    def _begin(self, head: RequestHead) -> None:
        """Begin an exchange, in the task that waits for one or in a new one."""
        waiting = self._waiting
        scope = trio.CancelScope() if waiting is None else waiting.scope
        exchange = self._exchanges[head.stream_id] = HttpExchange(self, head, scope)
        if self._peer_ended:
            self._limit_half_closed(exchange)
        # The running task may serve another request, whose context variables must not leak into this one.
        context = self._task.context.copy()
        if self._forwarded is not None:
            lines = [value for name, value in exchange.request.headers if name == "x-forwarded-for"]
            try:
                context.run(self._forwarded.enter, lines, self._quota)
            except BadForwarding as error:
                exchange.refusal = str(error)
        if waiting is not None:
            self._hand_over(waiting, exchange, context)
            return
        # trio would make a name of 100 bytes for each task.
        context.run(partial(self._nursery.start_soon, self._serve, exchange, scope, name="exchange"))

    def _hand_over(self, waiting: _Waiting, exchange: HttpExchange | None, context: Context) -> None:
        self._waiting = None
        waiting.exchange = exchange
        waiting.task.context = context
        trio.lowlevel.reschedule(waiting.task)

    async def _serve(self, exchange: HttpExchange | None, scope: trio.CancelScope) -> None:
        """Serve an exchange, and those that are handed over to this task after it."""
        try:
            with scope:
                while exchange is not None and not scope.cancel_called:  # unwinding a handler takes 80 us
                    if exchange.refusal:
                        _log.info("request_refused", reason=exchange.refusal)
                        await exchange.respond(400, [("content-type", "text/plain")], exchange.refusal.encode())
                    else:
                        await self._handler(exchange)
                    if not exchange.finished:
                        raise RuntimeError("the handler returned without a complete answer")
                    self._over(exchange)
                    exchange = None  # its memory is not needed while this task waits
                    exchange = await self._next_exchange(scope)
        except Exception:
            if exchange is None:
                raise
            _log.exception("handler_failed", path=exchange.request.path)
            self._answer_failure(exchange)
        finally:
            if exchange is not None:
                self._over(exchange)

    async def _next_exchange(self, scope: trio.CancelScope) -> HttpExchange | None:
        """Wait for the next exchange to serve within `scope`; None if this task is to end."""
        if self._waiting is not None or self._ended or self._peer_ended:
            return None
        waiting = self._waiting = _Waiting(scope)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._waiting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return waiting.exchange

    def _answer_failure(self, exchange: HttpExchange) -> None:
        if exchange.started:
            return
        try:
            head = ResponseHead(exchange.stream_id, 500, [("content-length", "0")])
            self.send_events(head, End(exchange.stream_id))
            exchange.finished = True
        except LocalProtocolError:
            return  # the failed response had begun

    def _over(self, exchange: HttpExchange) -> None:
        del self._exchanges[exchange.stream_id]
        self._send_room.leave(exchange.stream_id)
        unread = exchange.inbox.unread
        self._unread -= unread
        if unread:
            self._codec.send(Credit(exchange.stream_id, unread))
        if not exchange.finished:
            self._transport.fill()  # output sent before goes out first
            self._codec.send(Reset(exchange.stream_id, CANCEL if exchange.scope.cancel_called else INTERNAL_ERROR))
        elif exchange.refuses_body and self._multiplexed:
            self._codec.send(Reset(exchange.stream_id, NO_ERROR))
        elif exchange.refuses_body:
            self._ending = True
        if self._draining and not self._exchanges:
            self._transport.fill()
            self._codec.send(GoAway())
        self._wake_reader()
        if self._unread_limit < math.inf and self._codec.buffered:  # HTTP/1.1 with pipelined requests
            self._wait_for_turn()
        self._pump()
        if self._ending:
            self._end_if_closed()

    # ---- the end -------------------------------------------------------------------------------------------------
    def _peer_gone(self) -> None:
        self._peer_ended = True
        self._codec.receive(b"")
        self._pump()
        for exchange in self._exchanges.values():
            self._limit_half_closed(exchange)

    def _limit_half_closed(self, exchange: HttpExchange) -> None:
        exchange.scope.deadline = trio.current_time() + (0 if self._multiplexed else self._settings.half_close)

    def _break_off(self, error: RemoteProtocolError) -> None:
        count_error(error.failure.code)
        _log.info("protocol_error", code=error.failure.code.value, reason=error.failure.message)
        if error.failure.code is FailureCode.LIMIT_EXCEEDED:
            self._quota.abused()
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
        """Begin to drain. On HTTP/2, GOAWAY is sent when no exchange is running: clients on python-h2 (S2's SDK) accept
        no frame after it, so it would cut off the responses in flight. Until then the handler refuses new requests."""
        self._draining = True
        if not (self._exchanges and self._multiplexed):
            self._codec.send(GoAway())
            self.flush()
