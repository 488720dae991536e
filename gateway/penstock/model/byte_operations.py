"""Operations on a stream as a sequence of bytes (segment fact sheet, 1.5).

A stream's bytes are its records, each as an Event message: an 8-byte header and the body (`penstock.model.byte_layout`
has the exceptions). Byte offsets begin at 0 and never change; truncation moves the first offset that is kept. Offsets
and lengths are in bytes. A writer is a 16-byte id with a position that only rises; positions are attributes of the
stream, and survive whatever the records survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from msgspec import Struct

from penstock.model.features import Feature
from penstock.model.operations import Append, Appended, Operation
from penstock.model.records import StreamRef

__all__ = [
    "NO_ATTRIBUTE",
    "AppendAs",
    "AppendBytes",
    "Attribute",
    "AttributeUpdate",
    "ByteStreamInfo",
    "BytesRead",
    "GetAttribute",
    "GetByteStreamInfo",
    "Merge",
    "Merged",
    "ReadBytes",
    "Seal",
    "Truncate",
    "UpdateAttribute",
    "UpdateType",
    "WriterPosition",
]

NO_ATTRIBUTE = -(1 << 63)
"""The value of a missing attribute (segment fact sheet, 1.3: i64 min)."""

Attribute = bytes
"""A 16-byte UUID that names an attribute or a writer."""


class WriterPosition(Struct, frozen=True):
    """The writer of an append, and its position afterwards: an event number, or a connection offset in bytes.

    `after`, if given: its required position before; NO_ATTRIBUTE: not known to the stream.
    """

    writer: Attribute
    position: int
    after: int | None = None


class AppendAs(Append, frozen=True, kw_only=True):
    """Append records as a writer, whose position is stored with them in one step.

    Fails with STALE_WRITER_POSITION as `AppendBytes` does, before all conditions of `Append` but STREAM_SEALED. A back
    without this operation refuses it with NOT_IMPLEMENTED. It cannot be sent in an `AppendSession`.
    """

    writer: WriterPosition


class AppendBytes(Operation[Appended], frozen=True):
    """Append bytes, at least one, atomically and contiguously. They may also be sent in an `AppendSession`.

    Fails with, in this order: STREAM_NOT_FOUND (it never creates streams); STREAM_SEALED; STALE_WRITER_POSITION unless
    `writer.position` is above the writer's last one, which must equal `writer.after` if given; OFFSET_MISMATCH unless
    `match_offset`, if given, is the length of the stream. OFFSET_MISMATCH does not end an `AppendSession`: that append
    alone is not applied; but sessions cannot report it, so sending one with `match_offset` there is refused (INVALID):
    use `Back.perform`. In the result `offset` is the length of the stream after the append.
    """

    stream: StreamRef
    data: bytes
    writer: WriterPosition | None = None
    match_offset: int | None = None


@dataclass(frozen=True, slots=True)
class BytesRead:
    """Part of a stream's bytes, from the requested offset.

    `data` is empty if the wait timed out, and at the end of a sealed stream. `at_tail`: there are no more bytes now.
    `end_of_stream`: there will never be more. `dropped` counts the features that the layout left out of these bytes.
    `incarnation`: as in `ByteStreamInfo`.
    """

    offset: int
    data: bytes
    at_tail: bool
    end_of_stream: bool
    dropped: Mapping[Feature, int]
    incarnation: str = field(default="", compare=False)


class ReadBytes(Operation[BytesRead], frozen=True):
    """Read at most `max_bytes` from `offset` on, which may lie inside an event; at the tail wait up to `wait` seconds.

    Waiting ends with the first byte, and when the stream is sealed, truncated beyond `offset` or deleted. An offset
    beyond the tail waits too, except in a sealed stream. The result is shorter than the bytes at hand only for a
    reason; a reader then asks again with `offset + len(data)`.

    `refuse`: features of records that are an error instead of being left out or enveloped by the layout. Bytes before
    such a record are returned; at it the read fails with NOT_REPRESENTABLE, naming its sequence number.

    Fails with STREAM_NOT_FOUND, OFFSET_TRUNCATED (details: the first offset that is kept), and INVALID for a negative
    offset or one beyond the end of a sealed stream.
    """

    stream: StreamRef
    offset: int
    max_bytes: int
    wait: float = 0.0
    refuse: frozenset[Feature] = frozenset()


@dataclass(frozen=True, slots=True)
class ByteStreamInfo:
    """A stream as bytes.

    `last_modified` in ms: the last known append, seal or truncation, else the creation. `incarnation` tells the stream
    from earlier ones of its name; "" if the server cannot tell.
    """

    start_offset: int
    length: int
    sealed: bool
    last_modified: int
    incarnation: str = field(default="", compare=False)


class GetByteStreamInfo(Operation[ByteStreamInfo], frozen=True):
    """Get offsets and state of a stream. Fails with STREAM_NOT_FOUND."""

    stream: StreamRef


class Seal(Operation[int], frozen=True):
    """Seal a stream against appends by any protocol. Result: the final length. Sealing twice is not an error."""

    stream: StreamRef


class Truncate(Operation[int], frozen=True):
    """Remove the bytes before `offset`, which may lie inside an event; result: the first offset that is kept.

    Records that end at or before it are trimmed; a record that is cut stays whole for protocols of records. A smaller
    offset than before changes nothing. Works on sealed streams. INVALID beyond the length.
    """

    stream: StreamRef
    offset: int


class UpdateType(IntEnum):
    """The way an attribute is changed with a merge (segment fact sheet, 1.3)."""

    NONE = 0
    REPLACE = 1
    REPLACE_IF_GREATER = 2
    ACCUMULATE = 3
    REPLACE_IF_EQUALS = 4


class AttributeUpdate(Struct, frozen=True):
    """A change of an attribute: see `UpdateType`. `expected` applies to REPLACE_IF_EQUALS alone; NO_ATTRIBUTE: it must
    not exist."""

    attribute: Attribute
    kind: UpdateType
    value: int
    expected: int = NO_ATTRIBUTE


class Merged(Struct, frozen=True):
    """The result of a merge. `offsets`: the length of the target after each source."""

    offsets: tuple[int, ...]


class Merge(Operation[Merged], frozen=True):
    """Append all bytes of each source, in order, to `target`, and delete the sources, atomically.

    Sources are sealed by it. Whole events in the joined bytes become records, however they were appended to the source.
    Fails with STREAM_NOT_FOUND (target or source), STREAM_SEALED (target), LIMIT_EXCEEDED if the sources together are
    larger than the back's bound on one append, INVALID for a truncated source, TRANSACTION_CONFLICT if an update's
    condition does not hold.
    """

    target: StreamRef
    sources: tuple[StreamRef, ...]
    updates: tuple[AttributeUpdate, ...] = ()


class GetAttribute(Operation[int], frozen=True):
    """Get an attribute's value, or a writer's position; NO_ATTRIBUTE if there is none. Everything decided before is
    durable when it answers, so a writer that reconnects learns what it need not send again."""

    stream: StreamRef
    attribute: Attribute


class UpdateAttribute(Operation[bool], frozen=True):
    """Set an attribute if it has the expected value (NO_ATTRIBUTE: if it does not exist); result: whether it was set.

    NO_ATTRIBUTE as `value` removes it.
    """

    stream: StreamRef
    attribute: Attribute
    value: int
    expected: int
