"""Messages of the draft (the seed document), with the readings of the segment fact sheet, section 2.

Strings are modified UTF-8 (reading 14). Administration has the released layouts (reading 15).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock_pravega.codec.layout import Dialect, Direction, SegmentMessage, encode, message
from penstock_pravega.codec.released.append import Event
from penstock_pravega.codec.wire import I32, I64, FlagByte, Flags, Name, PartByte, PartialKind, Rest, Text, Uuid

__all__ = [
    "AppendSetup",
    "BeginAppendBlock",
    "DataAppended",
    "EndAppendBlock",
    "Event",
    "Flags",
    "KeepAlive",
    "NoSuchSegment",
    "Partial",
    "PartialKind",
    "ReadSegment",
    "SegmentIsSealed",
    "SegmentRead",
    "SetupAppend",
    "WrongHost",
    "partials",
]


@message(-2, Direction.BOTH, Dialect.DRAFT)
class Partial(SegmentMessage, frozen=True):
    """A piece of a message, whose own header is in the first pieces (readings 4 and 5)."""

    part: PartByte
    data: Rest


@message(100, Direction.BOTH, Dialect.DRAFT)
class KeepAlive(SegmentMessage, frozen=True):
    """A message without effect, with any data."""

    data: Rest = b""


@message(9, Direction.REQUEST, Dialect.DRAFT)
class ReadSegment(SegmentMessage, frozen=True):
    """Asks for about `suggested_length` bytes from an offset on."""

    segment: Name
    offset: I64
    suggested_length: I32


@message(10, Direction.REPLY, Dialect.DRAFT)
class SegmentRead(SegmentMessage, frozen=True):
    """Bytes of a segment; one or more of these answer a ReadSegment."""

    segment: Name
    offset: I64
    flags: FlagByte
    data: Rest


@message(1, Direction.REQUEST, Dialect.DRAFT)
class SetupAppend(SegmentMessage, frozen=True):
    """Announces a connection id that will append to a segment."""

    connection_id: Uuid
    segment: Name


@message(2, Direction.REPLY, Dialect.DRAFT)
class AppendSetup(SegmentMessage, frozen=True):
    """The connection offset, exclusive, up to which everything is stored; 0 if new (reading 9)."""

    segment: Name
    connection_id: Uuid
    connection_offset_ack_level: I64


@message(3, Direction.REQUEST, Dialect.DRAFT)
class BeginAppendBlock(SegmentMessage, frozen=True):
    """Starts a block; `length` counts the wire bytes from here to EndAppendBlock (reading 6)."""

    connection_id: Uuid
    connection_offset: I64
    length: I32


@message(4, Direction.REQUEST, Dialect.DRAFT)
class EndAppendBlock(SegmentMessage, frozen=True):
    """Ends a block; the offset after it, and its stored bytes (reading 7)."""

    connection_id: Uuid
    connection_offset: I64
    block_length: I32


@message(7, Direction.REPLY, Dialect.DRAFT)
class DataAppended(SegmentMessage, frozen=True):
    """Everything before this connection offset is stored (reading 10)."""

    connection_id: Uuid
    connection_offset_ack_level: I64


@message(50, Direction.REPLY, Dialect.DRAFT)
class WrongHost(SegmentMessage, frozen=True):
    """The segment is served elsewhere (reading 13)."""

    segment: Name
    correct_host: Text


@message(51, Direction.REPLY, Dialect.DRAFT)
class SegmentIsSealed(SegmentMessage, frozen=True):
    """The segment is sealed against appends (reading 13)."""

    segment: Name


@message(53, Direction.REPLY, Dialect.DRAFT)
class NoSuchSegment(SegmentMessage, frozen=True):
    """There is no such segment (reading 13)."""

    segment: Name


def partials(message: SegmentMessage, cuts: Sequence[int]) -> list[Partial]:
    """Return a message as Partials, cut at these offsets of its bytes (header included); at least one cut.

    Raises ValueError without cuts, and LocalProtocolError for a message that cannot be encoded.
    """
    if not cuts:
        raise ValueError("a message in one piece is not wrapped in a Partial")
    data = b"".join(encode(message))
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    parts = [PartialKind.BEGIN, *[PartialKind.MIDDLE] * (len(pieces) - 2), PartialKind.END]
    return [Partial(part, piece) for part, piece in zip(parts, pieces, strict=True)]
