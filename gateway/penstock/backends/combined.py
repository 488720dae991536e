"""A back for a server that has bytes and tables of its own, and whose records the gateway numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, cast

import trio

from penstock.backends.background import background
from penstock.backends.sequence_numbering import IndexedBack
from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model import table_operations
from penstock.model.byte_operations import (
    AppendBytes,
    BytesRead,
    ByteStreamInfo,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Append, Appended, Capability, CreateBasin, ListBasins, Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig

__all__ = ["BytesAndTables", "Combined"]

R = TypeVar("R")

_DIRECT: Final[frozenset[type[Operation[Any]]]] = frozenset(
    {
        AppendBytes,
        ReadBytes,
        GetByteStreamInfo,
        Seal,
        Truncate,
        Merge,
        GetAttribute,
        UpdateAttribute,
        CreateBasin,
        ListBasins,
        table_operations.CreateTable,
        table_operations.DeleteTable,
        table_operations.UpdateTable,
        table_operations.RemoveTableKeys,
        table_operations.GetTableInfo,
        table_operations.ReadTable,
        table_operations.ListTable,
        table_operations.ReadTableDelta,
    }
)

_MOST_REMEMBERED: Final = 10_000
"""Most streams remembered whose clients are about to append bytes; about 200 bytes each."""


class BytesAndTables(Protocol):
    """The server's own operations that `Combined` uses."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities BYTES and TABLES."""

    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation, as `Back.perform` does."""

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Open a session of byte appends; see `Back.append_session`."""


class Combined(Back):
    """A back that sends operations on bytes and tables to `direct`, and the rest to `records`.

    `records` is notified of byte operations that change the positions of records.
    """

    def __init__(self, records: IndexedBack, direct: BytesAndTables) -> None:
        self._records = records
        self._direct = direct
        self._of_bytes: OrderedDict[StreamRef, None] = OrderedDict()  # streams with a recent look at an attribute

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of both."""
        return self._records.capabilities | self._direct.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        if type(operation) not in _DIRECT:
            return await self._records.perform(operation)
        if isinstance(operation, Truncate):
            await self._records.truncating(operation.stream, operation.offset)
        try:
            result = await self._direct.perform(operation)
        except OperationFailed as error:
            stream = getattr(operation, "stream", None)
            if error.failure.code is FailureCode.STREAM_NOT_FOUND and stream is not None:
                await self._records.missing(stream)
            raise
        if isinstance(operation, GetAttribute):
            self._expect_bytes(operation.stream)
        if isinstance(result, ByteStreamInfo | BytesRead):
            return cast(R, await self._told_apart(cast(Any, operation).stream, result))
        if isinstance(operation, Merge):
            for source in operation.sources:
                await self._records.deleted(source)
        return result

    async def _told_apart(self, stream: StreamRef, result: ByteStreamInfo | BytesRead) -> ByteStreamInfo | BytesRead:
        """Add the stream's incarnation to a result, so that it differs from earlier streams of the same name.

        Streams of the internal basin are left as they are: clients keep them for themselves, under a new name each
        time, or number them when they delete them.
        """
        if stream.basin == INTERNAL_BASIN:
            return result
        return replace(result, incarnation=f"{await self._records.incarnation(stream)} {result.incarnation}")

    def _expect_bytes(self, stream: StreamRef) -> None:
        self._of_bytes[stream] = None
        self._of_bytes.move_to_end(stream)
        while len(self._of_bytes) > _MOST_REMEMBERED:
            self._of_bytes.popitem(last=False)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._records.read_session(read)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        """Open an append session, of records or of bytes as its first append decides; see `Back.append_session`.

        A byte client asks for its writer's position before it appends. In that case nothing more is asked of the server
        here: in the meantime the client could reconnect, and the bytes of its first connection not be counted yet.
        """
        if create_if_missing or stream not in self._of_bytes:
            await self._records.prepare(stream, create_config, create_if_missing)
        async with background() as nursery:
            yield _Undecided(self._records, self._direct, stream, nursery)


class _Undecided(AppendSession):
    """An append session that is opened by its first append, at the back for that kind of append."""

    def __init__(self, records: Back, direct: BytesAndTables, stream: StreamRef, nursery: trio.Nursery) -> None:
        self._records = records
        self._direct = direct
        self._stream = stream
        self._nursery = nursery
        self._decided = False
        self._session: AppendSession | None = None
        self._failure: Failure | None = None
        self._closed = False
        self._opened = trio.Event()  # opened, failed to open, or closed before that

    async def send(self, append: Append | AppendBytes) -> None:
        if not self._decided:
            self._decided = True
            back = self._direct if isinstance(append, AppendBytes) else self._records
            self._nursery.start_soon(self._open, back)
        await self._opened.wait()
        if self._session is not None:
            await self._session.send(append)

    async def _open(self, back: Back | BytesAndTables) -> None:
        """Open the session, in a task of its own, since one task must enter and leave it."""
        try:
            async with back.append_session(self._stream, create_if_missing=False) as session:
                self._session = session
                self._opened.set()
                await trio.sleep_forever()
        except OperationFailed as error:
            self._failure = error.failure
        finally:
            self._opened.set()

    def close(self) -> None:
        self._closed = True
        if self._session is not None:
            self._session.close()
        elif not self._decided:
            self._opened.set()

    async def receive(self) -> list[Appended]:
        await self._opened.wait()
        if self._session is not None:
            if self._closed:
                self._session.close()
            return await self._session.receive()
        if self._failure is not None:
            raise OperationFailed(self._failure)
        await trio.lowlevel.checkpoint()
        return []
