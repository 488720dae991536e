"""Sends a worker the changes of the streams that it reads, once per stream, however many readers it has."""

from __future__ import annotations

from typing import Final

import trio

from penstock.app.workers.channel import Channel, uncopied
from penstock.app.workers.messages import StreamUpdate
from penstock.store.batches import BatchRow, ByteSpan
from penstock.store.heads import StoredStream
from penstock_codecs.limits import MIB
from penstock_codecs.model import StreamRef

__all__ = ["StreamFeeds"]

MOST_BYTES: Final = 4 * MIB
"""A worker that is further behind than this is sent the head alone, and reads the records from the file."""


class _Feed:
    """A stream that the worker reads; the store keeps it in memory meanwhile."""

    def __init__(self, stream: StoredStream) -> None:
        self.stream = stream
        self.sent = stream.durable
        self.alive = True
        self.scope = trio.CancelScope()
        stream.users += 1


class StreamFeeds:
    """The streams that one worker reads."""

    def __init__(self, channel: Channel, nursery: trio.Nursery) -> None:
        self._channel = channel
        self._nursery = nursery
        self._feeds: dict[int, _Feed] = {}

    def add(self, stream: StoredStream) -> None:
        """Send a stream's state to the worker, and its changes from then on."""
        if stream.id not in self._feeds:
            feed = self._feeds[stream.id] = _Feed(stream)
            self._post(feed, [], begins=True, fresh=True)
            self._nursery.start_soon(self._follow, feed)

    def refresh(self, ref: StreamRef) -> None:
        """Send the changes of all streams of this name, including deleted ones that had it."""
        for feed in self._feeds.values():
            if feed.stream.ref == ref:
                self._catch_up(feed)

    def leave(self, number: int) -> None:
        """Stop sending a stream's changes: the worker has no readers of it any more."""
        feed = self._feeds.pop(number, None)
        if feed is not None:
            feed.stream.users -= 1
            feed.scope.cancel()

    def close(self) -> None:
        """Stop sending the changes of all streams: the worker has ended."""
        for number in list(self._feeds):
            self.leave(number)

    async def _follow(self, feed: _Feed) -> None:
        with feed.scope:
            while True:
                await self._channel.room()
                self._catch_up(feed)
                await feed.stream.followers.park()

    def _catch_up(self, feed: _Feed) -> None:
        """Send the changes since the last message, if there are any."""
        stream, sent = feed.stream, feed.sent
        if stream.durable is sent and stream.durably_alive == feed.alive:
            return
        batches = stream.recent.since(sent.next_seq) if stream.durable.next_seq > sent.next_seq else []
        if batches is None or sum(batch.metered for batch, _ in batches) > MOST_BYTES:
            self._post(feed, [], fresh=True)
            return
        rows = []
        for batch, span in batches:
            assert batch.wire is not None and batch.first_id is not None
            payload = uncopied(batch.wire.data)
            last = batch.next_seq_num - 1
            rows.append((BatchRow(last, batch.count, batch.metered, batch.first_id, span.layout, payload), span))
        self._post(feed, rows)

    def _post(
        self, feed: _Feed, batches: list[tuple[BatchRow, ByteSpan]], *, begins: bool = False, fresh: bool = False
    ) -> None:
        stream = feed.stream
        feed.sent, feed.alive = stream.durable, stream.durably_alive
        self._channel.post(StreamUpdate(stream.id, stream.ref, stream.durable, feed.alive, begins, fresh, batches))
