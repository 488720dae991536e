"""Connection set-up, appending and reading (segment fact sheet, 1.3)."""

from __future__ import annotations

from penstock_pravega.codec.layout import Dialect, Direction, SegmentMessage, Tail, message
from penstock_pravega.codec.wire import I32, I64, Bool, Bytes32, Event32, Name, Rest, Text, Uuid, Zeros

__all__ = [
    "AppendBlock",
    "AppendBlockEnd",
    "AppendSetup",
    "ConditionalAppend",
    "ConditionalBlockEnd",
    "ConditionalCheckFailed",
    "DataAppended",
    "Event",
    "Hello",
    "KeepAlive",
    "Padding",
    "PartialEvent",
    "ReadSegment",
    "SegmentRead",
    "SetupAppend",
]


@message(-127, Direction.BOTH, Dialect.RELEASED)
class Hello(SegmentMessage, frozen=True):
    """The first message of both sides: the wire versions that it speaks (1.2)."""

    high_version: I32
    low_version: I32


@message(100, Direction.BOTH, Dialect.RELEASED)
class KeepAlive(SegmentMessage, frozen=True):
    """A message without effect; a server answers with the same."""


@message(-1, Direction.INNER, Dialect.RELEASED)
class Padding(SegmentMessage, frozen=True):
    """Fills the end of an AppendBlock that was announced longer than its content."""

    length: Zeros


@message(-2, Direction.INNER, Dialect.RELEASED)
class PartialEvent(SegmentMessage, frozen=True):
    """The end of an AppendBlock: the beginning of an event that continues in AppendBlockEnd."""

    data: Rest


@message(0, Direction.INNER, Dialect.RELEASED, Dialect.DRAFT)
class Event(SegmentMessage, frozen=True):
    """One event, as encoded in blocks and in the segment. In the draft only inside a block."""

    data: Rest


@message(1, Direction.REQUEST, Dialect.RELEASED)
class SetupAppend(SegmentMessage, frozen=True):
    """Announces a writer that will append to a segment."""

    request_id: I64
    writer_id: Uuid
    segment: Name
    delegation_token: Text = ""


@message(2, Direction.REPLY, Dialect.RELEASED)
class AppendSetup(SegmentMessage, frozen=True):
    """The number of the writer's last stored event; -2**63 for an unknown writer."""

    request_id: I64
    segment: Name
    writer_id: Uuid
    last_event_number: I64


@message(3, Direction.REQUEST, Dialect.RELEASED)
class AppendBlock(SegmentMessage, frozen=True):
    """Bytes to store, and maybe one Padding or PartialEvent; its AppendBlockEnd follows at once (1.4)."""

    writer_id: Uuid
    data: Rest


@message(4, Direction.REQUEST, Dialect.RELEASED)
class AppendBlockEnd(SegmentMessage, frozen=True):
    """The end of an append, or all of it (1.4)."""

    writer_id: Uuid
    size_of_whole_events: I32
    data: Bytes32
    number_of_events: I32
    last_event_number: I64
    request_id: Tail[I64] = -1


@message(5, Direction.REQUEST, Dialect.RELEASED)
class ConditionalAppend(SegmentMessage, frozen=True):
    """One event, to be stored if the segment ends at `expected_offset`."""

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    event: Event32
    request_id: Tail[I64] = -1


@message(89, Direction.REQUEST, Dialect.RELEASED)
class ConditionalBlockEnd(SegmentMessage, frozen=True):
    """Raw bytes, to be stored if the segment ends at `expected_offset`."""

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    data: Bytes32
    request_id: I64


@message(7, Direction.REPLY, Dialect.RELEASED)
class DataAppended(SegmentMessage, frozen=True):
    """The writer's events up to `event_number` are stored."""

    writer_id: Uuid
    event_number: I64
    previous_event_number: Tail[I64] = -1
    request_id: Tail[I64] = -1
    current_segment_write_offset: Tail[I64] = -1


@message(8, Direction.REPLY, Dialect.RELEASED)
class ConditionalCheckFailed(SegmentMessage, frozen=True):
    """The segment did not end at the expected offset; nothing was stored."""

    writer_id: Uuid
    event_number: I64
    request_id: Tail[I64] = -1


@message(9, Direction.REQUEST, Dialect.RELEASED)
class ReadSegment(SegmentMessage, frozen=True):
    """Asks for about `suggested_length` bytes from an offset on."""

    segment: Name
    offset: I64
    suggested_length: I32
    delegation_token: Text = ""
    request_id: Tail[I64] = -1


@message(10, Direction.REPLY, Dialect.RELEASED)
class SegmentRead(SegmentMessage, frozen=True):
    """Bytes of a segment, from exactly the requested offset."""

    segment: Name
    offset: I64
    at_tail: Bool
    end_of_segment: Bool
    data: Bytes32
    request_id: Tail[I64] = -1
