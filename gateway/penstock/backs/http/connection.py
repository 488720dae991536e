"""One HTTP connection of a client: a reader, and a writer while there is a wait.

All of the codec's calls are synchronous and made from whichever task has something to say; what comes out is written
at once where the kernel takes it, and by the writer task where it does not. A cancelled user therefore never leaves
half a frame behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Final

import trio

from penstock.backs.http.settings import HttpClientSettings
from penstock.backs.http.stream import HttpStream
from penstock.backs.upstream import Upstream, lost, reason_of, too_late, unreachable
from penstock.outflow import Outflow
from penstock.wire import TooSlow, Wire
from penstock_codecs.codec import PAUSED, Pull
from penstock_codecs.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock_codecs.http import (
    CANCEL,
    NO_ERROR,
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

__all__ = ["HttpClientConnection"]

_TURN_SECONDS: Final = 0.002
"""How long one connection may read before others have their turn."""
_LAST_WORDS: Final = 1.0
"""A server that takes no more may have said why before: so long its answer is waited for."""
_TOO_MUCH: Final = "the server sends more than its answer"


class HttpClientConnection:
    """Served by `run`. `changed` is called, without arguments, when there may be room for a request, or no more.

    The pool counts in `claims` the requests that it has promised the connection to. `assumed_streams`: how many
    requests the server is taken to allow at once until it says so.
    """

    def __init__(
        self,
        upstream: Upstream,
        wire: Wire,
        codec: HttpCodec,
        settings: HttpClientSettings,
        changed: Callable[[], None],
        assumed_streams: int,
    ) -> None:
        self.upstream = upstream
        self.claims = 0
        self.used = False
        """Whether it has answered a request before."""
        self._wire = wire
        self._codec = codec
        self._settings = settings
        self._changed = changed
        self._assumed_streams = assumed_streams
        self._streams: dict[int, HttpStream] = {}
        self._unread_limit = math.inf if codec.version == "2" else settings.receive_buffer
        self._unread = 0
        self._heard = 0.0
        self._deaf = False
        self._retired = False
        self._over = False
        self._why = "the server closed the connection"
        self._reading = trio.CancelScope()
        self._read_on: trio.Event | None = None
        self._progress = trio.lowlevel.ParkingLot()
        self._outflow = Outflow(
            wire,
            codec,
            settings.write_seconds,
            filled=lambda: None,
            moved=self._progress.unpark_all,
            lost=self._stop_writing,
        )
        self._nursery: trio.Nursery | None = None

    @property
    def room(self) -> int:
        """How many more requests it takes now."""
        if not self.usable:
            return 0
        return min(self._settings.streams_per_connection, self.peer_streams) - len(self._streams) - self.claims

    @property
    def peer_streams(self) -> int:
        """How many requests the server takes at once: what it said first of all, or, before that, what is assumed."""
        return self._codec.peer_streams if self._heard else self._assumed_streams

    @property
    def usable(self) -> bool:
        """Whether a request to which it was promised may still begin."""
        ended = self._retired or self._reading.cancel_called  # the second looks at the deadline too
        return not ended and len(self._streams) < self.peer_streams  # which the server may have lowered

    async def run(self) -> None:
        """Serve until the connection ends, and close it."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.rest()
                self._flush()
                try:
                    await self._read()
                    self._over = True
                finally:
                    self._retired = self._deaf = True  # before the nursery takes no more writers
                    nursery.cancel_scope.cancel()
        finally:
            self._fail_all()
            self._wire.forget()
            self._progress.unpark_all()
            self._changed()
            await self._wire.close()

    # ---- in ------------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        data = None
        try:
            with self._reading:
                while data != b"" and not self._codec.closed:
                    data = await self._wire.receive()
                    self._heard = trio.current_time()
                    self._codec.receive(data)
                    await self._deliver_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._why = reason_of(error)
        except RemoteProtocolError as error:
            if data != b"":
                self._why = f"the server breaks the protocol: {error.failure.message}"

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
        if event is PAUSED and self._codec.buffered:
            self._end(_TOO_MUCH)
        self._flush()

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
                self._end(_TOO_MUCH)  # else it would be taken for the answer to the next request
        elif isinstance(event, ResponseHead):
            self.used = True
            self.upstream.breaker.succeeded()
            stream.feed_head(event)
        elif isinstance(event, End):
            stream.feed_end(event.trailers)
            self._progress.unpark_all()
        elif isinstance(event, Reset):
            self._refused(stream, event.code)

    def _refused(self, stream: HttpStream, code: int) -> None:
        unprocessed = code == REFUSED_STREAM
        if unprocessed:
            error = unreachable(self.upstream.settings, "the server refused to begin the request")
        else:
            error = lost(self.upstream.settings, f"the server broke the request off with error {code:#x}")
        stream.fail(error.failure, unprocessed)
        self._progress.unpark_all()

    def _go_away(self, event: GoAway) -> None:
        self._retired = True
        if event.code != NO_ERROR:
            self._why = f"the server ended the connection with error {event.code:#x}"
        failure = unreachable(self.upstream.settings, "the server takes no more requests on the connection").failure
        for stream_id, stream in self._streams.items():
            if stream_id > event.last_stream_id:
                stream.fail(failure, unprocessed=True)
        self._progress.unpark_all()
        self._changed()

    def consumed(self, stream_id: int, length: int) -> None:
        """A user has taken `length` bytes of body: more may come."""
        self._unread -= length
        self._codec.send(Credit(stream_id, length))
        if self._read_on is not None:
            self._read_on.set()
            self._read_on = None
        self._flush()

    # ---- out -----------------------------------------------------------------------------------------------------
    def begin(self, head: RequestHead) -> HttpStream:
        """Send the head of a request; its number is filled in. To be called while `usable`.

        Raises LocalProtocolError where the connection takes no more, and OperationFailed(INVALID) where it cannot be
        said on any. What is wrong is not told: it may be a secret.
        """
        try:
            head.stream_id = self._codec.new_stream()
        except LocalProtocolError:
            self.retire()
            raise
        try:
            self._codec.send(head)
        except LocalProtocolError:
            self.rest()
            why = f"{self.upstream.settings.where}: the request has a target or headers that HTTP cannot carry"
            raise fail(FailureCode.INVALID, why) from None
        stream = self._streams[head.stream_id] = HttpStream(self, head.stream_id)
        self._reading.deadline = math.inf
        return stream

    def say(self, *events: Outgoing) -> None:
        """Send events of one exchange, and write them if the kernel takes them. Raises LocalProtocolError."""
        for event in events:
            self._codec.send(event)
        self._flush()

    def _flush(self) -> None:
        if not self._deaf and self._nursery is not None:
            self._outflow.flush(self._nursery, len(self._streams) <= 1)

    def _stop_writing(self, error: Exception) -> None:
        if isinstance(error, TooSlow):
            self._end(f"the server took nothing for {self._settings.write_seconds:g} s")
            return
        # The server takes no more; the reader finds out what it has said, and why.
        self._deaf = self._retired = True
        self._wire.forget()
        self._reading.deadline = trio.current_time() + _LAST_WORDS

    async def wait_sent(self, stream: HttpStream) -> None:
        """Wait until no more than `send_buffer` bytes of the stream are on their way, or nobody looks at them."""
        while not stream.over and self._clogged(stream.stream_id):
            await self._progress.park()

    def _clogged(self, stream_id: int) -> bool:
        return self._deaf or self._codec.unsent(stream_id) + self._wire.pending > self._settings.send_buffer

    # ---- the end -------------------------------------------------------------------------------------------------
    def leave(self, stream: HttpStream) -> None:
        """The user has done with the stream: what is not complete is broken off."""
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

    def late(self, stream: HttpStream, seconds: float) -> OperationFailed:
        """The failure of a stream whose answer did not come. A connection on which nothing at all came since the
        request takes no more requests: the server may have vanished without a word."""
        silent = self._heard <= stream.opened
        if silent or not self.used:
            self.upstream.breaker.lost(f"no answer in {seconds:g} s")
        if silent:
            self.retire()
        return too_late(self.upstream.settings, "answer", seconds)

    def retire(self) -> None:
        """Take no more requests; end when the last one ends."""
        self._retired = True
        self.rest()

    def rest(self) -> None:
        """Where nobody uses the connection: end it, if it takes no more, or soon."""
        if self._streams or self.claims:
            return
        if self._retired or self._codec.closed:
            self._end(self._why)
        else:
            self._reading.deadline = trio.current_time() + self.upstream.settings.idle_seconds

    def _end(self, why: str) -> None:
        self._retired = True
        self._why = why
        self._reading.cancel()

    def _fail_all(self) -> None:
        why = self._why if self._over else "the gateway closed the connection"
        unanswered = [stream for stream in self._streams.values() if not stream.over]
        if unanswered and self._over and not self.used:
            self.upstream.breaker.lost(why)
        failure: Failure = lost(self.upstream.settings, why).failure
        for stream in self._streams.values():
            stream.fail(failure)
