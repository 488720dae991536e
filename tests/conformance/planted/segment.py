"""Planted faults for the suites of the segment protocol, in both dialects: messages of both sides are decoded, edited,
and encoded again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from conformance.planted.faults import Faults
from msgspec.structs import astuple, replace
from support.rewriting_relay import Fault, frames

from penstock.model.limits import MIB
from penstock_pravega.codec import SegmentMessage, TableEntry, draft, encode
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, decode_body
from penstock_pravega.codec.released import (
    AppendBlockEnd,
    AppendSetup,
    ConditionalAppend,
    ConditionalCheckFailed,
    CreateSegment,
    DataAppended,
    Hello,
    KeepAlive,
    NoSuchSegment,
    ReadSegment,
    ReadTableEntries,
    ReadTableKeys,
    SegmentAlreadyExists,
    SegmentAttributeUpdated,
    SegmentCreated,
    SegmentDeleted,
    SegmentIsSealed,
    SegmentPolicyUpdated,
    SegmentRead,
    SegmentsBatchMerged,
    StreamSegmentInfo,
    TableEntriesDeltaRead,
    TableEntriesUpdated,
    TableKeyBadVersion,
    TableRead,
    TableSegmentInfo,
    TableSegmentNotEmpty,
    UpdateTableEntries,
)

__all__ = ["DRAFT", "SEGMENT"]

_NO_MESSAGE: Final = b"\0\0\x7f\0" + bytes(4)
"""A type that no message has: a server ends the connection of a client that sends it."""
_HOLDS_OPEN: Final = Fault(holds_open=True, cut=frames)

M = TypeVar("M", bound=SegmentMessage)
Edit = Callable[[Any], SegmentMessage | None]


def _decoded(kind: type[M], frame: bytes) -> M | None:
    """Return the message in a frame, or None if it is of another kind."""
    if len(frame) < HEADER_BYTES or HEADER.unpack_from(frame)[0] != kind.type_id:
        return None
    return decode_body(kind, memoryview(frame)[HEADER_BYTES:])


def _edited(kind: type[SegmentMessage], edit: Edit, frame: bytes) -> bytes:
    message = _decoded(kind, frame)
    if message is None:
        return frame
    instead = edit(message)
    return b"" if instead is None else b"".join(encode(instead))


def answering(kind: type[SegmentMessage], edit: Edit) -> Fault:
    """Edit the server's messages of one kind; those for which `edit` returns None are not sent."""
    return Fault(reply=partial(_edited, kind, edit), cut=frames)


def asking(kind: type[SegmentMessage], edit: Edit) -> Fault:
    """Edit the client's messages of one kind."""
    return Fault(request=partial(_edited, kind, edit), cut=frames)


def refusing(refused: Callable[[bytes], bool]) -> Fault:
    """Have the server end the connection at some messages of the client."""
    return Fault(request=lambda frame: _NO_MESSAGE if refused(frame) else frame, cut=frames)


def fields(**values: Any) -> Edit:
    """Return an edit that sets fields, to values or what functions make of them."""

    def edit(message: SegmentMessage) -> SegmentMessage:
        made = {name: one(getattr(message, name)) if callable(one) else one for name, one in values.items()}
        return replace(message, **made)

    return edit


def named(kind: type[SegmentMessage]) -> Edit:
    """Return an edit that makes another message of the fields that both have in front."""
    return lambda message: kind(*astuple(message)[: len(kind.fields)])


def damaged(data: bytes) -> bytes:
    """Change the last byte."""
    return data[:-1] + bytes([data[-1] ^ 1]) if data else data


def _damaged_values(entries: tuple[TableEntry, ...]) -> tuple[TableEntry, ...]:
    return tuple(replace(one, value=damaged(one.value)) for one in entries)


def _leaves_out(kind: type[SegmentMessage]) -> Callable[[bytes], bool]:
    """Return a check whether a frame is a message of this kind that leaves out its last field."""

    def is_short(frame: bytes) -> bool:
        message = _decoded(kind, frame)
        return message is not None and len(frame) < len(b"".join(encode(message)))

    return is_short


def _has_a_key_twice(frame: bytes) -> bool:
    """Return whether a frame is an UpdateTableEntries with entries of the same key."""
    message = _decoded(UpdateTableEntries, frame)
    return message is not None and len({entry.key.key for entry in message.entries}) < len(message.entries)


def _is_no_event(frame: bytes) -> bool:
    """Return whether a frame is an AppendBlockEnd without AppendBlock, whose data does not begin like an event."""
    message = _decoded(AppendBlockEnd, frame)
    alone = message is not None and message.size_of_whole_events == len(message.data)
    return alone and any(message.data[:4])


DRAFT: Faults = {
    "violations leave the connection open": (
        _HOLDS_OPEN,
        "messages partial block",
        {
            *("length-of-2-24", "unknown-type", "begin-within-a-partial", "middle-without-a-begin", "unknown-part"),
            *("event-outside-a-block", "block-without-setup", "block-at-another-offset", "hello-after-a-message"),
            *("message-within-a-block", "end-at-another-offset", "block-of-a-stale-connection"),
        },
    ),
    "segments begin at 0": (answering(StreamSegmentInfo, fields(start_offset=0)), "messages", {"released-requests"}),
    "KeepAlive is not answered": (
        answering(draft.KeepAlive, lambda _: None),
        "keep-alive partial",
        {"keep-alive-with-data", "message-in-partials"},
    ),
    "connection ids are forgotten": (
        answering(draft.AppendSetup, fields(connection_offset_ack_level=0)),
        "setup",
        {"setup-after-a-reconnect"},
    ),
    "a new connection id has something stored": (
        answering(draft.AppendSetup, fields(connection_offset_ack_level=5)),
        "setup",
        {"setup-of-a-new-connection-id", "setup-after-a-reconnect"},
    ),
    "events are acknowledged before they are complete": (
        answering(draft.KeepAlive, lambda _: draft.DataAppended(UUID(int=0), 30)),
        "block",
        {"block-that-ends-in-a-partial"},
    ),
    "unknown segments are sealed": (
        answering(draft.NoSuchSegment, named(draft.SegmentIsSealed)),
        "setup read",
        {"setup-for-an-unknown-segment", "read-of-an-unknown-segment"},
    ),
    "sealed segments are unknown": (
        answering(draft.SegmentIsSealed, named(draft.NoSuchSegment)),
        "block",
        {"block-for-a-sealed-segment"},
    ),
    "bytes are damaged": (
        answering(draft.SegmentRead, fields(data=damaged)),
        "setup block read",
        {
            *("setup-after-a-reconnect", "block-of-whole-events", "block-that-ends-in-a-partial"),
            *("block-that-ends-early", "blocks-in-flight", "several-connection-ids", "block-of-a-stale-connection"),
            *("read-from-the-middle", "read-at-the-tail"),
        },
    ),
    "the end of a sealed segment is not told": (
        answering(draft.SegmentRead, fields(flags=lambda flags: replace(flags, at_end=False))),
        "read",
        {"end-of-the-segment"},
    ),
}
SEGMENT: Faults = {
    "violations leave the connection open": (
        _HOLDS_OPEN,
        "1.1 1.2 1.4",
        {
            *("unknown-type", "negative-length", "length-beyond-the-limit", "short-body"),
            *("versions-that-do-not-overlap", "stale-event-number", "writer-without-setup", "message-within-a-block"),
            "end-of-another-writer",
        },
    ),
    "replies lose the request's id": (
        answering(StreamSegmentInfo, fields(request_id=77)),
        "1.1 1.2",
        {"surplus-bytes", "messages-in-pieces", "hello-with-a-request", "request-ids"},
    ),
    "replies about tables lose the request's id": (answering(TableRead, fields(request_id=7)), "1.2", {"request-ids"}),
    "fields of new segments are never left out": (refusing(_leaves_out(CreateSegment)), "1.1", {"fields-left-out"}),
    "fields of appends are never left out": (refusing(_leaves_out(AppendBlockEnd)), "1.1", {"fields-left-out"}),
    "fields of conditional appends are never left out": (
        refusing(_leaves_out(ConditionalAppend)),
        "1.1",
        {"fields-left-out"},
    ),
    "fields of reads are never left out": (refusing(_leaves_out(ReadSegment)), "1.1", {"fields-left-out"}),
    "events are short": (refusing(lambda frame: len(frame) > MIB), "1.1", {"largest-event"}),
    "the versions are those of earlier servers": (
        answering(Hello, fields(high_version=4, low_version=3)),
        "hello",
        {"hello"},
    ),
    "KeepAlive is not answered": (
        answering(KeepAlive, lambda _: None),
        "1.2",
        {"keep-alive"},
    ),
    "the end of a segment is another": (
        answering(StreamSegmentInfo, fields(write_offset=lambda offset: offset + 1)),
        "1.3 1.4 read-at-the-tail",
        {
            *("create-segment", "create-segment-again", "seal-segment", "truncate-segment", "merge-segments"),
            *("merge-several-segments", "bytes-that-are-no-events"),
            *("append", "block-that-is-full", "block-with-padding", "block-with-a-partial-event", "appends-in-flight"),
            *("several-writers", "stale-event-number", "writer-without-setup"),
            *("conditional-append", "conditional-block", "read-at-the-tail"),
        },
    ),
    "segments are created again": (
        answering(SegmentAlreadyExists, named(SegmentCreated)),
        "1.3",
        {"create-segment-again", "create-table-again"},
    ),
    "unknown segments are sealed": (
        answering(NoSuchSegment, named(SegmentIsSealed)),
        "1.3",
        {"unknown-segments", "delete-segment", "merge-segments", "delete-of-a-table-with-entries"},
    ),
    "sealed segments are unknown": (
        answering(SegmentIsSealed, named(NoSuchSegment)),
        "1.3",
        {"seal-segment"},
    ),
    "a policy is that of another segment": (
        answering(SegmentPolicyUpdated, fields(segment="another")),
        "1.3",
        {"update-segment-policy"},
    ),
    "attributes are not compared": (
        answering(SegmentAttributeUpdated, fields(success=True)),
        "1.3",
        {"attributes"},
    ),
    "values of tables are damaged": (
        answering(TableRead, fields(entries=_damaged_values)),
        "1.3",
        {
            *("update-and-read-a-table", "conditional-updates-of-a-table"),
            *("update-of-a-key-twice", "remove-keys-of-a-table", "table-that-ends-elsewhere"),
        },
    ),
    "versions of keys are not compared": (
        answering(TableKeyBadVersion, lambda one: TableEntriesUpdated(one.request_id, ())),
        "1.3",
        {"conditional-updates-of-a-table", "remove-keys-of-a-table"},
    ),
    "listings of keys begin again": (
        asking(ReadTableKeys, fields(continuation_token=b"")),
        "1.3",
        {"keys-of-a-table-by-pages"},
    ),
    "listings of entries begin again": (
        asking(ReadTableEntries, fields(continuation_token=b"")),
        "1.3",
        {"entries-of-a-table-by-pages"},
    ),
    "a key may stand once in an update": (refusing(_has_a_key_twice), "1.3", {"update-of-a-key-twice"}),
    "tables end anywhere": (
        asking(UpdateTableEntries, fields(table_segment_offset=-1)),
        "1.3",
        {"table-that-ends-elsewhere"},
    ),
    "tables are empty": (
        answering(TableSegmentInfo, fields(length=0)),
        "1.3",
        {"information-about-a-table", "table-that-ends-elsewhere"},
    ),
    "one segment of several is merged": (
        answering(SegmentsBatchMerged, fields(sources=lambda sources: sources[:1])),
        "1.3",
        {"merge-several-segments"},
    ),
    "changes of a table are lost": (
        answering(TableEntriesDeltaRead, fields(entries=())),
        "1.3",
        {"changes-of-a-table"},
    ),
    "tables with entries are deleted": (
        answering(TableSegmentNotEmpty, named(SegmentDeleted)),
        "1.3",
        {"delete-of-a-table-with-entries"},
    ),
    "new writers have events": (
        answering(AppendSetup, fields(last_event_number=0)),
        "setup-of-a-new-writer",
        {"setup-of-a-new-writer"},
    ),
    "events are stored only": (refusing(_is_no_event), "1.4", {"bytes-that-are-no-events"}),
    "the event before the last is forgotten": (
        answering(DataAppended, fields(previous_event_number=-1)),
        "1.4",
        {"append", "appends-in-flight", "writer-that-reconnects"},
    ),
    "a condition that fails is ignored": (
        answering(ConditionalCheckFailed, lambda one: DataAppended(one.writer_id, 1, -1, one.request_id, 1)),
        "1.4",
        {"conditional-append", "conditional-block"},
    ),
    "reads lose the request's id": (
        answering(SegmentRead, fields(request_id=7)),
        "1.5",
        {"read-anywhere", "read-at-the-tail"},
    ),
    "reads have as many bytes as there are": (
        asking(ReadSegment, fields(suggested_length=MIB)),
        "1.5",
        {"read-a-little"},
    ),
    "the end of a sealed segment is not told": (
        answering(SegmentRead, fields(end_of_segment=False)),
        "1.5",
        {"seal-ends-a-waiting-read", "end-of-a-sealed-segment"},
    ),
    "a sealed segment ends everywhere": (
        answering(SegmentRead, fields(end_of_segment=True)),
        "end-of-a-sealed-segment",
        {"end-of-a-sealed-segment"},
    ),
    "reads out of range begin within it": (
        asking(ReadSegment, fields(offset=lambda offset: min(max(offset, 0), 9))),
        "1.5",
        {"reads-out-of-range"},
    ),
}
