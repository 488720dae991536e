"""Table segments: keys with versions and values (segment fact sheet, 1.3, Tables)."""

from __future__ import annotations

from penstock_pravega.codec.layout import Dialect, Direction, SegmentMessage, Tail, message
from penstock_pravega.codec.lists import I64s, TableEntries, TableKeys
from penstock_pravega.codec.wire import I32, I64, Bool, Bytes32, Name, Text

__all__ = [
    "CreateTableSegment",
    "DeleteTableSegment",
    "GetTableSegmentInfo",
    "ReadTable",
    "ReadTableEntries",
    "ReadTableEntriesDelta",
    "ReadTableKeys",
    "RemoveTableKeys",
    "TableEntriesDeltaRead",
    "TableEntriesRead",
    "TableEntriesUpdated",
    "TableKeyBadVersion",
    "TableKeyDoesNotExist",
    "TableKeysRead",
    "TableKeysRemoved",
    "TableRead",
    "TableSegmentInfo",
    "TableSegmentNotEmpty",
    "UpdateTableEntries",
]


@message(70, Direction.REQUEST, Dialect.RELEASED)
class CreateTableSegment(SegmentMessage, frozen=True):
    """Creates a table; answered by SegmentCreated or SegmentAlreadyExists. `key_length` 0: keys of any length."""

    request_id: I64
    segment: Name
    delegation_token: Text = ""
    sorted: Tail[Bool] = False
    key_length: Tail[I32] = 0
    rollover_size_bytes: Tail[I64] = 0


@message(71, Direction.REQUEST, Dialect.RELEASED)
class DeleteTableSegment(SegmentMessage, frozen=True):
    """Deletes a table; answered by SegmentDeleted, NoSuchSegment or TableSegmentNotEmpty."""

    request_id: I64
    segment: Name
    must_be_empty: Bool
    delegation_token: Text = ""


@message(68, Direction.REQUEST, Dialect.RELEASED)
class GetTableSegmentInfo(SegmentMessage, frozen=True):
    """Asks for a table's TableSegmentInfo."""

    request_id: I64
    segment: Name
    delegation_token: Text = ""


@message(69, Direction.REPLY, Dialect.RELEASED)
class TableSegmentInfo(SegmentMessage, frozen=True):
    """A table's start offset, bytes, number of entries, and length of keys (0: any)."""

    request_id: I64
    segment: Name
    start_offset: I64
    length: I64
    entry_count: I64
    key_length: I32


@message(74, Direction.REQUEST, Dialect.RELEASED)
class UpdateTableEntries(SegmentMessage, frozen=True):
    """Writes all entries or none, if their keys' versions match. `table_segment_offset` -1: wherever the segment
    ends."""

    request_id: I64
    segment: Name
    delegation_token: Text
    entries: TableEntries
    table_segment_offset: Tail[I64] = -1


@message(75, Direction.REPLY, Dialect.RELEASED)
class TableEntriesUpdated(SegmentMessage, frozen=True):
    """The new versions, in the order of the entries."""

    request_id: I64
    versions: I64s


@message(76, Direction.REQUEST, Dialect.RELEASED)
class RemoveTableKeys(SegmentMessage, frozen=True):
    """Removes all keys or none, if their versions match."""

    request_id: I64
    segment: Name
    delegation_token: Text
    keys: TableKeys
    table_segment_offset: Tail[I64] = -1


@message(77, Direction.REPLY, Dialect.RELEASED)
class TableKeysRemoved(SegmentMessage, frozen=True):
    """Answers 76."""

    request_id: I64
    segment: Name


@message(78, Direction.REQUEST, Dialect.RELEASED)
class ReadTable(SegmentMessage, frozen=True):
    """Asks for the values of keys."""

    request_id: I64
    segment: Name
    delegation_token: Text
    keys: TableKeys


@message(79, Direction.REPLY, Dialect.RELEASED)
class TableRead(SegmentMessage, frozen=True):
    """One entry for each key; a missing key has version -1 and an empty value."""

    request_id: I64
    segment: Name
    entries: TableEntries


@message(80, Direction.REPLY, Dialect.RELEASED)
class TableSegmentNotEmpty(SegmentMessage, frozen=True):
    """A table that was to be deleted only if empty is not empty."""

    request_id: I64
    segment: Name
    server_stack_trace: Text = ""


@message(81, Direction.REPLY, Dialect.RELEASED)
class TableKeyDoesNotExist(SegmentMessage, frozen=True):
    """A version was expected of a missing key; nothing was changed."""

    request_id: I64
    segment: Name
    server_stack_trace: Text = ""


@message(82, Direction.REPLY, Dialect.RELEASED)
class TableKeyBadVersion(SegmentMessage, frozen=True):
    """A key has another version than expected; nothing was changed."""

    request_id: I64
    segment: Name
    server_stack_trace: Text = ""


@message(83, Direction.REQUEST, Dialect.RELEASED)
class ReadTableKeys(SegmentMessage, frozen=True):
    """Lists keys, continuing from a token; empty bounds mean no bounds. `reserved` is empty."""

    request_id: I64
    segment: Name
    delegation_token: Text
    suggested_key_count: I32
    continuation_token: Bytes32
    reserved: Tail[Bytes32] = b""
    from_key: Tail[Bytes32] = b""
    to_key: Tail[Bytes32] = b""


@message(84, Direction.REPLY, Dialect.RELEASED)
class TableKeysRead(SegmentMessage, frozen=True):
    """Answers 83."""

    request_id: I64
    segment: Name
    keys: TableKeys
    continuation_token: Bytes32


@message(85, Direction.REQUEST, Dialect.RELEASED)
class ReadTableEntries(SegmentMessage, frozen=True):
    """Lists entries, as ReadTableKeys lists keys."""

    request_id: I64
    segment: Name
    delegation_token: Text
    suggested_entry_count: I32
    continuation_token: Bytes32
    reserved: Tail[Bytes32] = b""
    from_key: Tail[Bytes32] = b""
    to_key: Tail[Bytes32] = b""


@message(86, Direction.REPLY, Dialect.RELEASED)
class TableEntriesRead(SegmentMessage, frozen=True):
    """Answers 85."""

    request_id: I64
    segment: Name
    entries: TableEntries
    continuation_token: Bytes32


@message(88, Direction.REQUEST, Dialect.RELEASED)
class ReadTableEntriesDelta(SegmentMessage, frozen=True):
    """Asks for entries that were changed at or after a position."""

    request_id: I64
    segment: Name
    delegation_token: Text
    from_position: I64
    suggested_entry_count: I32


@message(87, Direction.REPLY, Dialect.RELEASED)
class TableEntriesDeltaRead(SegmentMessage, frozen=True):
    """Answers 88. `should_clear`: drop what is known; `last_position`: the position to continue from."""

    request_id: I64
    segment: Name
    entries: TableEntries
    should_clear: Bool
    reached_end: Bool
    last_position: I64
