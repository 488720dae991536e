"""Operations on a stream as a sequence of bytes, which is what the segment protocol sees (segment fact sheet, 1.5).

A stream's bytes are its records, each as an Event message: an 8-byte header and the body (`penstock_codecs.byte_layout`
has the exceptions). Byte offsets begin at 0 and never change; truncation moves the first offset that is kept. Offsets
and lengths are in bytes. A writer is 16 bytes of id with a position that only rises; positions are attributes of the
stream, as in Pravega, and survive whatever the records survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock_codecs.features import Feature
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Appended, Operation

__all__ = [
    "NO_ATTRIBUTE",
    "AppendBytes",
    "Attribute",
    "AttributeUpdate",
    "BytesRead",
    "GetAttribute",
    "GetSegmentInfo",
    "Merge",
    "Merged",
    "ReadBytes",
    "Seal",
    "SegmentInfo",
    "Truncate",
    "UpdateAttribute",
    "UpdateType",
    "WriterPosition",
]

NO_ATTRIBUTE = -(1 << 63)
"""The value of an attribute that is not there (segment fact sheet, 1.3: i64 min)."""

Attribute = bytes
"""The 16 bytes of a UUID: an attribute's name, or a writer's."""


@dataclass(frozen=True, slots=True)
class WriterPosition:
    """Who appends, and where it will be afterwards: an event number, or a connection offset in bytes.

    `after`, where given: where it must be before; NO_ATTRIBUTE: not known to the stream.
    """

    writer: Attribute
    position: int
    after: int | None = None


@dataclass(frozen=True, slots=True)
class AppendBytes(Operation[Appended]):
    """Append bytes, at least one, atomically and contiguously. They may also be sent in an `AppendSession`.

    Fails with, in this order: STREAM_NOT_FOUND (streams are never created by it), STREAM_SEALED,
    STALE_WRITER_POSITION unless `writer.position` is above the writer's last one, and that is `writer.after` where
    given, OFFSET_MISMATCH unless
    `match_offset`, where given, is the length of the stream. OFFSET_MISMATCH does not end an `AppendSession`: that
    append alone was not applied; but sessions cannot tell of it, so it is refused (INVALID) to send one with
    `match_offset` there: use `Back.perform`. In the result `offset` is the length of the stream after it.
    """

    stream: StreamRef
    data: bytes
    writer: WriterPosition | None = None
    match_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BytesRead:
    """Part of a stream's bytes, from the offset that was asked for.

    `data` is empty where the wait was over, and at the end of a sealed stream. `at_tail`: there is no more just now.
    `end_of_segment`: there will never be more. `dropped` counts what the layout left out of these bytes.
    """

    offset: int
    data: bytes
    at_tail: bool
    end_of_segment: bool
    dropped: Mapping[Feature, int]


@dataclass(frozen=True, slots=True)
class ReadBytes(Operation[BytesRead]):
    """Read at most `max_bytes` from `offset` on, which may lie inside an event; at the tail wait up to `wait` seconds.

    Waiting ends with the first byte, and when the stream is sealed, truncated beyond `offset` or deleted. An offset
    beyond the tail waits too, except in a sealed stream. Never fewer than all bytes at hand up to `max_bytes`
    without reason: a reader asks again with `offset + len(data)`.

    `refuse`: features of records that are an error rather than left out or enveloped as the layout has it. Bytes
    before such a record are given; at it the read fails with NOT_REPRESENTABLE, naming its sequence number.

    Fails with STREAM_NOT_FOUND, OFFSET_TRUNCATED (details: the first offset that is kept), and INVALID for a negative
    offset or one beyond the end of a sealed stream.
    """

    stream: StreamRef
    offset: int
    max_bytes: int
    wait: float = 0.0
    refuse: frozenset[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A stream as bytes. `last_modified` in ms: of the last append, seal or truncation known, else the creation."""

    start_offset: int
    length: int
    sealed: bool
    last_modified: int


@dataclass(frozen=True, slots=True)
class GetSegmentInfo(Operation[SegmentInfo]):
    """Offsets and state of a stream. Fails with STREAM_NOT_FOUND."""

    stream: StreamRef


@dataclass(frozen=True, slots=True)
class Seal(Operation[int]):
    """Nothing can be appended any more, by any protocol. Result: the final length. Sealing twice is no error."""

    stream: StreamRef


@dataclass(frozen=True, slots=True)
class Truncate(Operation[int]):
    """Remove the bytes before `offset`, which may lie inside an event; result: the first offset that is kept.

    Records that end at or before it are trimmed; one that is cut stays whole for protocols of records. Never
    backwards: a smaller offset than before changes nothing. Works on sealed streams. INVALID beyond the length.
    """

    stream: StreamRef
    offset: int


class UpdateType(IntEnum):
    """How an attribute is changed with a merge (Pravega's AttributeUpdateType)."""

    NONE = 0
    REPLACE = 1
    REPLACE_IF_GREATER = 2
    ACCUMULATE = 3
    REPLACE_IF_EQUALS = 4


@dataclass(frozen=True, slots=True)
class AttributeUpdate:
    """One change: see `UpdateType`. `expected` matters for REPLACE_IF_EQUALS alone; NO_ATTRIBUTE: it is not there."""

    attribute: Attribute
    kind: UpdateType
    value: int
    expected: int = NO_ATTRIBUTE


@dataclass(frozen=True, slots=True)
class Merged:
    """`offsets`: the length of the target after each source."""

    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge(Operation[Merged]):
    """Append all bytes of each source, in order, to `target`, and delete the sources: all of it or nothing.

    A source is sealed by it. What makes up an event in the joined bytes becomes a record, however it was appended
    to the source. Fails with STREAM_NOT_FOUND (target or source), STREAM_SEALED (target), LIMIT_EXCEEDED where the
    sources together are larger than the back's bound on one append, INVALID for a truncated source,
    TRANSACTION_CONFLICT where an update's condition does not hold.
    """

    target: StreamRef
    sources: tuple[StreamRef, ...]
    updates: tuple[AttributeUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class GetAttribute(Operation[int]):
    """An attribute's value, or a writer's position; NO_ATTRIBUTE where there is none. All that was decided before is
    durable when it answers, so a writer that reconnects learns what it need not send again."""

    stream: StreamRef
    attribute: Attribute


@dataclass(frozen=True, slots=True)
class UpdateAttribute(Operation[bool]):
    """Set an attribute if it has the expected value (NO_ATTRIBUTE: if it is not there); whether it was set.

    NO_ATTRIBUTE as `value` removes it.
    """

    stream: StreamRef
    attribute: Attribute
    value: int
    expected: int
