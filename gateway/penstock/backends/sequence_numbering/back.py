"""A back of records over a native server, with a position index for each stream.

The server has no configuration of streams: `config_of` returns what it does, and `refuse_config` refuses anything else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import trio

from penstock.backends.background import background
from penstock.backends.positions.cache import RecentlyUsed
from penstock.backends.positions.index import PositionIndex, index_name, open_index
from penstock.backends.sequence_numbering.appending import IndexedAppendSession
from penstock.backends.sequence_numbering.assigning import NumberAssigner
from penstock.backends.sequence_numbering.creations import Creations
from penstock.backends.sequence_numbering.following import StreamFollower
from penstock.backends.sequence_numbering.history import cursor_to
from penstock.backends.sequence_numbering.others import Announcements
from penstock.backends.sequence_numbering.prefetch import Prefetcher
from penstock.backends.sequence_numbering.reading import IndexedReadSession, read_session
from penstock.backends.sequence_numbering.recent import RecentRoom
from penstock.backends.sequence_numbering.settings import IndexedSettings
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.backends.sequence_numbering.trimming import trim
from penstock.core.back import Back, append_in_session
from penstock.core.clock import Clock, wall_clock
from penstock.core.native import Bounds, Native
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Capability,
    CheckTail,
    CreateStream,
    DeleteStream,
    EnsureStream,
    FromByteOffset,
    FromSeqNum,
    FromTailOffset,
    GetStreamConfig,
    ListStreams,
    Locate,
    Located,
    Operation,
    Page,
    Provisioned,
    ProvisionResult,
    Read,
    Trim,
)
from penstock.model.records import StreamPosition, StreamRef
from penstock.model.streams import INFINITE, StreamConfig, StreamInfo, TimestampingMode

__all__ = ["IndexedBack", "config_of", "open_indexed", "refuse_config"]

_COMMON: Final = StreamConfig(
    storage_class="express",
    retention=INFINITE,
    timestamping_mode=TimestampingMode.ARRIVAL,
    timestamping_uncapped=False,
    delete_on_empty_seconds=0,
    retention_bytes=0,
)
R = TypeVar("R")


def config_of(stamped_by_server: bool) -> StreamConfig:
    """Return the configuration of all streams of a server.

    They keep records for ever. Timestamps are those of arrival, or of the client if the gateway's index keeps them.
    """
    if stamped_by_server:
        return _COMMON
    return msgspec.structs.replace(_COMMON, timestamping_mode=TimestampingMode.CLIENT_PREFER)


def refuse_config(stream: StreamRef, wanted: StreamConfig | None, actual: StreamConfig) -> None:
    """Raise NOT_IMPLEMENTED, naming the field, if a wanted configuration differs from the actual one."""
    for name in wanted.__struct_fields__ if wanted is not None else ():
        value = getattr(wanted, name)
        if value is not None and value != getattr(actual, name):
            raise fail(
                FailureCode.NOT_IMPLEMENTED,
                f"the server of stream {stream} has no configuration of streams: {name} cannot be changed",
            )


def _at_rest(stream: _Stream) -> None:
    """Drop the recent records of an unused stream; its positions stay."""
    stream.state.recent.clear()


class _Stream(NamedTuple):
    """The parts of a stream in use."""

    state: IndexedStream
    settling: NumberAssigner
    follower: StreamFollower


class _Kept(NamedTuple):
    """The index of a stream, and the version of its creation time."""

    positions: PositionIndex
    created: int | None


class IndexedBack(Back):
    """A back of records over a native server. Made by `open_indexed`.

    Records are numbered from 0 in the order in which the server has them. If a stream was trimmed before the gateway
    first saw it, 0 is the first record that was left. If another client deletes a stream and creates it again, the
    numbers continue from the old ones, unless the gateway noticed in between.

    Such servers have no creation times: these are when the gateway created a stream, or first saw it.
    """

    def __init__(
        self, native: Native, name: str, state: Back, settings: IndexedSettings, clock: Clock, nursery: trio.Nursery
    ) -> None:
        self._native = native
        self._name = name
        self._state = state
        self._settings = settings
        self._clock = clock
        self._nursery = nursery
        self._room = RecentRoom(settings.recent_total_bytes)
        self._ahead = Prefetcher(settings.read_ahead, nursery)
        self._streams: RecentlyUsed[StreamRef, _Stream] = RecentlyUsed(self._open, settings.cached_streams, _at_rest)
        self._creations = Creations(state, name)
        self._others = Announcements(state, name)
        self._config = config_of(Capability.RECORD_IDS in native.capabilities)
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: partial(append_in_session, self),
            CheckTail: self._check_tail,
            Trim: self._trim,
            Locate: self._locate,
            CreateStream: self._create,
            EnsureStream: self._ensure,
            DeleteStream: self._delete,
            GetStreamConfig: self._get_config,
            ListStreams: self._list,
        }

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of the server, and those that the index adds."""
        native = self._native.capabilities
        added = set() if Capability.RECORD_IDS in native else {Capability.RECORD_IDS, Capability.TIMESTAMPS}
        return native | added | {Capability.LOCATE, Capability.FOLLOW, Capability.TRIM}

    async def run(self) -> None:
        """Remove what other gateways no longer need from the state, until cancelled."""
        await self._others.sweep()

    async def perform(self, operation: Operation[R]) -> R:
        handler = self._handlers.get(type(operation))
        if handler is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"back {self._name} cannot {type(operation).__name__}")
        result: R = await handler(operation)
        return result

    async def _open(self, ref: StreamRef) -> _Stream:
        stored = await self._kept(ref)
        end = stored.positions.end
        bounds = await self._bounds(ref, stored)
        index = stored.positions
        if bounds.end_offset is not None and bounds.end_offset < end.offset:
            await self._forget(ref, stored)  # it is shorter than before, so it is another stream of the same name
            index = await open_index(self._state, index_name(self._name, ref))
        state = IndexedStream(ref, self._native, index, self._settings, self._clock, self._others, self._room)
        if self._settings.exclusive:
            await state.catch_up()  # from then on, acknowledged appends are the only new records
        return _Stream(state, NumberAssigner(state), StreamFollower(state, self._nursery))

    async def _bounds(self, ref: StreamRef, stored: _Kept) -> Bounds:
        """Return the server's bounds of a stream. Forgets the stream if the server does not have it."""
        try:
            return await self._native.bounds(ref)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                await self._forget(ref, stored)
            raise

    @asynccontextmanager
    async def _use(self, ref: StreamRef) -> AsyncIterator[_Stream]:
        """Use a stream until the block ends. Raises STREAM_NOT_FOUND."""
        async with self._streams.use(ref) as stream:
            await stream.state.index.refresh()
            if not stream.state.gone:
                yield stream
                return
        self._streams.forget(ref)
        async with self._streams.use(ref) as stream:
            yield stream

    # ---- appends -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[IndexedAppendSession]:
        await self.prepare(stream, create_config, create_if_missing)
        async with (
            self._use(stream) as numbered_stream,
            self._native.append_session(stream) as native,
            background() as nursery,
        ):
            session = IndexedAppendSession(numbered_stream.state, numbered_stream.settling, native)
            nursery.start_soon(session.run)
            yield session

    async def prepare(self, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool) -> None:
        """Create the stream if it is missing and creation is wanted and allowed.

        Raises STREAM_NOT_FOUND, or NOT_IMPLEMENTED for a configuration that streams of this server cannot have.
        """
        try:
            async with self._use(stream):
                return
        except OperationFailed as error:
            creates = create_if_missing and self._settings.create_streams
            if not creates or error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        refuse_config(stream, create_config, self._config)
        if await self._native.create(stream):
            await self._creations.set(stream, self._clock())

    # ---- reads ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _read(self, read: Read) -> AsyncIterator[IndexedReadSession]:
        async with (
            self._use(read.stream) as numbered_stream,
            read_session(numbered_stream.state, numbered_stream.follower, self._ahead, read) as session,
        ):
            yield session

    def read_session(self, read: Read) -> AbstractAsyncContextManager[IndexedReadSession]:
        return self._read(read)

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        async with self._use(operation.stream) as numbered_stream:
            await numbered_stream.state.catch_up()
            return numbered_stream.state.tail

    async def _locate(self, operation: Locate) -> Located:
        start = operation.start
        async with self._use(operation.stream) as numbered_stream:
            state = numbered_stream.state
            has_offsets = self._native.has_byte_offsets
            if isinstance(start, FromByteOffset) and not has_offsets:
                raise fail(FailureCode.NOT_IMPLEMENTED, f"back {self._name} has no byte offsets")
            if isinstance(start, FromTailOffset | FromByteOffset):
                await state.catch_up()
            if isinstance(start, FromTailOffset):
                start = FromSeqNum(max(state.end.seq_num - start.offset, 0))
            at = (await cursor_to(state, start)).at
            at_tail = at.seq_num >= state.end.seq_num
            timestamp = state.end.timestamp if at_tail else at.timestamp
            return Located(at.seq_num, timestamp, at.record_id, at_tail, at.offset if has_offsets else None)

    async def _trim(self, operation: Trim) -> StreamPosition:
        async with self._use(operation.stream) as numbered_stream:
            first_kept = await trim(numbered_stream.state, operation.start)
            return StreamPosition(first_kept.seq_num, first_kept.timestamp)

    # ---- streams -------------------------------------------------------------------------------------------------

    async def _create(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        refuse_config(operation.stream, operation.config, self._config)
        if not await self._make(operation.stream):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"stream {operation.stream} already exists")
        return await self._created(operation.stream)

    async def _ensure(self, operation: EnsureStream) -> Provisioned[StreamInfo]:
        refuse_config(operation.stream, operation.config, self._config)
        if await self._make(operation.stream):
            return await self._created(operation.stream)
        (created_at,) = await self._creations.of([operation.stream], self._clock())
        info = StreamInfo(name=operation.stream.stream, created_at=created_at)
        return Provisioned(info, ProvisionResult.NOOP)

    async def _make(self, ref: StreamRef) -> bool:
        """Create a stream, and forget an earlier one of its name. Returns False if it existed."""
        stored = await self._kept(ref)  # before: then clients of another gateway may append to the new one
        created = await self._native.create(ref)
        if created:
            await self._forget(ref, stored)
        return created

    async def _created(self, ref: StreamRef) -> Provisioned[StreamInfo]:
        now = self._clock()
        await self._creations.set(ref, now)
        return Provisioned(StreamInfo(name=ref.stream, created_at=now), ProvisionResult.CREATED)

    async def _delete(self, operation: DeleteStream) -> None:
        stored = await self._kept(operation.stream)
        try:
            await self._native.delete(operation.stream)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:  # perhaps an earlier try could not forget it
                await self._forget(operation.stream, stored)
            raise
        await self._forget(operation.stream, stored)

    async def _get_config(self, operation: GetStreamConfig) -> StreamConfig:
        await self._bounds(operation.stream, await self._kept(operation.stream))
        return self._config

    async def _list(self, operation: ListStreams) -> Page[StreamInfo]:
        page = await self._native.list_streams(operation)
        streams = [StreamRef(operation.basin, info.name) for info in page.items]
        times = await self._creations.of(streams, self._clock())
        items = [
            msgspec.structs.replace(info, created_at=created_at)
            for info, created_at in zip(page.items, times, strict=True)
        ]
        return Page(items, page.has_more)

    # ---- changes through other operations ------------------------------------------------------------------------

    async def truncating(self, stream: StreamRef, offset: int) -> None:
        """Prepare for truncation of a stream at a byte offset by this gateway.

        Finds the first record that will be kept, if the records up to there are numbered: if the offset is inside an
        event, it could not be found afterwards.
        """
        async with self._use(stream) as numbered_stream:
            state = numbered_stream.state
            if offset <= state.end.offset:
                try:
                    first_kept = (await cursor_to(state, FromByteOffset(offset))).at
                except OperationFailed as error:
                    if error.failure.code is not FailureCode.NOT_REPRESENTABLE:
                        raise  # otherwise the stream's bytes are not records
                else:
                    await state.index.trimmed(first_kept)

    async def incarnation(self, stream: StreamRef) -> str:
        """Return a string that distinguishes a stream from earlier ones of the same name."""
        (created_at,) = await self._creations.of([stream], self._clock())
        return str(created_at)

    async def deleted(self, stream: StreamRef) -> None:
        """Forget a stream that this gateway deleted: the next one of that name is counted from 0."""
        await self._forget(stream, await self._kept(stream))

    async def missing(self, stream: StreamRef) -> None:
        """Forget a stream that the server did not have, unless another gateway has created it meanwhile."""
        try:
            await self._bounds(stream, await self._kept(stream))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise

    async def _kept(self, stream: StreamRef) -> _Kept:
        return _Kept(await open_index(self._state, index_name(self._name, stream)), await self._creations.kept(stream))

    async def _forget(self, stream: StreamRef, stored: _Kept) -> None:
        """Forget a stream that is gone. `stored`: its state from before that was known; newer state is another
        stream's of the same name."""
        await self._creations.forget(stream, stored.created)
        for numbered_stream in self._streams.values():
            state = numbered_stream.state
            if state.ref == stream and not state.gone and not state.index.is_later_than(stored.positions):
                await state.forget()
                return
        await stored.positions.forget()


@asynccontextmanager
async def open_indexed(
    native: Native, name: str, state: Back, settings: IndexedSettings | None = None, clock: Clock = wall_clock
) -> AsyncIterator[IndexedBack]:
    """Open a back until the block ends. `name`: the back's name, under which `state` keeps its indexes."""
    async with background() as nursery:
        back = IndexedBack(native, name, state, settings or IndexedSettings(), clock, nursery)
        nursery.start_soon(back.run)
        yield back
