"""Properties of streams beside their records: content type, expiry, origin, writers; creation and end.

All of it is in a table of the embedded store (`penstock.protocols.struct_table`), under these keys:

| key | value |
|---|---|
| `stream/BASIN/STREAM` | `StreamMeta` |
| `fork/BASIN/SOURCE NUL BASIN/FORK` | the fork exists, or is being created |
| `producer/BASIN/STREAM NUL ID` | the epoch of an idempotent producer |

The records are in the stream, its end (closed) is the stream's seal, and the place of each producer is that of a
writer of the stream: these change together with the records, whatever happens to the process.

A stream that another protocol's client created has no key, and the listener's content type. The key of a stream that
was deleted, or replaced, by such a client is stale: `find` notices that by the incarnation, and clears up. So it does
with a creation or deletion that the process did not survive. Every step of a deletion can be repeated. An entry
of a creation has no incarnation before the stream is created. If the process ends just then, the stream is left, empty
and without properties, as nothing tells it from one that another protocol's client created.

A deleted stream that has forks keeps its key, without its records, until the last fork is gone: its URL answers 410,
and cannot be used again (the conformance suite, "Fork - Deletion and Lifecycle"). Forks are copies, so they need the
source for nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec
import trio

from penstock.core.back import Back
from penstock.core.clock import Clock
from penstock.protocols.durable.front.settings import DurableSettings
from penstock.protocols.struct_table import Conflict, Prefix, StructTable
from penstock_codecs.byte_operations import GetSegmentInfo, SegmentInfo
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import DeleteStream
from penstock_codecs.table_operations import NOT_EXISTS

__all__ = ["DurableCatalog", "ForkMark", "Gate", "KnownStream", "ProducerEpoch", "StreamMeta"]

_MISSING: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND})
_MOST_EPOCHS: Final = 10_000
_LATE: Final = 10
"""A stream with a time to live expires late, by up to a tenth of it: its last use is written down only that often."""


class StreamMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The properties of a stream.

    `ttl` in seconds since the last use; `expires_at` and `used_at` in Unix ms. `expires_text`: as the client spelled
    it. `seq`: the last writer sequence; it counts if the tail is beyond `seq_at`, else `seq_before` does: its append
    was never made. `source`, `fork_offset`, `fork_sub_offset`: as the fork was asked for.
    """

    content_type: str
    incarnation: str = ""
    state: Literal["creating", "live", "deleted"] = "live"
    ttl: int | None = None
    expires_at: int | None = None
    expires_text: str | None = None
    used_at: int = 0
    seq: str | None = None
    seq_before: str | None = None
    seq_at: int = 0
    source: str | None = None
    fork_offset: int | None = None
    fork_sub_offset: int = 0

    def expired(self, now: int) -> bool:
        """Return whether the stream's time is over; `now` in Unix ms."""
        if self.expires_at is not None:
            return now >= self.expires_at
        return self.ttl is not None and now >= self.used_at + self.ttl * 1000 * (_LATE + 1) // _LATE


class ForkMark(msgspec.Struct, frozen=True):
    """The value of a fork's key: its presence is all that counts."""


class ProducerEpoch(msgspec.Struct, frozen=True):
    """The epoch of a producer."""

    epoch: int


_STREAMS: Final = Prefix("stream/", StreamMeta)


def _forks_of(source: str) -> Prefix[ForkMark]:
    return Prefix(f"fork/{source}\0", ForkMark)


def _producers_of(ref: StreamRef) -> Prefix[ProducerEpoch]:
    return Prefix(f"producer/{ref}\0", ProducerEpoch)


@dataclass(frozen=True, slots=True)
class KnownStream:
    """A stream that exists: its properties, the version of their key, and its state."""

    ref: StreamRef
    meta: StreamMeta
    version: int
    info: SegmentInfo

    @property
    def closed(self) -> bool:
        """True if nothing will ever be appended to it again."""
        return self.info.sealed


def _gone(ref: StreamRef) -> OperationFailed:
    """Return the failure of a request for a deleted stream that has forks."""
    return fail(
        FailureCode.STREAM_DELETION_PENDING, f"stream {ref} was deleted; its name is free when its forks are gone"
    )


def _unknown(ref: StreamRef) -> OperationFailed:
    return fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist")


class Gate:
    """Order among requests for one stream. `changes`: the number of times that this front closed or deleted it.
    `closing`: the number of requests that are closing it."""

    __slots__ = ("__weakref__", "changes", "closed", "closing", "lock", "readers")

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.closing = 0
        self.closed = trio.lowlevel.ParkingLot()
        self.readers: set[trio.CancelScope] = set()
        self.changes = 0

    @contextmanager
    def watched(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Run the block until the stream is closed or deleted here, or for so many seconds."""
        with trio.move_on_after(seconds) as scope:
            self.readers.add(scope)
            try:
                yield scope
            finally:
                self.readers.discard(scope)

    def changed(self) -> None:
        """Wake the readers that wait: the stream was closed or deleted."""
        self.changes += 1
        for scope in list(self.readers):
            scope.cancel()


class DurableCatalog:
    """The properties of all streams. `back` carries out what clients ask for; `own` has the table, and carries out what
    no client asks for.

    Methods raise OperationFailed as the back does.
    """

    def __init__(self, back: Back, own: Back, settings: DurableSettings, clock: Clock) -> None:
        self._back = back
        self._own = own
        self._table = StructTable(own, "durable")
        self._settings = settings  # which a reload changes
        self._clock = clock
        self._gates: WeakValueDictionary[StreamRef, Gate] = WeakValueDictionary()
        self._epochs: OrderedDict[tuple[StreamRef, str], int] = OrderedDict()  # those that began last

    # ---- order -------------------------------------------------------------------------------------------------------

    def gate(self, ref: StreamRef) -> Gate:
        """Return the gate of a stream, which lasts as long as any request keeps it."""
        gate = self._gates.get(ref)
        if gate is None:
            gate = self._gates[ref] = Gate()
        return gate

    @asynccontextmanager
    async def alone(self, ref: StreamRef) -> AsyncIterator[None]:
        """Run the block while no other such block for the stream runs."""
        gate = self.gate(ref)
        async with gate.lock:
            yield

    @asynccontextmanager
    async def closing(self, ref: StreamRef) -> AsyncIterator[None]:
        """Run the block alone, and let no append begin meanwhile: `settled` waits for it."""
        gate = self.gate(ref)
        gate.closing += 1
        try:
            async with gate.lock:
                yield
        finally:
            gate.closing -= 1
            if not gate.closing:
                gate.closed.unpark_all()

    async def settled(self, ref: StreamRef) -> None:
        """Wait while a block of `closing` runs for the stream. There is no checkpoint if none runs."""
        gate = self.gate(ref)
        while gate.closing:
            await gate.closed.park()

    # ---- looking up --------------------------------------------------------------------------------------------------

    async def find(self, ref: StreamRef, *, locked: bool = False) -> KnownStream:
        """Return a stream. Raises STREAM_NOT_FOUND, and STREAM_DELETION_PENDING for a deleted one that has forks.

        `locked`: the caller is in a block of `alone`.
        """
        entry = await self._table.get(_STREAMS.key(str(ref)))
        info = await self.info(ref)
        if entry is None:
            if info is None:
                raise _unknown(ref)
            return KnownStream(ref, StreamMeta(self._settings.content_type, info.incarnation), NOT_EXISTS, info)
        meta = entry.value
        same = info is not None and info.incarnation == meta.incarnation
        if same and meta.state == "live" and info is not None and not meta.expired(self._clock()):
            return KnownStream(ref, meta, entry.version, info)
        if meta.state == "deleted" and info is None:
            raise _gone(ref)
        if not locked:  # it may just be created
            async with self.alone(ref):
                return await self.find(ref, locked=True)
        # What an unfinished creation left is its own only if the entry says so, by the incarnation.
        own = same and (meta.state == "live" or (meta.state == "creating" and meta.incarnation != ""))
        await self.clear(ref, meta, records=own)
        return await self.find(ref, locked=True)

    async def info(self, ref: StreamRef) -> SegmentInfo | None:
        """Return the state of a stream, None for one that does not exist."""
        try:
            return await self._back.perform(GetSegmentInfo(ref))
        except OperationFailed as error:
            if error.failure.code not in _MISSING:
                raise
            return None

    async def epoch(self, ref: StreamRef, producer: str) -> int | None:
        """Return the epoch of a producer, None for one that the stream does not know."""
        entry = await self._table.get(_producers_of(ref).key(producer))
        return None if entry is None else entry.value.epoch

    def newest_epoch(self, ref: StreamRef, producer: str) -> int | None:
        """Return the epoch of a producer if it began not long ago; never waits."""
        return self._epochs.get((ref, producer))

    # ---- changes -----------------------------------------------------------------------------------------------------

    async def put(self, ref: StreamRef, meta: StreamMeta, version: int) -> int:
        """Set the properties of a stream whose key has this version; return the new one. Raises Conflict."""
        return (await self._table.put(_STREAMS.key(str(ref)), meta, version)).version

    async def used(self, stream: KnownStream) -> None:
        """Extend the life of a stream with a time to live: it was read, or appended to."""
        meta, now = stream.meta, self._clock()
        if meta.ttl is not None and (now - meta.used_at) * _LATE >= meta.ttl * 1000:
            with suppress(Conflict):  # another request did
                await self.put(stream.ref, msgspec.structs.replace(meta, used_at=now), stream.version)

    async def set_epoch(self, ref: StreamRef, producer: str, epoch: int) -> None:
        """Set the epoch of a producer, unless it is higher. The caller is in a block of `alone`."""
        key = _producers_of(ref).key(producer)
        if await self._table.change(key, lambda old: ProducerEpoch(max(old.epoch, epoch))) is None:
            await self._table.put(key, ProducerEpoch(epoch))
        self._epochs[ref, producer] = max(epoch, self._epochs.pop((ref, producer), 0))
        if len(self._epochs) > _MOST_EPOCHS:
            self._epochs.popitem(last=False)

    async def add_fork(self, source: KnownStream, fork: StreamRef) -> None:
        """Write down a fork before it is created. Raises as `find` does if the source was deleted meanwhile."""
        await self._table.add(_forks_of(str(source.ref)).key(str(fork)), ForkMark())
        await self.find(source.ref)

    async def delete(self, stream: KnownStream) -> None:
        """Delete a stream. The caller is in a block of `alone`."""
        await self.clear(stream.ref, stream.meta, records=True, by_client=True)

    async def clear(self, ref: StreamRef, meta: StreamMeta, *, records: bool, by_client: bool = False) -> None:
        """Remove a stream's properties, and with `records` the stream. May be repeated after any failure.

        `by_client`: a client deletes the stream, so its permissions count; else its time is over, or the stream was
        never finished.
        """
        if records:
            try:
                await (self._back if by_client else self._own).perform(DeleteStream(ref))
            except OperationFailed as error:
                if error.failure.code not in _MISSING:
                    raise
            self.gate(ref).changed()
        await self._table.discard_all(_producers_of(ref))
        for known in [known for known in self._epochs if known[0] == ref]:
            del self._epochs[known]
        if records and meta.state == "live" and await self._has_forks(str(ref)):
            deleted = StreamMeta(meta.content_type, state="deleted", source=meta.source)
            await self._replace(ref, deleted)
            return
        await self._forget(str(ref), meta.source)

    async def _replace(self, ref: StreamRef, meta: StreamMeta) -> None:
        key = _STREAMS.key(str(ref))
        if await self._table.change(key, lambda _: meta) is None:
            await self._table.put(key, meta)

    async def _has_forks(self, name: str) -> bool:
        named, _ = await self._table.page(_forks_of(name), count=1)
        return bool(named)

    async def _forget(self, name: str, source: str | None) -> None:
        """Remove the key of a stream, and before it those of deleted sources that now have no forks: as long as the key
        is there, all of this is repeated."""
        names = [name]
        while source is not None:
            await self._table.discard(_forks_of(source).key(names[-1]))
            entry = await self._table.get(_STREAMS.key(source))
            if entry is None or entry.value.state != "deleted" or await self._has_forks(source):
                break
            names.append(source)
            source = entry.value.source
        for one in reversed(names):
            await self._table.discard(_STREAMS.key(one))

    # ---- expiry ------------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Delete the streams that have expired."""
        now = self._clock()
        due = [name async for name, meta in self._table.each(_STREAMS) if meta.state == "live" and meta.expired(now)]
        for name in due:
            basin, _, stream = name.partition("/")
            with suppress(OperationFailed):
                await self.find(StreamRef(basin, stream))
