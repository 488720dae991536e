"""A client's HTTP connection and its exchanges.

`HttpClientConnection` has one task that reads, and one that writes while the kernel takes no more. All calls of the
codec are synchronous and made by the task that has something to send; output is written at once if the kernel takes it,
else by the writer task. A cancelled user therefore never leaves half a frame behind. `HttpStream` is the user's view of
one exchange.

A connection is retired (it takes no further requests) on GOAWAY, on errors, and when a response is late and nothing at
all was received meanwhile. It ends when its last exchange does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

import trio

from penstock.model.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock.net.body_buffer import BodyBuffer
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.transport import TooSlow, Transport
from penstock.net.upstream import Upstream, broke, lost, reason_of, too_late, unreachable
from penstock.wire.codec import PAUSED, Pull
from penstock.wire.http import (
    CANCEL,
    NO_ERROR,
    REFUSED_STREAM,
    Body,
    Buffer,
    Credit,
    Data,
    End,
    GoAway,
    HttpCodec,
    HttpHeaders,
    Outgoing,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
)

__all__ = ["HttpClientConnection", "HttpStream"]

_SENDS_PER_CHECKPOINT: Final = 8
"""Sends between checkpoints: a fast server must not let its sender starve the others, but a pass of the scheduler costs
more than a send."""
_TURN_SECONDS: Final = 0.002
"""Seconds that one connection may process input before others have their turn."""
_LAST_WORDS: Final = 1.0
"""Seconds to wait for the response of a server that accepts no more: it may have said why before."""
_TOO_MUCH: Final = "the server sent data after its answer"


class HttpStream:
    """A request in flight and its response, full duplex: one task may send while another receives.

    Methods raise OperationFailed: UNAVAILABLE if the server was lost or reset the exchange, HOT_SERVER if it says that
    it did not process the request. Each may be cancelled and called again: nothing is lost.
    """

    __slots__ = (
        "_connection",
        "_failure",
        "_head",
        "_sends",
        "_sent_all",
        "answered",
        "inbox",
        "opened",
        "stream_id",
        "trailers",
        "unprocessed",
    )

    def __init__(self, connection: HttpClientConnection, stream_id: int) -> None:
        self.stream_id = stream_id
        self.opened = trio.current_time()
        self.answered = False
        """True once the head of the response has come."""
        self.inbox = BodyBuffer()
        """The response's body; it may have ended before it is received to its end."""
        self.unprocessed = False
        """True if the server said that it did not process the request."""
        self.trailers: HttpHeaders = ()
        """Trailers of the response, available once it has ended."""
        self._connection = connection
        self._head: ResponseHead | None = None
        self._failure: Failure | None = None
        self._sent_all = False
        self._sends = 0

    # ---- the connection's side -----------------------------------------------------------------------------------
    def feed_head(self, head: ResponseHead) -> None:
        """Set the head of the response."""
        self._head = head
        self.answered = True
        self.inbox.wake()

    def feed_end(self, trailers: HttpHeaders) -> None:
        """Mark the response as complete."""
        self.trailers = trailers
        self.inbox.end()

    def fail(self, failure: Failure, unprocessed: bool = False) -> None:
        """End the exchange with a failure; what came before can still be received."""
        if self._failure is None and not self.inbox.ended:
            self._failure = failure
            self.unprocessed = unprocessed
            self.inbox.wake()

    @property
    def over(self) -> bool:
        """True once the exchange is over, so that nothing further is sent."""
        return self.inbox.ended or self._failure is not None

    @property
    def complete(self) -> bool:
        """True once both messages are complete, so that no reset is needed."""
        return self.inbox.ended and self._sent_all

    # ---- the user's side -----------------------------------------------------------------------------------------
    async def send(self, pieces: Sequence[Buffer]) -> None:
        """Send more of the request's body; the pieces must not change any more.

        Waits for a slow server; if cancelled then, the pieces are still sent. After the end of the response they
        are dropped.
        """
        self._raise_failure()
        if not self.over:
            self._connection.send_events(Body(self.stream_id, pieces))
        self._sends += 1
        if self._sends % _SENDS_PER_CHECKPOINT:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        await self._connection.wait_sent(self)
        self._raise_failure()

    async def finish(self, trailers: HttpHeaders = ()) -> None:
        """End the request's body; may be called more than once."""
        self._raise_failure()
        if not self._sent_all and not self.over:
            self._sent_all = True
            self._connection.send_events(End(self.stream_id, tuple(trailers)))
        await trio.lowlevel.checkpoint_if_cancelled()

    def begun(self) -> None:
        """Send the head now, before the body is available."""
        self._connection.send_events()

    def whole(self, *events: Body | End) -> None:
        """Send the rest of the request, together with its head."""
        self._sent_all = True
        self._connection.send_events(*events)

    async def receive_head(self, seconds: float | None = None) -> ResponseHead:
        """Return the head of the response, waiting up to `seconds` (None: the upstream's `request_seconds`).

        Raises OperationFailed(UPSTREAM_TIMEOUT) if it did not come.
        """
        limit = self.request_seconds if seconds is None else seconds
        with trio.move_on_after(limit):
            while self._head is None:
                await self._wait()
            return self._head
        raise self.late(limit)

    @property
    def request_seconds(self) -> float:
        """Time limit of a response in the upstream's settings, in seconds."""
        return self._connection.upstream.settings.request_seconds

    def late(self, seconds: float, what: str = "answer") -> OperationFailed:
        """Return the failure of an exchange in which `what` did not come in `seconds`: UPSTREAM_TIMEOUT. Reports to the
        circuit breaker."""
        return self._connection.late(self, what, seconds)

    async def receive(self) -> bytes:
        """Return the next piece of the response's body, all that is buffered; b"" at its end.

        Not calling it applies back-pressure. There is no deadline: the caller knows how long the server may be silent.
        """
        inbox = self.inbox
        while not inbox.unread:
            if inbox.ended:
                await trio.lowlevel.checkpoint_if_cancelled()
                return b""
            await self._wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        data = inbox.take()
        self._connection.consumed(self.stream_id, len(data))
        return data

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        """Return all that is buffered of the response's body, once that is `least` bytes.

        Returns fewer at the end of the body and when the server is lost, and no pieces after the end. `least` must be
        below the settings' `receive_buffer` and `stream_window`.
        """
        inbox = self.inbox
        while inbox.unread < least and not inbox.ended:
            if self._failure is not None and inbox.unread:
                break
            await self._wait(least)
        await trio.lowlevel.checkpoint_if_cancelled()
        size, pieces = inbox.unread, inbox.take_all()
        self._connection.consumed(self.stream_id, size)
        return pieces

    async def _wait(self, least: int = 1) -> None:
        self._raise_failure()
        await self.inbox.wait(least)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OperationFailed(self._failure)


class HttpClientConnection:
    """One connection, served by `run`. `changed` is called, without arguments, when there may be room for a request, or
    no longer.

    The pool counts in `claims` the requests that it has promised the connection to. `assumed_streams`: requests at once
    that the server is assumed to allow until it says so.
    """

    def __init__(
        self,
        upstream: Upstream,
        transport: Transport,
        codec: HttpCodec,
        settings: HttpClientSettings,
        changed: Callable[[], None],
        assumed_streams: int,
    ) -> None:
        self.upstream = upstream
        self.claims = 0
        self.used = False
        """True once the connection has answered a request."""
        self._transport = transport
        self._codec = codec
        self._settings = settings
        self._changed = changed
        self._assumed_streams = assumed_streams
        self._streams: dict[int, HttpStream] = {}
        self._unread_limit = math.inf if codec.version == "2" else settings.receive_buffer
        self._unread = 0
        self._last_received = 0.0
        self._write_failed = False
        self._retired = False
        self._over = False
        self._fault = False
        self._why = "the server closed the connection"
        self._reading = trio.CancelScope()
        self._read_on: trio.Event | None = None
        self._progress = trio.lowlevel.ParkingLot()

    @property
    def room(self) -> int:
        """Number of further requests that the connection takes now."""
        if not self.usable:
            return 0
        return min(self._settings.streams_per_connection, self.peer_streams) - len(self._streams) - self.claims

    @property
    def peer_streams(self) -> int:
        """Requests at once that the server allows: as its settings say or, before anything was received, as assumed."""
        return self._codec.peer_streams if self._last_received else self._assumed_streams

    @property
    def usable(self) -> bool:
        """True if a request that the connection was promised to may still begin."""
        ended = self._retired or self._reading.cancel_called  # the latter also checks the deadline
        return not ended and len(self._streams) < self.peer_streams  # which the server may have lowered

    async def run(self) -> None:
        """Serve until the connection ends, and close it."""
        try:
            async with trio.open_nursery() as nursery:
                self._transport.begin(
                    nursery, source=self._codec.output, moved=self._progress.unpark_all, lost=self._stop_writing
                )
                self._transport.speaks(self._codec)
                self.rest()
                self._flush()
                try:
                    await self._read()
                    self._over = True
                finally:
                    self._retired = self._write_failed = True  # before the nursery refuses new writers
                    nursery.cancel_scope.cancel()
        finally:
            self._fail_all()
            self._transport.forget()
            self._progress.unpark_all()
            self._changed()
            await self._transport.close()

    # ---- in ------------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        ended = False
        try:
            with self._reading:
                while not (ended or self._codec.closed):
                    data = await self._transport.receive(owned=self._codec.keeps)
                    self._last_received = trio.current_time()
                    ended = not data
                    self._codec.receive(data)
                    del data  # up to 1 MiB
                    await self._deliver_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._why = reason_of(error)
        except RemoteProtocolError as error:
            if not ended:
                self._why = f"the server violated the protocol: {error.failure.message}"
                self._fault = error.failure.code is not FailureCode.CLIENT_HANGUP

    async def _deliver_all(self) -> None:
        until = perf_counter() + _TURN_SECONDS
        while True:
            while self._unread >= self._unread_limit:
                self._read_on = trio.Event()
                await self._read_on.wait()
            event = self._codec.next_event()
            if isinstance(event, Pull):
                break
            self._deliver(event)
            if perf_counter() > until:
                self._flush()
                await trio.lowlevel.checkpoint()
                until = perf_counter() + _TURN_SECONDS
        if (event is PAUSED or not self._is_waiting) and self._codec.buffered:
            self._end(_TOO_MUCH)  # or it would be taken for the beginning of the next answer
        self._flush()

    @property
    def _is_waiting(self) -> bool:
        """True if the server may say something: at any time, or in HTTP/1.1 until the answer is complete."""
        return self._codec.version == "2" or not all(stream.over for stream in self._streams.values())

    def _deliver(self, event: Received) -> None:
        if isinstance(event, GoAway):
            self._go_away(event)
            return
        stream = self._streams.get(getattr(event, "stream_id", 0))
        if isinstance(event, Data):
            if stream is None:
                self._codec.send(Credit(event.stream_id, event.credit))
            else:
                self._unread += event.credit
                stream.inbox.feed(event.data)
        elif stream is None:
            if isinstance(event, ResponseHead) and self._codec.version != "2":
                self._end(_TOO_MUCH)  # or it would be taken for the response to the next request
        elif isinstance(event, ResponseHead):
            self.used = True
            self.upstream.breaker.succeeded()
            stream.feed_head(event)
        elif isinstance(event, End):
            stream.feed_end(event.trailers)
            self._progress.unpark_all()
        elif isinstance(event, Reset):
            self._refused(stream, event)

    def _refused(self, stream: HttpStream, reset: Reset) -> None:
        unprocessed = reset.code == REFUSED_STREAM
        if unprocessed:
            error = unreachable(self.upstream.settings, "the server refused to begin the request")
        elif reset.reason:
            error = broke(self.upstream.settings, f"the server's answer is malformed: {reset.reason}")
        else:
            error = lost(self.upstream.settings, f"the server reset the request with error {reset.code:#x}")
        stream.fail(error.failure, unprocessed)
        self._progress.unpark_all()

    def _go_away(self, event: GoAway) -> None:
        self._retired = True
        if event.code != NO_ERROR:
            self._why = f"the server ended the connection with error {event.code:#x}"
        failure = unreachable(self.upstream.settings, "the server accepts no more requests on the connection").failure
        for stream_id, stream in self._streams.items():
            if stream_id > event.last_stream_id:
                stream.fail(failure, unprocessed=True)
        self._progress.unpark_all()
        self._changed()

    def consumed(self, stream_id: int, length: int) -> None:
        """Record that a user has taken `length` bytes of body, and make room for more."""
        self._unread -= length
        self._codec.send(Credit(stream_id, length))
        if self._read_on is not None:
            self._read_on.set()
            self._read_on = None
        self._flush()

    # ---- out -----------------------------------------------------------------------------------------------------
    def begin(self, head: RequestHead) -> HttpStream | None:
        """Send the head of a request, filling in its stream's number. None if the connection takes no more requests.

        Raises OperationFailed(INVALID) if HTTP cannot carry the head. The failure does not quote it: it may contain a
        secret.
        """
        if not self.usable:
            return None
        try:
            head.stream_id = self._codec.new_stream()
        except LocalProtocolError:  # its end has been read, and others have their turn before it is taken note of
            self.retire()
            return None
        try:
            self._codec.send(head)
        except LocalProtocolError:
            self.rest()
            reason = f"{self.upstream.settings.where}: the request has a target or headers that HTTP cannot carry"
            raise fail(FailureCode.INVALID, reason) from None
        stream = self._streams[head.stream_id] = HttpStream(self, head.stream_id)
        self._reading.deadline = math.inf
        return stream

    def send_events(self, *events: Outgoing) -> None:
        """Send events of one exchange, and write them if the kernel takes them. Raises LocalProtocolError."""
        for event in events:
            self._codec.send(event)
        self._flush()

    def _flush(self) -> None:
        if self._codec.has_output and not self._write_failed:
            self._transport.flush(at_once=len(self._streams) <= 1)

    def _stop_writing(self, error: Exception) -> None:
        if isinstance(error, TooSlow):
            self._end(f"the server accepted no data for {self._settings.write_seconds:g} s")
            return
        # The server accepts no more output; the reader may still receive its response and the reason.
        self._write_failed = self._retired = True
        self._transport.forget()
        self._reading.deadline = trio.current_time() + _LAST_WORDS

    async def wait_sent(self, stream: HttpStream) -> None:
        """Wait until no more than `send_buffer` bytes of the stream are on their way, or the exchange is over."""
        while not stream.over and self._clogged(stream.stream_id):
            await self._progress.park()

    def _clogged(self, stream_id: int) -> bool:
        return (
            self._write_failed or self._codec.unsent(stream_id) + self._transport.pending > self._settings.send_buffer
        )

    # ---- the end -------------------------------------------------------------------------------------------------
    def leave(self, stream: HttpStream) -> None:
        """End the user's exchange: reset it if it is not complete."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        unread = stream.inbox.unread
        self._unread -= unread
        if unread:
            self._codec.send(Credit(stream.stream_id, unread))
        if not stream.complete:
            self._codec.send(Reset(stream.stream_id, CANCEL))
        self._flush()
        self.rest()
        self._changed()

    def late(self, stream: HttpStream, what: str, seconds: float) -> OperationFailed:
        """Return the failure of a stream on which `what` did not come in `seconds`.

        A connection on which nothing at all came meanwhile takes no more requests: the server may have vanished.
        """
        silent = self._last_received <= max(stream.opened, trio.current_time() - seconds)
        if silent or not self.used:
            self.upstream.breaker.lost(f"no {what} in {seconds:g} s")
        if silent:
            self.retire()
        return too_late(self.upstream.settings, what, seconds)

    def retire(self) -> None:
        """Take no more requests; end when the last one ends."""
        self._retired = True
        self.rest()

    def rest(self) -> None:
        """If the connection is unused, end it at once if it takes no more requests, else after `idle_seconds`."""
        if self._streams or self.claims:
            return
        if self._retired or self._codec.closed:
            self._end(self._why)
        else:
            self._reading.deadline = trio.current_time() + self.upstream.settings.idle_seconds

    def _end(self, reason: str) -> None:
        self._retired = True
        self._why = reason
        self._reading.cancel()

    def _fail_all(self) -> None:
        reason = self._why if self._over else "the gateway closed the connection"
        unanswered = [stream for stream in self._streams.values() if not stream.over]
        if unanswered and self._over and not self.used:
            self.upstream.breaker.lost(reason)
        failure: Failure = (broke if self._fault else lost)(self.upstream.settings, reason).failure
        for stream in self._streams.values():
            stream.fail(failure)
