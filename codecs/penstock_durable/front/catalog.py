"""Properties of streams beside their records: content type, expiry, origin, writers; creation and end.

All of it is in a table of the embedded store (`penstock.tables.struct_table`), under these keys:

| key | value |
|---|---|
| `stream/NAME` | `StreamMeta` |
| `fork/SOURCE NUL FORK` | the fork exists, or is being created |
| `producer/NAME NUL ID` | the epoch of an idempotent producer |

Names say where a stream is, and not what a client calls it: the routes of two clients, or of two listeners, may lead
one name to two streams, or two names to one. They are `BASIN/STREAM` on the settings' `home`, and `BACK:BASIN/STREAM`
on other backs. Older gateways used the client's name of the stream, and `home` may have changed: such an entry counts
if it has the incarnation of the stream.

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
from typing import Final, Literal
from weakref import WeakValueDictionary

import msgspec
import trio

from penstock.core.back import Back
from penstock.core.clock import Clock
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import ByteStreamInfo, GetByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import DeleteStream
from penstock.model.records import StreamRef
from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Conflict, Prefix, StructTable
from penstock_durable.front.settings import DurableSettings

__all__ = ["DurableCatalog", "ForkMark", "Gate", "KnownStream", "ProducerEpoch", "StreamMeta", "asked_name"]

_MISSING: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND})
_EMBEDDED: Final = "embedded"
_MOST_EPOCHS: Final = 10_000
_LATE: Final = 10
"""A stream with a time to live expires late, by up to a tenth of it: its last use is written down only that often."""


class StreamMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The properties of a stream.

    `ttl` in seconds since the last use; `expires_at` and `used_at` in Unix ms. `expires_text`: as the client spelled
    it. `asked`: the stream before routes rename it, if that is not the entry's name. `seq`: the last writer sequence;
    it counts if the tail is beyond `seq_at`, else `seq_before` does: its append was never made. `source`: the name of
    the source's entry. `fork_offset`, `fork_sub_offset`: as the fork was asked for.
    """

    content_type: str
    incarnation: str = ""
    state: Literal["creating", "live", "deleted"] = "live"
    ttl: int | None = None
    expires_at: int | None = None
    expires_text: str | None = None
    asked: str | None = None
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


def _producers_of(name: str) -> Prefix[ProducerEpoch]:
    return Prefix(f"producer/{name}\0", ProducerEpoch)


def asked_name(ref: StreamRef) -> str:
    """Return the name of a stream before routes rename it."""
    return str(CLIENT.get().place(ref))


class KnownStream(msgspec.Struct, frozen=True):
    """A stream that exists: the name of its entry, its properties, the version of their key, and its state."""

    ref: StreamRef
    name: str
    meta: StreamMeta
    version: int
    info: ByteStreamInfo

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
        self._gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()
        self._epochs: OrderedDict[tuple[str, str], int] = OrderedDict()  # those that began last

    def names(self, ref: StreamRef) -> list[str]:
        """Return the name of a stream's entry, and then those under which there may be one for other reasons.

        Raises as `Back.destination` does.
        """
        there = self._back.destination(ref)
        mere, full = str(there.stream), f"{there.back}:{there.stream}"
        if there.back in ("", _EMBEDDED):
            full = mere
        name = mere if there.back == self._settings.home else full
        return list(dict.fromkeys((name, asked_name(ref), mere, full)))

    # ---- order -------------------------------------------------------------------------------------------------------

    def gate(self, ref: StreamRef) -> Gate:
        """Return the gate of a stream, which lasts as long as any request keeps it."""
        name = self.names(ref)[0]
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = Gate()
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
        names = self.names(ref)
        entries = await self._table.get_all([_STREAMS.key(name) for name in names])
        info = await self.info(ref)
        name, entry = names[0], entries[0]
        if entry is None and info is not None:
            for other, stored in zip(names[1:], entries[1:], strict=True):
                if stored is not None and stored.value.incarnation == info.incarnation != "":
                    name, entry = other, stored
        if entry is None:
            if info is None:
                raise _unknown(ref)
            meta = StreamMeta(self._settings.content_type, info.incarnation)
            return KnownStream(ref, name, meta, NOT_EXISTS, info)
        meta = entry.value
        same = info is not None and info.incarnation == meta.incarnation
        if same and meta.state == "live" and info is not None and not meta.expired(self._clock()):
            return KnownStream(ref, name, meta, entry.version, info)
        if meta.state == "deleted" and info is None:
            raise _gone(ref)
        if not locked:  # it may just be created
            async with self.alone(ref):
                return await self.find(ref, locked=True)
        # What an unfinished creation left is its own only if the entry says so, by the incarnation.
        own = same and (meta.state == "live" or (meta.state == "creating" and meta.incarnation != ""))
        await self.clear(ref, name, meta, records=own)
        return await self.find(ref, locked=True)

    async def info(self, ref: StreamRef) -> ByteStreamInfo | None:
        """Return the state of a stream, None for one that does not exist."""
        try:
            return await self._back.perform(GetByteStreamInfo(ref))
        except OperationFailed as error:
            if error.failure.code not in _MISSING:
                raise
            return None

    async def epoch(self, name: str, producer: str) -> int | None:
        """Return the epoch of a producer, None for one that the stream does not know; `name`: `KnownStream.name`."""
        entry = await self._table.get(_producers_of(name).key(producer))
        return None if entry is None else entry.value.epoch

    def newest_epoch(self, name: str, producer: str) -> int | None:
        """Return the epoch of a producer if it began not long ago; never waits."""
        return self._epochs.get((name, producer))

    # ---- changes -----------------------------------------------------------------------------------------------------

    async def put(self, name: str, meta: StreamMeta, version: int) -> int:
        """Set the properties of a stream whose key has this version; return the new one. Raises Conflict."""
        return (await self._table.put(_STREAMS.key(name), meta, version)).version

    async def used(self, stream: KnownStream) -> None:
        """Extend the life of a stream with a time to live: it was read, or appended to."""
        meta, now = stream.meta, self._clock()
        if meta.ttl is not None and (now - meta.used_at) * _LATE >= meta.ttl * 1000:
            with suppress(Conflict):  # another request did
                await self.put(stream.name, msgspec.structs.replace(meta, used_at=now), stream.version)

    async def set_epoch(self, name: str, producer: str, epoch: int) -> None:
        """Set the epoch of a producer, unless it is higher. The caller is in a block of `alone`."""
        key = _producers_of(name).key(producer)
        if await self._table.change(key, lambda old: ProducerEpoch(max(old.epoch, epoch))) is None:
            await self._table.put(key, ProducerEpoch(epoch))
        self._epochs[name, producer] = max(epoch, self._epochs.pop((name, producer), 0))
        if len(self._epochs) > _MOST_EPOCHS:
            self._epochs.popitem(last=False)

    async def add_fork(self, source: KnownStream, fork: str) -> None:
        """Write down a fork, by the name of its entry, before it is created. Raises as `find` does if the source was
        deleted meanwhile."""
        await self._table.add(_forks_of(source.name).key(fork), ForkMark())
        await self.find(source.ref)

    async def delete(self, stream: KnownStream) -> None:
        """Delete a stream. The caller is in a block of `alone`."""
        await self.clear(stream.ref, stream.name, stream.meta, records=True, by_client=True)

    async def clear(
        self, ref: StreamRef, name: str, meta: StreamMeta, *, records: bool, by_client: bool = False
    ) -> None:
        """Remove the entry `name` with a stream's properties, and with `records` the stream. May be repeated after any
        failure.

        `by_client`: a client deletes the stream, so its permissions count; else its time is over, or the stream was
        never finished.
        """
        if records:
            try:
                if by_client:
                    await self._back.perform(DeleteStream(ref))
                else:
                    await self._own.perform(DeleteStream(CLIENT.get().place(ref)))
            except OperationFailed as error:
                if error.failure.code not in _MISSING:
                    raise
            self.gate(ref).changed()
        await self._table.discard_all(_producers_of(name))
        for known in [known for known in self._epochs if known[0] == name]:
            del self._epochs[known]
        if records and meta.state == "live" and await self._has_forks(name):
            deleted = StreamMeta(meta.content_type, state="deleted", source=meta.source)
            await self._replace(name, deleted)
            return
        await self._forget(name, meta.source)

    async def _replace(self, name: str, meta: StreamMeta) -> None:
        key = _STREAMS.key(name)
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
        entries = [
            entry async for entry in self._table.each(_STREAMS) if entry[1].state == "live" and entry[1].expired(now)
        ]
        for name, meta in entries:
            basin, _, stream = (meta.asked or name).partition("/")
            ref = StreamRef(basin, stream)
            with suppress(OperationFailed):
                if name in self.names(ref):  # else the stream is not what this listener calls so
                    await self.find(ref)
