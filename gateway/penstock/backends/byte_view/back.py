"""A back of records that also offers byte operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio

from penstock.backends.byte_view.administration import ByteAdministration, SourceBacks
from penstock.backends.byte_view.appends import ByteViewAppends
from penstock.backends.byte_view.reads import ByteViewReads
from penstock.backends.byte_view.settings import BytesSettings
from penstock.backends.byte_view.streams import ByteStreams, OffsetCounter, ReadWindows, Replaced, unknown_stream
from penstock.core.back import AppendSession, Back, BackWrapper
from penstock.core.clock import Clock, wall_clock
from penstock.core.passthrough import HeaderList, Passthrough, RawSession
from penstock.model.byte_operations import (
    AppendBytes,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Capability,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureStream,
    Locate,
    Operation,
    Provisioned,
    ProvisionResult,
    Trim,
)
from penstock.model.records import StreamPosition, StreamRef
from penstock.model.streams import StreamConfig, StreamInfo
from penstock.wire.http import FramePieces

__all__ = ["BytesOnRecords", "open_bytes_on_records"]

R = TypeVar("R")


class _Passthrough(Passthrough):
    """The passthrough of a stream without byte operations. With the first one its appends end: later ones are
    checked."""

    def __init__(self, inner: Passthrough, streams: ByteStreams, stream: StreamRef) -> None:
        self._inner = inner
        self._streams = streams
        self._stream = stream

    @asynccontextmanager
    async def open(self, method: str, query: str, headers: HeaderList) -> AsyncIterator[RawSession]:
        async with self._inner.open(method, query, headers) as raw:
            yield _Appends(raw, self._streams, self._stream) if method == "POST" else raw


class _Appends:
    """A `RawSession` that appends."""

    def __init__(self, inner: RawSession, streams: ByteStreams, stream: StreamRef) -> None:
        self._inner = inner
        self._streams = streams
        self._stream = stream
        self.finish, self.receive_head, self.receive_pieces = inner.finish, inner.receive_head, inner.receive_pieces
        self.count_batches = inner.count_batches

    async def send(self, pieces: FramePieces) -> None:
        """Send whole frames. Raises HOT_SERVER, which clients retry, once the stream may have had a byte operation."""
        if self._streams.may_be_known(self._stream):
            raise fail(FailureCode.HOT_SERVER, f"stream {self._stream} is now used by clients of bytes, too: try again")
        await self._inner.send(pieces)


class BytesOnRecords(BackWrapper):
    """A back that adds byte operations to a back of records, and forwards operations on records unchanged.

    Made by `open_bytes_on_records`.
    """

    def __init__(
        self,
        records: Back,
        streams: ByteStreams,
        settings: BytesSettings,
        nursery: trio.Nursery,
        sources: SourceBacks | None,
        clock: Clock,
    ) -> None:
        super().__init__(records)
        self._streams = streams
        self._settings = settings
        self._clock = clock
        self._counter = counter = OffsetCounter(records)
        streams.count = counter.catch_up
        self._windows = ReadWindows(records, counter, nursery, settings.max_read_sessions, settings.read_ahead_bytes)
        self._reads = ByteViewReads(records, streams, counter, self._windows)
        self._appends = ByteViewAppends(records, streams, counter, settings, nursery)
        administration = ByteAdministration(self, streams, counter, self._appends, settings, sources)
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: self._appends.append,
            AppendBytes: self._appends.append_bytes,
            ReadBytes: self._reads.read,
            GetByteStreamInfo: self._reads.info,
            GetAttribute: administration.get_attribute,
            UpdateAttribute: administration.update_attribute,
            Seal: lambda operation: administration.seal(operation, clock()),
            Truncate: lambda operation: self._reads.truncate(operation, clock()),
            Merge: administration.merge,
            Locate: self._reads.locate,
            Trim: self._trim,
            CreateStream: self._provision,
            EnsureStream: self._provision,
            DeleteStream: self._delete,
            DeleteBasin: self._delete_basin,
        }

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of the back of records, and BYTES."""
        return self._inner.capabilities | {Capability.BYTES}

    async def perform(self, operation: Operation[R]) -> R:
        handler = self._handlers.get(type(operation))
        if handler is None:
            return await self._inner.perform(operation)
        try:
            result: R = await handler(operation)
        except Replaced as replaced:
            await self._forget(replaced.stream)
            raise unknown_stream(replaced.stream) from None
        return result

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        return self._appends.session(stream, create_config, create_if_missing)

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        """Return the inner back's passthrough, or None for a stream with byte operations, since it may be sealed."""
        inner = None if self._streams.may_be_known(stream) else self._inner.passthrough(protocol, stream)
        return None if inner is None else _Passthrough(inner, self._streams, stream)

    async def run(self) -> None:
        """End idle read sessions and make counts durable, every `idle_seconds`, and give streams up that other gateways
        need, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._streams.give_up_wanted)
            await self._tidy()

    async def _tidy(self) -> None:
        while True:
            await trio.sleep(self._settings.idle_seconds)
            self._windows.close_idle(trio.current_time() - self._settings.idle_seconds)
            try:
                await self._streams.rest()
            except OperationFailed:
                continue  # try again next time: until then the records can be counted again

    async def _trim(self, operation: Trim) -> StreamPosition:
        """Trim a stream; the bytes of the records that go are counted first."""
        stream = await self._streams.known(operation.stream)
        if stream is not None:
            await self._counter.count_durably(stream)
        return await self._inner.perform(operation)

    async def _provision(self, operation: CreateStream | EnsureStream) -> Provisioned[StreamInfo]:
        provisioned = await self._inner.perform(operation)
        if provisioned.result is ProvisionResult.CREATED:
            await self._forget(operation.stream)
        return provisioned

    async def _delete(self, operation: DeleteStream) -> None:
        if (stream := self._streams.peek(operation.stream)) is not None:
            self._windows.close(stream, used=False)
        try:
            await self._inner.perform(operation)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                await self._forget(operation.stream)
            raise
        await self._forget(operation.stream)

    async def _delete_basin(self, operation: DeleteBasin) -> None:
        await self._inner.perform(operation)
        for ref in await self._streams.of_basin(operation.basin):
            await self._forget(ref)

    async def _forget(self, ref: StreamRef) -> None:
        stream = self._streams.peek(ref)
        await self._streams.forget(ref)
        if stream is not None:
            self._windows.close(stream)


@asynccontextmanager
async def open_bytes_on_records(
    records: Back,
    name: str,
    state: Back,
    settings: BytesSettings | None = None,
    sources: SourceBacks | None = None,
    clock: Clock = wall_clock,
) -> AsyncIterator[BytesOnRecords]:
    """Open byte operations over `records` until the block ends.

    `name` is the back's name, part of the names of its tables in `state`, the embedded store: the same name finds the
    same state again. `sources` finds the backs of merges' sources; None if all are at this back. `clock` gives the time
    of day in ms. Raises OperationFailed if `state` cannot be read.
    """
    settings = settings or BytesSettings()
    streams = ByteStreams(records, name, state, settings)
    await streams.load()
    async with trio.open_nursery() as nursery:
        back = BytesOnRecords(records, streams, settings, nursery, sources, clock)
        nursery.start_soon(back.run)
        yield back
        nursery.cancel_scope.cancel()
    await streams.rest()
