"""GET with live=sse: event streams (protocol, 5.7)."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.core.back import Back, ReadSession
from penstock.core.clock import Clock
from penstock.core.rereading import BatchExtent, read_again
from penstock.model.failures import OperationFailed
from penstock.model.records import RecordBatch, StreamPosition
from penstock.net.draining import Draining
from penstock.net.http.exchange import Exchange, HeaderList
from penstock.net.http.following import FollowingSession, Heartbeats
from penstock.observe.metrics.clients import count_error
from penstock_durable.codec import (
    Control,
    DataEvent,
    DurableEventsServer,
    EventMode,
    ReadRequest,
    Sentinel,
    event_mode,
    is_json,
    spell_offset,
)
from penstock_durable.front.carrying import Taken, take
from penstock_durable.front.catalog import DurableCatalog, KnownStream
from penstock_durable.front.reads import check_kept, cursor_of, read_from, tail_of
from penstock_durable.front.settings import DurableSettings

__all__ = ["LiveReads"]

_LOOK_SECONDS: Final = 15.0
"""Time after which a reader that waits looks whether a client of another protocol has closed its stream."""


class LiveReads:
    """Event streams over one back."""

    def __init__(
        self, back: Back, catalog: DurableCatalog, settings: DurableSettings, draining: Draining, clock: Clock
    ) -> None:
        self._back = back
        self._catalog = catalog
        self._settings = settings
        self._draining = draining
        self._clock = clock
        self._heartbeats = Heartbeats(settings.heartbeat_seconds)

    async def follow(self, stream: KnownStream, request: ReadRequest, exchange: Exchange, common: HeaderList) -> None:
        """ReadAnswer with events, until the stream is closed or the time of an event stream is over: the client then
        reconnects at the offset that it has. `common`: headers of every answer."""
        mode = event_mode(stream.meta.content_type)
        start = request.start if isinstance(request.start, int) else 0
        if request.start is Sentinel.NOW:
            start = await tail_of(self._back, stream)
        async with self._back.read_session(read_from(stream, start, max_bytes=None, wait=None)) as session:
            headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache, no-transform")]
            if mode is EventMode.BASE64:
                headers.append(("stream-sse-data-encoding", "base64"))
            await exchange.start(200, [*headers, ("x-accel-buffering", "no"), *common])
            follower = _Follower(session, stream, request, start, DurableEventsServer(mode), exchange, self)
            try:
                with self._draining.interrupts(self._settings.event_stream_seconds):
                    await follower.run()
            except OperationFailed as error:  # there is no event for it: the client meets it when it reconnects
                count_error(error.failure.code)
            await exchange.finish()

    def following(self, session: ReadSession, follower: _Follower) -> FollowingSession:
        """Return the session with heartbeats, which repeat the follower's position."""
        return FollowingSession(session, follower.exchange, follower.heartbeat, self._heartbeats, self._draining)

    async def look(self, stream: KnownStream) -> KnownStream:
        """Return the stream as it is now."""
        return await self._catalog.find(stream.ref)

    def now(self) -> int:
        """Return the time in Unix ms."""
        return self._clock()


class _Follower:
    """The reader of one event stream."""

    def __init__(
        self,
        session: ReadSession,
        stream: KnownStream,
        request: ReadRequest,
        start: int,
        codec: DurableEventsServer,
        exchange: Exchange,
        streams: LiveReads,
    ) -> None:
        self.exchange = exchange
        self._session = session
        self._stream = stream
        self._request = request
        self._next_seq = start
        self._announced = -1  # the offset that was last called up to date
        self._end: int | None = None  # of a stream that is closed
        self._codec = codec
        self._streams = streams
        self._gate = streams._catalog.gate(stream.ref)
        self._changes = self._gate.changes

    async def run(self) -> None:
        """Send events until the stream is closed, or raise what ends it."""
        following = self._streams.following(self._session, self)
        while not await self._over():
            event: RecordBatch | StreamPosition | None = None
            if self._changes == self._gate.changes:
                with self._gate.watched(_LOOK_SECONDS):
                    event = await following.next()
            if isinstance(event, RecordBatch):
                sending, event = self._send(event), None  # the batch is not to be kept while it waits for the client
                await sending
            elif event is None:
                self._changes = self._gate.changes
                self._stream = await self._streams.look(self._stream)
                if self._session.behind() and isinstance(batch := await self._session.next(), RecordBatch):
                    sending = self._send(batch)
                    del batch
                    await sending
                    continue
                if not self._session.behind():
                    await self._pass_to(self._session.tail().seq_num)
                if not self._stream.closed:
                    await self.exchange.send(self.position())  # a look restarts the time of heartbeats
            else:
                await self._pass_to(event.seq_num)
                if self._announced != self._next_seq and not self._stream.closed:
                    await self.exchange.send(self.position())
        await self.exchange.send(self._codec.send(Control(spell_offset(self._next_seq), up_to_date=True, closed=True)))

    async def _over(self) -> bool:
        """Return whether the stream is closed and everything was sent. The session may not know the tail yet."""
        if self._stream.closed and self._end is None:
            self._end = await tail_of(self._streams._back, self._stream)
        return self._end is not None and self._next_seq >= self._end

    @property
    def _done(self) -> bool:
        """True if everything that the session knows of was sent."""
        return not self._session.behind() and self._next_seq >= self._session.tail().seq_num

    async def _pass_to(self, seq_num: int) -> None:
        """Go on at a sequence number before which nothing is left to send. Raises as `check_kept`."""
        await check_kept(self._streams._back, self._stream, self._request, self._next_seq, seq_num)
        self._next_seq = max(self._next_seq, seq_num)

    async def _send(self, batch: RecordBatch) -> None:
        await self._pass_to(batch.first_seq_num)
        (bodies, self._next_seq, refusal), extent = self._take(batch), BatchExtent.of(batch)
        del batch
        if refusal is None and not self._session.behind():  # no record is left before the tail
            self._next_seq = max(self._next_seq, self._session.tail().seq_num)
        pieces = self._codec.send(DataEvent(tuple(bodies))) if bodies else []
        control: list[bytes] = []
        if self._end is None or self._next_seq < self._end:  # else the last event follows
            control = self.position() if refusal is None and self._done else self._control(up_to_date=False)
        pieces += control
        del bodies
        await self.exchange.send(pieces, partial(self._fetch_again, extent, control))
        if refusal is not None:
            raise refusal

    def _take(self, batch: RecordBatch) -> Taken:
        messages = is_json(self._stream.meta.content_type)
        return take(batch, self._stream.ref, self._streams._settings.loss, messages=messages)

    async def _fetch_again(self, extent: BatchExtent, control: list[bytes]) -> list[bytes]:
        """Return the event of a batch, and the one behind it, again."""
        read = read_from(self._stream, extent.first_seq_num, max_bytes=None, wait=None)
        batches = await read_again(self._streams._back, read, [extent])
        return [
            *(piece for batch in batches for piece in self._codec.send(DataEvent(tuple(self._take(batch).bodies)))),
            *control,
        ]

    def position(self) -> list[bytes]:
        """Return the event that says that the reader is up to date."""
        self._announced = self._next_seq
        return self._control(up_to_date=True)

    def heartbeat(self, _tail: RecordBatch | StreamPosition) -> list[bytes]:
        """Return the event of `position` once more."""
        return self._control(up_to_date=True)

    def _control(self, *, up_to_date: bool) -> list[bytes]:
        return self._codec.send(
            Control(spell_offset(self._next_seq), cursor_of(self._request, self._streams.now()), up_to_date)
        )
