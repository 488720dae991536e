"""Split a segment's bytes into records: each event is one, and large ones are several (segment fact sheet, 1.5)."""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct, field

from penstock.model.byte_events import EVENT_HEADER_BYTES

__all__ = ["NoEvent", "ScannedRecords", "take_records"]

_HEADER: Final = struct.Struct(">iI")
_TYPE_AND_LENGTH: Final = struct.Struct(">Q")
"""Type and length read as one number: any type but 0 makes it larger than every event, as in `split_events`."""


class NoEvent(Exception):
    """The bytes at `offset` are not an event, or too large a one; the text says which."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class ScannedRecords(Struct):
    """Records, the offset of each, and finally the offset of their end. `inner`: the pieces of an event after its
    first.

    `missing`: least number of bytes missing to the next record; 0 if the bounds were reached.
    """

    bodies: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    inner: set[int] = field(default_factory=set)
    missing: int = 0


def take_records(
    data: bytes | bytearray, offset: int, *, count: int, size: int, max_body: int, max_event: int
) -> ScannedRecords:
    """Return the records in `data`, which begins with an event at `offset`: at most `count`, and about `size` bytes.

    An event with more than `max_body` bytes becomes pieces of `max_body` bytes, including its header, which are all
    returned together. Raises NoEvent if the first bytes are not an event; later, returns the records before such bytes.
    """
    scanned = ScannedRecords()
    block = bytes(data)
    at, end = 0, len(block)
    bodies, offsets, header = scanned.bodies, scanned.offsets, _TYPE_AND_LENGTH.unpack_from
    while len(bodies) < count and (not bodies or at < size):
        start = at + EVENT_HEADER_BYTES
        if start > end:
            scanned.missing = start - end
            break
        (length,) = header(block, at)
        if length > max_body:
            kind, length = _HEADER.unpack_from(block, at)
            problem = _problem(kind, length, max_event)
            if problem is not None and not bodies:
                raise NoEvent(problem, offset + at)
            if problem is not None:
                break
        after = start + length
        if after > end:
            scanned.missing = after - end
            break
        if length <= max_body:
            offsets.append(offset + at)
            bodies.append(block[start:after])
        else:
            _add_pieces(scanned, block, (at, after), offset, max_body)
        at = after
    offsets.append(offset + at)
    return scanned


def _problem(kind: int, length: int, max_event: int) -> str | None:
    if kind:
        return f"message type {kind} where an event (0) was expected"
    if length > max_event:
        return f"an event of {length} bytes, at most {max_event} are read as records"
    return None


def _add_pieces(scanned: ScannedRecords, block: bytes, span: tuple[int, int], offset: int, max_body: int) -> None:
    start, after = span
    for piece in range(start, after, max_body):
        if piece > start:
            scanned.inner.add(len(scanned.bodies))
        scanned.offsets.append(offset + piece)
        scanned.bodies.append(block[piece : min(piece + max_body, after)])
