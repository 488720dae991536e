"""The back over the embedded store, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from penstock.core.back import AppendSession, Back, ReadSession
from penstock.model.byte_operations import (
    AppendAs,
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
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Locate,
    Located,
    Operation,
    Page,
    Read,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import StreamPosition, StreamRef
from penstock.model.streams import StreamConfig, StreamInfo
from penstock.model.table_operations import (
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    UpdateTable,
)
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins
from penstock.store.append_sessions import append_session
from penstock.store.catalog import stream_info
from penstock.store.listings import list_basins, list_streams
from penstock.store.positions import find_position
from penstock.store.settings import Clock, StoreSettings, wall_clock
from penstock.store.store import Store, open_store
from penstock.store.table_rows import get_info, list_items, read_delta, read_items

__all__ = ["EmbeddedBack", "EmbeddedSettings", "open_embedded"]

R = TypeVar("R")

EmbeddedSettings = StoreSettings

_CAPABILITIES: Final = frozenset(Capability)


class EmbeddedBack(Back):
    """A back over the embedded store. Made by `open_embedded`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: store.appends.append,
            AppendAs: store.appends.append,
            AppendBytes: store.appends.append,
            ReadBytes: store.byte_reads.read,
            GetByteStreamInfo: store.byte_reads.info,
            Seal: store.catalog.seal,
            Truncate: store.trims.truncate,
            Merge: store.merges.merge,
            GetAttribute: store.attributes.get,
            UpdateAttribute: store.attributes.update,
            CheckTail: self._check_tail,
            Trim: store.trims.trim,
            Locate: self._locate,
            CreateBasin: store.catalog.create_basin,
            EnsureBasin: store.catalog.ensure_basin,
            GetBasinConfig: store.catalog.get_basin_config,
            ReconfigureBasin: store.catalog.reconfigure_basin,
            DeleteBasin: store.catalog.delete_basin,
            ListBasins: partial(list_basins, store.reader),
            CreateStream: store.catalog.create_stream,
            EnsureStream: store.catalog.ensure_stream,
            GetStreamConfig: store.catalog.get_stream_config,
            ReconfigureStream: store.catalog.reconfigure_stream,
            DeleteStream: store.catalog.delete_stream,
            ListStreams: self._list_streams,
            CreateTable: store.tables.create,
            DeleteTable: store.tables.delete,
            UpdateTable: store.tables.update,
            RemoveTableKeys: store.tables.remove,
            GetTableInfo: partial(get_info, store.reader),
            ReadTable: partial(read_items, store.reader),
            ListTable: partial(list_items, store.reader),
            ReadTableDelta: partial(read_delta, store.reader),
            GetUsage: store.usage.sums,
            GetStorage: store.usage.storage,
            ListActiveBasins: store.usage.active_basins,
        }

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    @property
    def trouble(self) -> str | None:
        """The reason that the store cannot serve new clients now; None if it can."""
        return self.store.trouble

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All capabilities."""
        return _CAPABILITIES

    async def perform(self, operation: Operation[R]) -> R:
        handler = self._handlers.get(type(operation))
        if handler is None:
            raise fail(FailureCode.NOT_IMPLEMENTED, f"the embedded store cannot {type(operation).__name__}")
        self._store.usage.performed(operation)
        result: R = await handler(operation)
        return result

    def declare_partitioned(self, basin: str, prefix: str = "") -> None:
        self._store.catalog.declare_partitioned(basin, prefix)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        return append_session(self._store.appends, stream, create_config, create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._store.reads.session(read)

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        stream = await self._store.reads.find_stream(operation.stream, operation.create_if_missing)
        return stream.durable.tail

    async def _list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        if operation.exact and not operation.start_after:
            with suppress(OperationFailed):
                stream = self._store.catalog.find(StreamRef(operation.basin, operation.prefix))
                if stream.durably_alive:
                    return Page([stream_info(stream)], has_more=False)
        return await list_streams(self._store.reader, operation)

    async def _locate(self, operation: Locate) -> Located:
        stream = await self._store.reads.find_stream(operation.stream, create_if_missing=False)
        return await find_position(self._store.reader, stream, operation.start)


@asynccontextmanager
async def open_embedded(settings: EmbeddedSettings, clock: Clock = wall_clock) -> AsyncIterator[EmbeddedBack]:
    """Open the embedded store as a back until the block ends; `clock` gives the time of day in ms.

    Raises CannotStart if the directory or the file cannot be used. All sessions must end before the block does.
    """
    async with open_store(settings, clock) as store:
        yield EmbeddedBack(store)
