"""A back of records over a native server, with a position index for each stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import trio

from penstock.backs.background import background
from penstock.backs.base import Back
from penstock.backs.indexed.ahead import ReadAhead
from penstock.backs.indexed.appending import IndexedAppendSession
from penstock.backs.indexed.control import config_of, refuse_config
from penstock.backs.indexed.following import Follower
from penstock.backs.indexed.history import cursor_to
from penstock.backs.indexed.reading import IndexedReadSession, read_session
from penstock.backs.indexed.recent import RecentRoom
from penstock.backs.indexed.settings import IndexedSettings
from penstock.backs.indexed.settling import Settling
from penstock.backs.indexed.state import StreamState
from penstock.backs.indexed.trimming import trim
from penstock.backs.native import Native
from penstock.clock import Clock, wall_clock
from penstock.positions.cache import RecentlyUsed
from penstock.positions.index import index_name, open_index
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamPosition, StreamRef
from penstock_codecs.operations import (
    Append,
    Appended,
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
from penstock_codecs.streams import StreamConfig, StreamInfo

__all__ = ["IndexedBack", "open_indexed"]

R = TypeVar("R")


def _at_rest(stream: _Stream) -> None:
    """Nobody uses it: its records are not kept any more, only positions."""
    stream.state.recent.clear()


class _Stream(NamedTuple):
    """A stream in use."""

    state: StreamState
    settling: Settling
    follower: Follower


class IndexedBack:
    """See `Back`. Made by `open_indexed`.

    Records are numbered from 0 in the order in which the server has them. Of a stream that was trimmed before the
    gateway first saw it, 0 is the first record that was left. Who deletes a stream behind the gateway's back and
    creates it anew has it counted on, unless the gateway looked in between.

    Times of creation are not known to such servers: they are 0, but for streams just created.
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
        self._ahead = ReadAhead(settings.read_ahead, nursery)
        self._streams: RecentlyUsed[StreamRef, _Stream] = RecentlyUsed(self._open, settings.cached_streams, _at_rest)
        self._config = config_of(Capability.RECORD_IDS in native.capabilities)
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: self._append,
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
        """Those of the server, and what the index adds to them."""
        native = self._native.capabilities
        kept = set() if Capability.RECORD_IDS in native else {Capability.RECORD_IDS, Capability.TIMESTAMPS}
        return native | kept | {Capability.LOCATE, Capability.FOLLOW}

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        handler = self._handlers.get(type(operation))
        if handler is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"back {self._name} cannot {type(operation).__name__}")
        result: R = await handler(operation)
        return result

    async def _open(self, ref: StreamRef) -> _Stream:
        index = await open_index(self._state, index_name(self._name, ref))
        try:
            bounds = await self._native.bounds(ref)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                await index.forget()
            raise
        if bounds.end_offset is not None and bounds.end_offset < index.end.offset:
            await index.forget()  # it is shorter than it was, so it is another one with the same name
        state = StreamState(ref, self._native, index, self._settings, self._clock, self._room)
        if self._settings.exclusive:
            await state.catch_up()  # from then on what is acknowledged is all that comes
        return _Stream(state, Settling(state), Follower(state, self._nursery))

    @asynccontextmanager
    async def _use(self, ref: StreamRef) -> AsyncIterator[_Stream]:
        """A stream. Raises STREAM_NOT_FOUND."""
        async with self._streams.use(ref) as stream:
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
        """See `Back.append_session`."""
        await self.prepare(stream, create_config, create_if_missing)
        async with (
            self._use(stream) as found,
            self._native.append_session(stream) as native,
            background() as nursery,
        ):
            session = IndexedAppendSession(found.state, found.settling, native)
            nursery.start_soon(session.run)
            yield session

    async def prepare(self, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool) -> None:
        """Have the stream created where that is wanted and allowed. Raises STREAM_NOT_FOUND, or NOT_IMPLEMENTED for a
        configuration that streams here do not have."""
        try:
            async with self._use(stream):
                return
        except OperationFailed as error:
            creates = create_if_missing and self._settings.create_streams
            if not creates or error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        refuse_config(stream, create_config, self._config)
        await self._native.create(stream)

    async def _append(self, append: Append) -> Appended:
        async with self.append_session(
            append.stream, append.create_config, create_if_missing=append.create_if_missing
        ) as session:
            await session.send(append)
            session.close()
            (appended,) = await session.receive()
        return appended

    # ---- reads ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _read(self, read: Read) -> AsyncIterator[IndexedReadSession]:
        async with (
            self._use(read.stream) as found,
            read_session(found.state, found.follower, self._ahead, read) as session,
        ):
            yield session

    def read_session(self, read: Read) -> AbstractAsyncContextManager[IndexedReadSession]:
        """See `Back.read_session`."""
        return self._read(read)

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        async with self._use(operation.stream) as found:
            await found.state.catch_up()
            return found.state.tail

    async def _locate(self, operation: Locate) -> Located:
        start = operation.start
        async with self._use(operation.stream) as found:
            state = found.state
            if isinstance(start, FromTailOffset | FromByteOffset):
                await state.catch_up()
            if isinstance(start, FromTailOffset):
                start = FromSeqNum(max(state.end.seq_num - start.offset, 0))
            has_offsets = await state.knows_offsets()
            if isinstance(start, FromByteOffset) and not has_offsets:
                raise fail(FailureCode.NOT_IMPLEMENTED, f"back {self._name} has no byte offsets")
            at = (await cursor_to(state, start)).at
            at_tail = at.seq_num >= state.end.seq_num
            timestamp = state.end.timestamp if at_tail else at.timestamp
            return Located(at.seq_num, timestamp, at.record_id, at_tail, at.offset if has_offsets else None)

    async def _trim(self, operation: Trim) -> StreamPosition:
        async with self._use(operation.stream) as found:
            kept = await trim(found.state, operation.start)
            return StreamPosition(kept.seq_num, kept.timestamp)

    # ---- streams -------------------------------------------------------------------------------------------------

    async def _create(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        refuse_config(operation.stream, operation.config, self._config)
        if not await self._native.create(operation.stream):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"stream {operation.stream} already exists")
        await self._begin_anew(operation.stream)
        return Provisioned(self._info(operation.stream, self._clock()), ProvisionResult.CREATED)

    async def _ensure(self, operation: EnsureStream) -> Provisioned[StreamInfo]:
        refuse_config(operation.stream, operation.config, self._config)
        if await self._native.create(operation.stream):
            await self._begin_anew(operation.stream)
            return Provisioned(self._info(operation.stream, self._clock()), ProvisionResult.CREATED)
        return Provisioned(self._info(operation.stream, 0), ProvisionResult.NOOP)

    def _info(self, ref: StreamRef, created_at: int) -> StreamInfo:
        return StreamInfo(name=ref.stream, created_at=created_at)

    async def _begin_anew(self, ref: StreamRef) -> None:
        """What may be known of a stream with this name is of one that is not there any more."""
        await self.deleted(ref)

    async def _delete(self, operation: DeleteStream) -> None:
        await self._native.delete(operation.stream)
        await self.deleted(operation.stream)

    async def _get_config(self, operation: GetStreamConfig) -> StreamConfig:
        await self._native.bounds(operation.stream)
        return self._config

    async def _list(self, operation: ListStreams) -> Page[StreamInfo]:
        return await self._native.list_streams(operation)

    # ---- what went another way -----------------------------------------------------------------------------------

    async def truncating(self, stream: StreamRef, offset: int) -> None:
        """A stream is about to be truncated in terms of bytes, by the same gateway. Where its records were counted, the
        first one that is kept is found while it can be: inside an event, nobody could tell it later."""
        async with self._use(stream) as found:
            state = found.state
            if offset <= state.end.offset:
                try:
                    kept = (await cursor_to(state, FromByteOffset(offset))).at
                except OperationFailed as error:
                    if error.failure.code is not FailureCode.NOT_REPRESENTABLE:
                        raise  # else its bytes are no records
                else:
                    await state.index.trimmed(kept)

    async def deleted(self, stream: StreamRef) -> None:
        """A stream was deleted, by the same gateway: whatever has its name next is counted from 0."""
        for found in self._streams.values():
            if found.state.ref == stream and not found.state.gone:
                await found.state.forget()
                return
        await (await open_index(self._state, index_name(self._name, stream))).forget()


@asynccontextmanager
async def open_indexed(
    native: Native, name: str, state: Back, settings: IndexedSettings | None = None, clock: Clock = wall_clock
) -> AsyncIterator[IndexedBack]:
    """A back until the block ends. `name`: the back's, under which `state`, the embedded store, keeps the indexes."""
    async with background() as nursery:
        yield IndexedBack(native, name, state, settings or IndexedSettings(), clock, nursery)
