"""Requests about whole segments: their handlers and replies (segment fact sheet, 1.3).

Permission has been checked with the delegation token (`checkpoint`), and is checked again by the back. A segment that
does not exist is answered by NoSuchSegment, for GetStreamSegmentInfo too: real clients never look at its `exists`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec

from penstock.core.back import Back
from penstock.core.permissions import MANAGE
from penstock.model import byte_operations
from penstock.model.byte_operations import (
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    Seal,
    Truncate,
    UpdateAttribute,
    UpdateType,
)
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CreateBasin, CreateStream, DeleteStream, FromByteOffset, Locate
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE, BasinConfig, Retention, StreamConfig
from penstock.net.limits.work import in_turns
from penstock_pravega.codec import MergeAttributeUpdate, MergedSegment, SegmentMessage, released
from penstock_pravega.segment.front.merges import Merges
from penstock_pravega.segment.front.streams import FrontStreams

__all__ = ["ADMINISTRATION", "RequestContext", "SegmentHandler"]

KEPT: Final = StreamConfig(retention=INFINITE)
"""Configuration of new segments: Pravega keeps everything until it is truncated."""
TRANSIENT_SECONDS: Final = 24 * 3600
"""Age in seconds at which a transient segment that was never merged is deleted."""
_TRANSIENT: Final = StreamConfig(retention=Retention(TRANSIENT_SECONDS), delete_on_empty_seconds=TRANSIENT_SECONDS)


class RequestContext(msgspec.Struct, frozen=True):
    """Objects with which requests of all connections are performed."""

    back: Back
    streams: FrontStreams
    merges: Merges = msgspec.field(default_factory=Merges)

    async def create(self, stream: StreamRef, config: StreamConfig) -> None:
        """Create a stream, and its basin if there is none, which clients without a controller cannot create."""
        try:
            await self.back.perform(CreateStream(stream, config))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            await self._create_basin(stream.basin)
            await self.back.perform(CreateStream(stream, config))
        self.merges.forget(stream)

    async def _create_basin(self, basin: str) -> None:
        try:
            await self.back.perform(CreateBasin(basin, BasinConfig(default_stream_config=KEPT)))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:  # created meanwhile
                raise


SegmentHandler = Callable[[RequestContext, Any], Awaitable[SegmentMessage]]
"""Handler of one kind of request. Raises OperationFailed."""


async def _info(desk: RequestContext, request: released.GetStreamSegmentInfo) -> SegmentMessage:
    _, info = await desk.streams.info(request.segment)
    return released.StreamSegmentInfo(
        request.request_id,
        request.segment,
        exists=True,
        is_sealed=info.sealed,
        is_deleted=False,
        last_modified=info.last_modified,
        write_offset=info.length,
        start_offset=info.start_offset,
    )


async def _create(desk: RequestContext, request: released.CreateSegment) -> SegmentMessage:
    """Create a segment. Its scale policy is ignored: nothing is scaled here."""
    stream = await desk.streams.to_create(request.segment)
    await desk.create(stream, KEPT)
    await desk.streams.created(request.segment, stream)
    return released.SegmentCreated(request.request_id, request.segment)


async def _create_transient(desk: RequestContext, request: released.CreateTransientSegment) -> SegmentMessage:
    """Create a transient segment; it never expires if the back does not support that."""
    name = f"{request.parent_segment}#transient.{uuid4().hex}"
    stream = await desk.streams.to_create(name)
    try:
        await desk.create(stream, _TRANSIENT)
    except OperationFailed as error:
        if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
            raise
        await desk.create(stream, KEPT)
    return released.SegmentCreated(request.request_id, name)


async def _seal(desk: RequestContext, request: released.SealSegment) -> SegmentMessage:
    await desk.back.perform(Seal(await desk.streams.find(request.segment)))
    return released.SegmentSealed(request.request_id, request.segment)


async def _delete(desk: RequestContext, request: released.DeleteSegment) -> SegmentMessage:
    await desk.back.perform(DeleteStream(await desk.streams.find(request.segment)))
    return released.SegmentDeleted(request.request_id, request.segment)


async def _truncate(desk: RequestContext, request: released.TruncateSegment) -> SegmentMessage:
    """Truncate a segment.

    Beyond its end the reply is SegmentIsTruncated, as from a real server: after an ErrorMessage Pravega's Java client
    would retry for two minutes.
    """
    stream, offset = await desk.streams.find(request.segment), request.truncation_offset
    try:
        await desk.back.perform(Truncate(stream, offset))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.INVALID or offset < 0:
            raise
        start = (await desk.back.perform(GetByteStreamInfo(stream))).start_offset
        raise fail(FailureCode.OFFSET_TRUNCATED, error.failure.message, offset=start) from None
    return released.SegmentTruncated(request.request_id, request.segment)


async def _update_policy(desk: RequestContext, request: released.UpdateSegmentPolicy) -> SegmentMessage:
    """Do nothing (see `_create`), but check that the segment exists and that the client may manage it."""
    stream, _ = await desk.streams.info(request.segment)
    desk.back.require(stream, MANAGE)
    return released.SegmentPolicyUpdated(request.request_id, request.segment)


async def _attribute(desk: RequestContext, request: released.GetSegmentAttribute) -> SegmentMessage:
    stream = await desk.streams.find(request.segment)
    value = await desk.back.perform(GetAttribute(stream, request.attribute_id.bytes))
    return released.SegmentAttribute(request.request_id, value)


async def _update_attribute(desk: RequestContext, request: released.UpdateSegmentAttribute) -> SegmentMessage:
    stream, attribute = await desk.streams.find(request.segment), request.attribute_id.bytes
    update = UpdateAttribute(stream, attribute, request.new_value, request.expected_value)
    return released.SegmentAttributeUpdated(request.request_id, await desk.back.perform(update))


async def _locate(desk: RequestContext, request: released.LocateOffset) -> SegmentMessage:
    stream = await desk.streams.find(request.segment)
    located = await desk.back.perform(Locate(stream, FromByteOffset(request.target_offset)))
    if located.offset is None:
        raise fail(FailureCode.NOT_IMPLEMENTED, "LocateOffset")
    return released.OffsetLocated(request.request_id, request.segment, located.offset)


async def _merge(desk: RequestContext, request: released.MergeSegments) -> SegmentMessage:
    merge = Merge(
        await desk.streams.find(request.target),
        ((await desk.streams.place(request.source)).stream,),
        tuple(map(_update_of, request.attribute_updates)),
    )
    (offset,) = await desk.merges.merge(desk.back, merge)
    return released.SegmentsMerged(request.request_id, request.target, request.source, offset)


def _update_of(update: MergeAttributeUpdate) -> byte_operations.AttributeUpdate:
    try:
        kind = UpdateType(update.update_type)
    except ValueError:
        raise fail(FailureCode.INVALID, f"{update.update_type} is not a type of attribute update") from None
    return byte_operations.AttributeUpdate(update.attribute.bytes, kind, update.new_value, update.old_value)


async def _merge_batch(desk: RequestContext, request: released.MergeSegmentsBatch) -> SegmentMessage:
    if not request.sources:
        raise fail(FailureCode.INVALID, "a batch of no segments")
    target = await desk.streams.find(request.target)
    sources = tuple([(await desk.streams.place(source)).stream async for source in in_turns(request.sources)])
    offsets = await desk.merges.merge(desk.back, Merge(target, sources))
    merged = tuple(map(MergedSegment, request.sources, offsets))
    return released.SegmentsBatchMerged(request.request_id, request.target, merged)


async def _unsupported(_: RequestContext, request: SegmentMessage) -> SegmentMessage:
    """Refuse a request that belongs on the administrator's port of a real server."""
    raise fail(FailureCode.NOT_IMPLEMENTED, type(request).__name__)


ADMINISTRATION: Final[Mapping[type[SegmentMessage], SegmentHandler]] = {
    released.GetStreamSegmentInfo: _info,
    released.CreateSegment: _create,
    released.CreateTransientSegment: _create_transient,
    released.SealSegment: _seal,
    released.DeleteSegment: _delete,
    released.TruncateSegment: _truncate,
    released.UpdateSegmentPolicy: _update_policy,
    released.GetSegmentAttribute: _attribute,
    released.UpdateSegmentAttribute: _update_attribute,
    released.LocateOffset: _locate,
    released.MergeSegments: _merge,
    released.MergeSegmentsBatch: _merge_batch,
    released.FlushToStorage: _unsupported,
    released.ListStorageChunks: _unsupported,
}
