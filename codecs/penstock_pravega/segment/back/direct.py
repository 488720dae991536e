"""Direct view of segment stores: operations on bytes and on tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from penstock.core.back import AppendSession
from penstock.model.byte_operations import (
    AppendBytes,
    BytesRead,
    ByteStreamInfo,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    Merged,
    ReadBytes,
    Seal,
    Truncate,
    UpdateAttribute,
)
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Appended,
    Capability,
    CreateBasin,
    CreateStream,
    DeleteStream,
    ListBasins,
    Operation,
    Provisioned,
    ProvisionResult,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinInfo, StreamConfig, StreamInfo
from penstock_pravega.codec import Dialect, MergeAttributeUpdate, released
from penstock_pravega.segment.back.administration import SegmentAdministration
from penstock_pravega.segment.back.dialects import APPEND_DIALECTS
from penstock_pravega.segment.back.direct_tables import SegmentTables
from penstock_pravega.segment.back.in_flight import raise_or
from penstock_pravega.segment.back.reader import StoreReader
from penstock_pravega.segment.back.sessions import ByteSession, ack_without_numbers, submit_bytes
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.back.writers import StoreWriters

__all__ = ["SegmentDirect"]

R = TypeVar("R")
Handler = Callable[[Any], Awaitable[Any]]


class SegmentDirect:
    """Back for a segment front: all operations on bytes and tables, and sessions of `AppendBytes`.

    A client's own writer and position are passed on to the server. In `Appended` only `offset` has a meaning: a segment
    store knows no sequence numbers, so the positions are all zero; `offset` is None where the store acknowledged the
    append together with later ones, and where it could not be found after a lost connection. `ReadBytes` refuses
    nothing, because the bytes of a segment were appended as bytes. A basin is created with its
    first stream, and listed if a scope belongs to it.
    """

    def __init__(
        self, stores: SegmentStores, writers: StoreWriters, reader: StoreReader, administration: SegmentAdministration
    ) -> None:
        self._stores = stores
        self._writers = writers
        self._reader = reader
        self._administration = administration
        self._draft = stores.settings.dialect is Dialect.DRAFT
        self._handlers: dict[type[Operation[Any]], Handler] = {
            AppendBytes: self._append,
            ReadBytes: self._read,
            GetByteStreamInfo: self._info,
            Seal: self._seal,
            Truncate: self._truncate,
            GetAttribute: self._get_attribute,
            CreateBasin: self._create_basin,
            CreateStream: self._create,
            DeleteStream: self._delete,
            ListBasins: administration.list_basins,
        }
        if not self._draft:
            self._handlers |= {Merge: self._merge, UpdateAttribute: self._update_attribute}
            self._handlers |= SegmentTables(stores).handlers

    @property
    def capabilities(self) -> frozenset[Capability]:
        """BYTES, and TABLES except in the draft."""
        return frozenset({Capability.BYTES} if self._draft else {Capability.BYTES, Capability.TABLES})

    async def perform(self, operation: Operation[R]) -> R:
        """Perform one operation; see `Back.perform`.

        Raises NOT_IMPLEMENTED for operations on records, and for those that the draft lacks.
        """
        handler = self._handlers.get(type(operation))
        if handler is None:
            where = self._stores.settings.upstream.where
            what = "the draft" if self._draft else "the segment protocol"
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: {what} has no {type(operation).__name__}")
        result: R = await handler(operation)
        return result

    def append_session(
        self,
        stream: StreamRef,
        create_config: StreamConfig | None = None,  # noqa: ARG002
        *,
        create_if_missing: bool = True,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Open a session; see `Back.append_session`.

        Entering sends nothing, the first append does; it never creates streams.
        """
        return self._session(stream)

    @asynccontextmanager
    async def _session(self, stream: StreamRef) -> AsyncIterator[AppendSession]:
        session = ByteSession(self._writers, self._stores, self._administration, stream)
        try:
            yield session
        finally:
            session.close()

    # ---- appending and reading ---------------------------------------------------------------------------------------

    async def _append(self, operation: AppendBytes) -> Appended:
        if self._draft and operation.match_offset is not None:
            where = self._stores.settings.upstream.where
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: the draft has no conditional appends")
        if operation.match_offset is not None and operation.match_offset < 0:
            raise fail(FailureCode.INVALID, f"no stream ends at offset {operation.match_offset}")
        try:
            slot = await submit_bytes(self._writers, self._stores, operation)
            await slot.over.wait()
            raise_or(slot)
        except OperationFailed as error:
            raise await self._administration.explained(operation.stream, error) from None
        return ack_without_numbers(slot.end_offset)

    async def _read(self, operation: ReadBytes) -> BytesRead:
        if operation.offset < 0:
            raise fail(FailureCode.INVALID, f"offset {operation.offset} is negative")
        segment = await self._stores.segment_of(operation.stream)
        try:
            segment_bytes = await self._reader.read(segment, operation.offset, operation.max_bytes, operation.wait)
        except OperationFailed as error:
            raise await self._administration.explained(operation.stream, error) from None
        data = segment_bytes.data
        if len(data) > operation.max_bytes:  # a store gives at least 8 bytes
            return BytesRead(operation.offset, data[: operation.max_bytes], False, False, {}, segment)
        return BytesRead(operation.offset, data, segment_bytes.at_tail, segment_bytes.end, {}, segment)

    # ---- attributes --------------------------------------------------------------------------------------------------

    async def _get_attribute(self, operation: GetAttribute) -> int:
        """Return an attribute; for a writer that appends here, once its appends are over.

        The draft has only writers' attributes.
        """
        segment = await self._stores.segment_of(operation.stream)
        name = UUID(bytes=operation.attribute)
        writer = self._writers.known(segment, name)
        if writer is not None:
            await writer.settled()
            writer.forget()
        try:
            if self._draft:
                dialect = APPEND_DIALECTS[Dialect.DRAFT]
                make = lambda request_id, token: dialect.setup(request_id, name, segment, token)  # noqa: E731
                return dialect.level(await self._stores.ask(segment, make, idempotent=True))
            reply = await self._stores.ask(
                segment,
                lambda request_id, token: released.GetSegmentAttribute(request_id, segment, name, token),
                idempotent=True,
            )
        except OperationFailed as error:
            raise await self._administration.explained(operation.stream, error) from None
        return int(reply.value)

    async def _update_attribute(self, operation: UpdateAttribute) -> bool:
        segment = await self._stores.segment_of(operation.stream)
        name = UUID(bytes=operation.attribute)
        try:
            reply = await self._stores.ask(
                segment,
                lambda request_id, token: released.UpdateSegmentAttribute(
                    request_id, segment, name, operation.value, operation.expected, token
                ),
            )
        except OperationFailed as error:
            raise await self._administration.explained(operation.stream, error) from None
        return bool(reply.success)

    # ---- whole streams -----------------------------------------------------------------------------------------------

    async def _info(self, operation: GetByteStreamInfo) -> ByteStreamInfo:
        info = await self._administration.info(operation.stream)
        return replace(info, incarnation=await self._stores.segment_of(operation.stream))

    async def _seal(self, operation: Seal) -> int:
        await self._writers.over_so_far(await self._stores.segment_of(operation.stream))
        return await self._administration.seal(operation.stream)

    async def _truncate(self, operation: Truncate) -> int:
        if operation.offset < 0:
            raise fail(FailureCode.INVALID, f"offset {operation.offset} is negative")
        return await self._administration.truncate(operation.stream, operation.offset)

    async def _create_basin(self, operation: CreateBasin) -> Provisioned[BasinInfo]:
        if operation.config.stream_cipher is not None:
            raise fail(FailureCode.INVALID, "a segment store does not encrypt streams: the basin must have no cipher")
        return Provisioned(BasinInfo(name=operation.basin, created_at=0), ProvisionResult.CREATED)

    async def _create(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        if not await self._administration.create(operation.stream):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"stream {operation.stream} exists already")
        return Provisioned(StreamInfo(name=operation.stream.stream, created_at=0), ProvisionResult.CREATED)

    async def _delete(self, operation: DeleteStream) -> None:
        await self._writers.over_so_far(await self._stores.segment_of(operation.stream))
        await self._administration.delete(operation.stream)

    async def _merge(self, operation: Merge) -> Merged:
        """Merge one source, optionally with updates of attributes, or several as a batch."""
        target = await self._stores.segment_of(operation.target)
        sources = [await self._stores.segment_of(source) for source in operation.sources]
        await self._writers.over_so_far(target, *sources)
        updates = tuple(
            MergeAttributeUpdate(UUID(bytes=update.attribute), update.kind, update.value, update.expected)
            for update in operation.updates
        )
        if len(sources) == 1:
            reply = await self._stores.ask(
                target,
                lambda request_id, token: released.MergeSegments(request_id, target, sources[0], token, updates),
            )
            if isinstance(reply, released.SegmentAttributeUpdated):
                raise fail(FailureCode.TRANSACTION_CONFLICT, f"an attribute of stream {operation.target} is another")
            return Merged((reply.new_target_write_offset,))
        if updates:
            raise fail(FailureCode.NOT_IMPLEMENTED, "updates of attributes go with the merge of one stream only")
        reply = await self._stores.ask(
            target,
            lambda request_id, token: released.MergeSegmentsBatch(request_id, target, tuple(sources), token),
        )
        return Merged(tuple(merged.new_target_write_offset for merged in reply.sources))
