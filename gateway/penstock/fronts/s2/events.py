"""Reads as server-sent events (S2 fact sheet 3), in S2's spelling or the seeds' (`S2Settings.sse_dialect`)."""

from __future__ import annotations

import time
from dataclasses import replace

from penstock.backs.base import Back
from penstock.fronts.draining import Draining
from penstock.fronts.exchange import Exchange
from penstock.fronts.s2.call import Call
from penstock.fronts.s2.following import Follower
from penstock.fronts.s2.parameters import read_of
from penstock.metrics.clients import count_told
from penstock.metrics.meters import PROTOCOL
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamPosition
from penstock_codecs.operations import FromSeqNum, Read
from penstock_codecs.sse import DIALECTS, BatchEvent, Done, ErrorEvent, EventId, EventStreamServer, Ping

__all__ = ["EventStreams"]

_MEDIA_TYPE = "text/event-stream"


class EventStreams:
    """Event streams over one back."""

    def __init__(self, back: Back, draining: Draining) -> None:
        self._back = back
        self._draining = draining

    async def read(self, call: Call) -> None:
        """Batches as events, pings between them, `[DONE]` when the bounds are met."""
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
            follower = Follower(session, call.exchange.room, call.settings.heartbeat_seconds, self._draining)
            try:
                while await _forward(follower, codec, call.exchange):
                    pass
                await call.exchange.send(codec.send(Done()))
            except OperationFailed as error:
                # Also for a drain: an EventSource reconnects whatever was said last, but S2's TypeScript client takes
                # an answer that ends without a word for the end of what it asked for.
                count_told(error.failure.code)
                await call.exchange.send(codec.send(ErrorEvent(error.failure)))
            await call.exchange.finish()


async def _forward(follower: Follower, codec: EventStreamServer, exchange: Exchange) -> bool:
    """Send what comes next; False at the end. While a reader waits for more it holds nothing of what it had."""
    event = await follower.next()
    if event is None:
        return False
    if isinstance(event, StreamPosition):
        await exchange.send(codec.send(Ping(time.time_ns() // 1_000_000, event)))
    else:
        await exchange.send(codec.send(BatchEvent(event)))
    return True


def _resume(read: Read, last: EventId) -> Read:
    """The rest of a read whose last event had this id (fact sheet 3, `last-event-id`)."""
    return replace(
        read,
        start=FromSeqNum(last.seq_num + 1),
        count=None if read.count is None else max(0, read.count - last.count),
        max_bytes=None if read.max_bytes is None else max(0, read.max_bytes - last.bytes),
    )
