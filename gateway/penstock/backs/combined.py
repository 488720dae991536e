"""A server that knows bytes and tables itself, and whose records are numbered beside it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

import trio

from penstock.backs.background import background
from penstock.backs.base import AppendSession, Back, ReadSession
from penstock_codecs import table_operations
from penstock_codecs.byte_operations import (
    AppendBytes,
    GetAttribute,
    GetSegmentInfo,
    Merge,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Appended, Capability, CreateBasin, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["BytesAndTables", "Combined", "NumberedRecords"]

R = TypeVar("R")

_DIRECT: Final[frozenset[type[Operation[Any]]]] = frozenset(
    {AppendBytes, ReadBytes, GetSegmentInfo, Seal, Truncate, Merge, GetAttribute, UpdateAttribute, CreateBasin}
) | {
    table_operations.CreateTable,
    table_operations.DeleteTable,
    table_operations.UpdateTable,
    table_operations.RemoveTableKeys,
    table_operations.GetTableInfo,
    table_operations.ReadTable,
    table_operations.ListTable,
    table_operations.ReadTableDelta,
}

_MOST_REMEMBERED: Final = 10_000
"""Streams to which bytes were about to be appended; about 200 bytes each."""


class NumberedRecords(Back, Protocol):
    """What `Combined` needs of the back of records: `penstock.backs.indexed.IndexedBack`."""

    async def prepare(self, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool) -> None:
        """A session of appends is about to begin: fails as that would."""

    async def truncating(self, stream: StreamRef, offset: int) -> None:
        """A stream is about to be truncated in terms of bytes."""

    async def deleted(self, stream: StreamRef) -> None:
        """A stream is not there any more."""


class BytesAndTables(Protocol):
    """What `Combined` needs of the server's own operations: `penstock.backs.segment.SegmentDirect`."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """BYTES, TABLES."""

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`; of bytes."""


class Combined:
    """See `Back`: operations on bytes and tables go to `direct`, the rest to `records`, which is told of what changes
    the positions of records."""

    def __init__(self, records: NumberedRecords, direct: BytesAndTables) -> None:
        self._records = records
        self._direct = direct
        self._of_bytes: OrderedDict[StreamRef, None] = OrderedDict()  # streams whose writers were asked about lately

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Those of both."""
        return self._records.capabilities | self._direct.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        if type(operation) not in _DIRECT:
            return await self._records.perform(operation)
        if isinstance(operation, Truncate):
            await self._records.truncating(operation.stream, operation.offset)
        result = await self._direct.perform(operation)
        if isinstance(operation, GetAttribute):
            self._expect_bytes(operation.stream)
        if isinstance(operation, Merge):
            for source in operation.sources:
                await self._records.deleted(source)
        return result

    def _expect_bytes(self, stream: StreamRef) -> None:
        self._of_bytes[stream] = None
        self._of_bytes.move_to_end(stream)
        while len(self._of_bytes) > _MOST_REMEMBERED:
            self._of_bytes.popitem(last=False)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self._records.read_session(read)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        """See `Back.append_session`. Whether it is one of records or of bytes, its first append says.

        A client of bytes asks for its writer's position before it appends. Then nothing is asked of the server again:
        meanwhile the client could come back on another connection, and what it sent on the first not be counted yet.
        """
        if create_if_missing or stream not in self._of_bytes:
            await self._records.prepare(stream, create_config, create_if_missing)
        async with background() as nursery:
            yield _Undecided(self._records, self._direct, stream, nursery)


class _Undecided:
    """An append session that is opened where its first append belongs."""

    def __init__(self, records: Back, direct: BytesAndTables, stream: StreamRef, nursery: trio.Nursery) -> None:
        self._records = records
        self._direct = direct
        self._stream = stream
        self._nursery = nursery
        self._decided = False
        self._session: AppendSession | None = None
        self._failure: Failure | None = None
        self._closed = False
        self._opened = trio.Event()  # or failed to, or closed before

    async def send(self, append: Append | AppendBytes) -> None:
        """See `AppendSession.send`."""
        if not self._decided:
            self._decided = True
            back = self._direct if isinstance(append, AppendBytes) else self._records
            self._nursery.start_soon(self._open, back)
        await self._opened.wait()
        if self._session is not None:
            await self._session.send(append)

    async def _open(self, back: Back | BytesAndTables) -> None:
        """In a task of its own: a session is entered and left by the same."""
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
        """See `AppendSession.close`."""
        self._closed = True
        if self._session is not None:
            self._session.close()
        elif not self._decided:
            self._opened.set()

    async def receive(self) -> list[Appended]:
        """See `AppendSession.receive`."""
        await self._opened.wait()
        if self._session is not None:
            if self._closed:
                self._session.close()
            return await self._session.receive()
        if self._failure is not None:
            raise OperationFailed(self._failure)
        await trio.lowlevel.checkpoint()
        return []
