"""Administration of segments, and of storage (segment fact sheet, 1.3).

The messages that create, seal, truncate, delete and describe segments are accepted on draft connections too (reading
15).
"""

from __future__ import annotations

from penstock_pravega.codec.layout import Dialect, Direction, SegmentMessage, Tail, message
from penstock_pravega.codec.lists import AttributeUpdates, Chunks, MergedSegments, Names
from penstock_pravega.codec.wire import I32, I64, U8, Bool, Name, Text, Uuid

__all__ = [
    "CreateSegment",
    "CreateTransientSegment",
    "DeleteSegment",
    "FlushToStorage",
    "GetSegmentAttribute",
    "GetStreamSegmentInfo",
    "ListStorageChunks",
    "LocateOffset",
    "MergeSegments",
    "MergeSegmentsBatch",
    "OffsetLocated",
    "SealSegment",
    "SegmentAttribute",
    "SegmentAttributeUpdated",
    "SegmentCreated",
    "SegmentDeleted",
    "SegmentPolicyUpdated",
    "SegmentSealed",
    "SegmentTruncated",
    "SegmentsBatchMerged",
    "SegmentsMerged",
    "StorageChunksListed",
    "StorageFlushed",
    "StreamSegmentInfo",
    "TruncateSegment",
    "UpdateSegmentAttribute",
    "UpdateSegmentPolicy",
]


@message(11, Direction.REQUEST, Dialect.RELEASED, Dialect.DRAFT)
class GetStreamSegmentInfo(SegmentMessage, frozen=True):
    """Asks for a segment's StreamSegmentInfo."""

    request_id: I64
    segment: Name
    delegation_token: Text = ""


@message(12, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class StreamSegmentInfo(SegmentMessage, frozen=True):
    """Start and end of a segment, and its state; `last_modified` in ms since 1970."""

    request_id: I64
    segment: Name
    exists: Bool
    is_sealed: Bool
    is_deleted: Bool
    last_modified: I64
    write_offset: I64
    start_offset: Tail[I64] = 0


@message(20, Direction.REQUEST, Dialect.RELEASED, Dialect.DRAFT)
class CreateSegment(SegmentMessage, frozen=True):
    """Creates a segment. `scale_type` 0 none, 1 KB/s, 2 events/s, to which `target_rate` applies."""

    request_id: I64
    segment: Name
    target_rate: I32
    scale_type: U8
    delegation_token: Text = ""
    rollover_size_bytes: Tail[I64] = 0


@message(21, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class SegmentCreated(SegmentMessage, frozen=True):
    """Answers 20, 40 (with the generated name) and 70."""

    request_id: I64
    segment: Name


@message(28, Direction.REQUEST, Dialect.RELEASED, Dialect.DRAFT)
class SealSegment(SegmentMessage, frozen=True):
    """Seals a segment: nothing can be appended after that."""

    request_id: I64
    segment: Name
    delegation_token: Text = ""


@message(29, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class SegmentSealed(SegmentMessage, frozen=True):
    """Answers 28."""

    request_id: I64
    segment: Name


@message(30, Direction.REQUEST, Dialect.RELEASED, Dialect.DRAFT)
class DeleteSegment(SegmentMessage, frozen=True):
    """Deletes a segment and its bytes."""

    request_id: I64
    segment: Name
    delegation_token: Text = ""


@message(31, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class SegmentDeleted(SegmentMessage, frozen=True):
    """Answers 30 and 71."""

    request_id: I64
    segment: Name


@message(32, Direction.REQUEST, Dialect.RELEASED)
class UpdateSegmentPolicy(SegmentMessage, frozen=True):
    """Changes a segment's scaling policy; fields as in CreateSegment."""

    request_id: I64
    segment: Name
    target_rate: I32
    scale_type: U8
    delegation_token: Text = ""


@message(33, Direction.REPLY, Dialect.RELEASED)
class SegmentPolicyUpdated(SegmentMessage, frozen=True):
    """Answers 32."""

    request_id: I64
    segment: Name


@message(34, Direction.REQUEST, Dialect.RELEASED)
class GetSegmentAttribute(SegmentMessage, frozen=True):
    """Asks for an attribute, a number that is kept with a segment."""

    request_id: I64
    segment: Name
    attribute_id: Uuid
    delegation_token: Text = ""


@message(35, Direction.REPLY, Dialect.RELEASED)
class SegmentAttribute(SegmentMessage, frozen=True):
    """The attribute's value; -2**63 if there is none."""

    request_id: I64
    value: I64


@message(36, Direction.REQUEST, Dialect.RELEASED)
class UpdateSegmentAttribute(SegmentMessage, frozen=True):
    """Compares and sets an attribute; -2**63 means that it does not exist."""

    request_id: I64
    segment: Name
    attribute_id: Uuid
    new_value: I64
    expected_value: I64
    delegation_token: Text = ""


@message(37, Direction.REPLY, Dialect.RELEASED)
class SegmentAttributeUpdated(SegmentMessage, frozen=True):
    """Answers 36. `success`: the value was the expected one, and was replaced."""

    request_id: I64
    success: Bool


@message(38, Direction.REQUEST, Dialect.RELEASED, Dialect.DRAFT)
class TruncateSegment(SegmentMessage, frozen=True):
    """Removes the bytes before an offset; other offsets do not change."""

    request_id: I64
    segment: Name
    truncation_offset: I64
    delegation_token: Text = ""


@message(39, Direction.REPLY, Dialect.RELEASED, Dialect.DRAFT)
class SegmentTruncated(SegmentMessage, frozen=True):
    """Answers 38."""

    request_id: I64
    segment: Name


@message(40, Direction.REQUEST, Dialect.RELEASED)
class CreateTransientSegment(SegmentMessage, frozen=True):
    """Creates a segment to be merged into its parent later, for an event that is too large for one message."""

    request_id: I64
    writer_id: Uuid
    parent_segment: Name
    delegation_token: Text = ""


@message(41, Direction.REQUEST, Dialect.RELEASED)
class LocateOffset(SegmentMessage, frozen=True):
    """Asks for the offset of the event at or before one (wire version 17, which is not released)."""

    request_id: I64
    segment: Name
    target_offset: I64
    delegation_token: Text = ""


@message(42, Direction.REPLY, Dialect.RELEASED)
class OffsetLocated(SegmentMessage, frozen=True):
    """Answers 41."""

    request_id: I64
    segment: Name
    offset: I64


@message(58, Direction.REQUEST, Dialect.RELEASED)
class MergeSegments(SegmentMessage, frozen=True):
    """Appends all of a sealed segment to another, and changes attributes of that one with it."""

    request_id: I64
    target: Name
    source: Name
    delegation_token: Text = ""
    attribute_updates: Tail[AttributeUpdates] = ()


@message(59, Direction.REPLY, Dialect.RELEASED)
class SegmentsMerged(SegmentMessage, frozen=True):
    """Answers 58."""

    request_id: I64
    target: Name
    source: Name
    new_target_write_offset: Tail[I64] = -1


@message(90, Direction.REQUEST, Dialect.RELEASED)
class MergeSegmentsBatch(SegmentMessage, frozen=True):
    """Merges several segments in order, as MergeSegments does."""

    request_id: I64
    target: Name
    sources: Names
    delegation_token: Text = ""


@message(91, Direction.REPLY, Dialect.RELEASED)
class SegmentsBatchMerged(SegmentMessage, frozen=True):
    """Answers 90."""

    request_id: I64
    target: Name
    sources: MergedSegments


@message(-3, Direction.REQUEST, Dialect.RELEASED)
class FlushToStorage(SegmentMessage, frozen=True):
    """Flushes a container to storage, on the administrator's port."""

    container_id: I32
    delegation_token: Text
    request_id: I64


@message(-4, Direction.REPLY, Dialect.RELEASED)
class StorageFlushed(SegmentMessage, frozen=True):
    """Answers -3."""

    request_id: I64


@message(-5, Direction.REQUEST, Dialect.RELEASED)
class ListStorageChunks(SegmentMessage, frozen=True):
    """Lists a segment's chunks, on the administrator's port."""

    segment: Name
    delegation_token: Text
    request_id: I64


@message(-6, Direction.REPLY, Dialect.RELEASED)
class StorageChunksListed(SegmentMessage, frozen=True):
    """Answers -5."""

    request_id: I64
    chunks: Chunks
