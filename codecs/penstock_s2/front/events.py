"""Reads as server-sent events (S2 fact sheet 3), in S2's dialect or the seeds' (`S2Settings.sse_dialect`)."""

from __future__ import annotations

import time
from copy import copy
from functools import partial

from msgspec.structs import replace

from penstock.core.back import Back
from penstock.core.rereading import read_again
from penstock.model.failures import OperationFailed
from penstock.model.operations import FromSeqNum, Read
from penstock.model.records import U64_MAX, RecordBatch, StreamPosition
from penstock.net.draining import Draining
from penstock.net.http.following import TIME_OVER, FollowingSession, Heartbeats
from penstock.observe.metrics.clients import count_error
from penstock.observe.metrics.meters import PROTOCOL
from penstock_s2.codec.sse import DIALECTS, BatchEvent, Done, ErrorEvent, EventId, EventStreamServer, Ping
from penstock_s2.front.call import S2Call
from penstock_s2.front.parameters import read_of

__all__ = ["EventStreams"]

_MEDIA_TYPE = "text/event-stream"


class EventStreams:
    """Event streams over one back."""

    def __init__(self, back: Back, draining: Draining, heartbeats: Heartbeats) -> None:
        self._back = back
        self._draining = draining
        self._heartbeats = heartbeats

    async def read(self, call: S2Call) -> None:
        """Answer a read with batches as events, pings between them, and `[DONE]` once the bounds are met.

        A stream that reaches its longest time ends without it, and its client reconnects with its last id.
        """
        PROTOCOL.set("sse")
        dialect = DIALECTS[call.settings.sse_dialect]
        read = read_of(call.stream(), call.query(), call.create_config())
        resumed = EventId(0, 0, 0)
        if (value := call.request.header("last-event-id")) is not None:
            resumed = dialect.parse_id(value)
            read = _resume(read, resumed)
        codec = EventStreamServer(dialect, call.data_format(dialect), resumed)
        async with self._back.read_session(read) as session:
            if not await call.start(_MEDIA_TYPE):
                return
            encode = partial(_encoded, codec)
            seconds = call.settings.event_stream_seconds or dialect.max_seconds
            follower = FollowingSession(session, call.exchange, encode, self._heartbeats, self._draining, seconds)
            try:
                await follower.deliver(partial(read_again, self._back, read), lambda: partial(_encoded, copy(codec)))
                await call.exchange.send(codec.send(Done()))
            except OperationFailed as error:
                # Also for a drain: an EventSource reconnects in any case, but S2's TypeScript client takes an answer
                # that ends without an event for the end of its read.
                if error.failure is not TIME_OVER:
                    count_error(error.failure.code)
                if error.failure is not TIME_OVER or not dialect.ends_silently:
                    await call.exchange.send(codec.send(ErrorEvent(error.failure)))
            await call.exchange.finish()


def _encoded(codec: EventStreamServer, event: RecordBatch | StreamPosition) -> list[bytes]:
    if isinstance(event, RecordBatch):
        return codec.send(BatchEvent(event))
    return codec.send(Ping(time.time_ns() // 1_000_000, event))


def _resume(read: Read, last: EventId) -> Read:
    """Return the remainder of a read whose last event had this id (fact sheet 3, `last-event-id`)."""
    return replace(
        read,
        start=FromSeqNum(min(last.seq_num + 1, U64_MAX)),
        count=None if read.count is None else max(0, read.count - last.count),
        max_bytes=None if read.max_bytes is None else max(0, read.max_bytes - last.bytes),
    )
