"""A worker's reads: old records from the store's file, new ones from the parent.

For each stream that it reads, a worker keeps a copy of the parent's durable head and newest batches, and the same code
reads from it as in a single process. Every read begins by asking the parent, so that it sees all that was acknowledged
to any client before; during a read the copy lags behind by the time that a message takes between the processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from penstock.app.workers.calls import PendingCalls
from penstock.app.workers.channel import Channel
from penstock.app.workers.messages import Find, Leave, StreamFound, StreamUpdate, Used
from penstock.store.batches import batch_of_rows
from penstock.store.heads import BasinHead, Creation, StoredBasin, StoredStream
from penstock.store.reader import ReaderThreads
from penstock.store.reads import StoreReads
from penstock.store.settings import Clock
from penstock.store.tail_cache import TailCache, TailCaches
from penstock.store.usage import Usage
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.streams import BasinConfig, StreamConfig

__all__ = ["RemoteReads"]

_UNKNOWN = Creation(0, None, "")
IDLE_STREAMS: Final = 1000
"""Most streams without readers that are kept up to date, so that a new read need not start from nothing."""
IDLE_STATES: Final = 16
"""Changes after which a stream without readers is dropped; a client that polls returns before that."""


class RemoteReads(StoreReads):
    """Opens read sessions on copies of the parent's streams."""

    def __init__(
        self,
        channel: Channel,
        calls: PendingCalls,
        reader: ReaderThreads,
        read_ahead_batches: int,
        tail_cache_bytes: int,
        clock: Clock,
    ) -> None:
        super().__init__(reader, read_ahead_batches, Usage(clock))
        self._channel = channel
        self._calls = calls
        self._tail_caches = TailCaches(tail_cache_bytes)
        self._streams: dict[int, StoredStream] = {}
        self._finding: Counter[StreamRef] = Counter()
        self._idle: dict[int, int] = {}  # streams without readers: number of changes since the last one left

    async def find_stream(
        self, ref: StreamRef, create_if_missing: bool, create_config: StreamConfig | None = None
    ) -> StoredStream:
        """See `StoreReads.find_stream`; the copy then has all that was durable before the call."""
        self._finding[ref] += 1
        try:
            found: StreamFound = await self._calls.call(lambda call: Find(call, ref, create_config, create_if_missing))
            stream = self._streams[found.stream]
        except BaseException:
            self._found(ref, None)
            raise
        self._found(ref, stream)
        self._idle.pop(stream.id, None)
        return stream

    def _found(self, ref: StreamRef, stream: StoredStream | None) -> None:
        self._finding[ref] -= 1
        if not self._finding[ref]:
            del self._finding[ref]
            for other in [one for one in self._streams.values() if one.ref == ref and one is not stream]:
                self._leave(other)

    async def refresh(self, stream: StoredStream) -> None:
        """See `StoreReads.refresh`: on return, all that the parent sent before its answer has been applied."""
        try:
            self._leave(await self.find_stream(stream.ref, create_if_missing=False))  # may be a new stream
        except OperationFailed as error:
            if error.failure.code not in (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND):
                raise

    @contextmanager
    def holding(self, stream: StoredStream) -> Iterator[None]:
        with super().holding(stream):
            yield
        self._leave(stream)

    def _leave(self, stream: StoredStream) -> None:
        """Mark a stream as idle if it has no readers; forget it if it is gone, or the oldest if too many are idle."""
        if stream.users or self._finding[stream.ref] or self._streams.get(stream.id) is not stream:
            return
        self._idle[stream.id] = 0
        if not stream.durable.alive:
            self._forget(stream.id)
        elif len(self._idle) > IDLE_STREAMS:
            oldest = (number for number in self._idle if not self._finding[self._streams[number].ref])
            self._forget(next(oldest))  # at worst this stream itself, which is not being looked for

    def _forget(self, number: int) -> None:
        """Drop a stream that has had no readers for long."""
        del self._idle[number], self._streams[number]
        self._channel.post(Leave(number))

    def given_up(self, found: StreamFound) -> None:
        """Mark a stream as idle that was found after its read was cancelled."""
        stream = self._streams.get(found.stream)
        if stream is not None:
            self._leave(stream)

    async def report_usage(self) -> None:
        """Send the parent what was read here, now and then."""
        while True:
            await trio.sleep(self.usage.FLUSH_SECONDS)
            if sums := self.usage.take():
                self._channel.post(Used(sums))

    def update(self, state: StreamUpdate) -> None:
        """Apply the parent's news of a stream."""
        stream = self._streams.get(state.stream)
        if stream is None:
            if not state.begins:
                return  # it was dropped meanwhile
            stream = self._streams[state.stream] = _stream(state)
        if state.fresh:
            stream.recent = TailCache()
        stream.head = stream.durable = state.head._replace(alive=state.alive)
        for row, span in state.batches:
            batch = batch_of_rows([row], state.head.tail)
            self._tail_caches.push(stream.recent, batch, span)
        stream.followers.unpark_all()
        if stream.id in self._idle and not self._finding[state.ref]:
            self._idle[stream.id] += 1
            if self._idle[stream.id] >= IDLE_STATES or not state.alive:
                self._forget(stream.id)


def _stream(state: StreamUpdate) -> StoredStream:
    head = BasinHead(BasinConfig())
    basin = StoredBasin(0, state.ref.basin, _UNKNOWN, head, head)
    return StoredStream(state.stream, basin, state.ref.stream, _UNKNOWN, state.head, state.head)
