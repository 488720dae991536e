"""Appends of the released protocol: the bytes that a block and its end store, and how to encode an append (segment fact
sheet, 1.4).

An AppendBlock has a size that its sender chose before it knew the content:

| content | AppendBlock | AppendBlockEnd.data |
|---|---|---|
| as many bytes as were chosen | the bytes | empty |
| fewer | the bytes, and Padding for the rest | empty |
| more | whole events, and PartialEvent with as much of the next one as fits | the rest of that one |
| no AppendBlock at all | | all bytes |
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from penstock.model.byte_events import EVENT_HEADER_BYTES, join_events
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, SegmentMessage, encode, show_value
from penstock_pravega.codec.released import AppendBlock, AppendBlockEnd, Padding, PartialEvent

__all__ = ["BlockAppended", "Violation", "append_messages", "stored_pieces"]


class Violation(Exception):
    """A message is not allowed, or not now. The text says why."""


class BlockAppended(Struct, frozen=True):
    """An append as it is to be stored, whatever its form. A client that sends one sends AppendBlockEnd alone."""

    writer_id: UUID
    data: bytes
    number_of_events: int
    last_event_number: int
    request_id: int

    def __repr__(self) -> str:
        return show_value(self)


def stored_pieces(block: AppendBlock | None, end: AppendBlockEnd) -> list[bytes | memoryview]:
    """Return the bytes that an append stores, as pieces in order. Raises Violation if block and end do not match."""
    whole = end.size_of_whole_events
    if whole < 0:
        raise Violation(f"AppendBlockEnd.size_of_whole_events is {whole}")
    if end.number_of_events < 1:
        raise Violation(f"AppendBlockEnd.number_of_events is {end.number_of_events}, at least 1 is appended")
    if block is None:
        return [end.data]
    if block.writer_id != end.writer_id:
        raise Violation(f"AppendBlockEnd of writer {end.writer_id} after an AppendBlock of {block.writer_id}")
    content = memoryview(block.data)
    if whole > len(content):
        raise Violation(f"AppendBlockEnd.size_of_whole_events is {whole}, the AppendBlock has {len(content)} bytes")
    partial = _wrapper(content[whole:])
    if partial is None:
        if end.data:
            raise Violation(f"AppendBlockEnd has {len(end.data)} bytes after an AppendBlock without a PartialEvent")
        return [content[:whole]]
    return [content[:whole], partial, end.data]


def _wrapper(rest: memoryview) -> memoryview | None:
    """Return the data of the PartialEvent at the end of a block; None for Padding or nothing."""
    if not rest:
        return None
    if len(rest) < HEADER_BYTES:
        raise Violation(f"{len(rest)} bytes behind the whole events of an AppendBlock are not a message")
    type_id, length = HEADER.unpack_from(rest)
    if type_id not in (Padding.type_id, PartialEvent.type_id):
        raise Violation(f"message type {type_id} behind the whole events of an AppendBlock")
    if length != len(rest) - HEADER_BYTES:
        left = len(rest) - HEADER_BYTES
        raise Violation(f"Padding or PartialEvent of {length} bytes at the end of an AppendBlock, {left} are left")
    return rest[HEADER_BYTES:] if type_id == PartialEvent.type_id else None


def append_messages(
    writer_id: UUID,
    bodies: Sequence[bytes],
    last_event_number: int,
    request_id: int,
    *,
    block_size: int | None = None,
    room: bool = True,
) -> list[SegmentMessage]:
    """Return the messages that append these events, as sent by a client that had chosen `block_size`.

    None: AppendBlockEnd alone. `room=False`: the frame has no room for a wrapper, so the events must fill the block
    exactly. Raises ValueError if they do not.
    """
    content = join_events(bodies)
    if block_size is None:
        return [AppendBlockEnd(writer_id, len(content), content, len(bodies), last_event_number, request_id)]
    whole, rest = _split(bodies, content, block_size)
    block = content[:whole]
    if room:
        free = block_size - whole
        wrapper: SegmentMessage = PartialEvent(content[whole:block_size]) if rest else Padding(free)
        block += b"".join(encode(wrapper))
    elif whole != block_size or rest:
        raise ValueError(f"events of {len(content)} bytes do not fill a block of {block_size}")
    return [
        AppendBlock(writer_id, block),
        AppendBlockEnd(writer_id, whole, rest, len(bodies), last_event_number, request_id),
    ]


def _split(bodies: Sequence[bytes], content: bytes, block_size: int) -> tuple[int, bytes]:
    """Return the size of the whole events within a block, and the bytes that do not fit. Raises ValueError if more than
    one event does not fit."""
    whole = count = 0
    for body in bodies:
        size = EVENT_HEADER_BYTES + len(body)
        if whole + size > block_size:
            break
        whole += size
        count += 1
    if count < len(bodies) - 1:
        raise ValueError(f"{len(bodies) - count} events do not fit into a block of {block_size} bytes, one may")
    return whole, content[max(whole, block_size) :] if count < len(bodies) else b""
