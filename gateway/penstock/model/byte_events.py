"""Events, as which a stream's bytes hold its records: type 0, length, payload (segment fact sheet, 1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

__all__ = ["EVENT_HEADER_BYTES", "join_events", "split_events"]

_HEADER: Final = Struct(">iI")
_TYPE_AND_LENGTH: Final = Struct(">Q")
EVENT_HEADER_BYTES: Final = _HEADER.size
_CACHED_LENGTHS: Final = 4096


class _Headers(dict[int, bytes]):
    """Event headers by payload length. Most events of a stream are short, and of few lengths.

    Measured per event of 100 B: 0.05 us with the table, 0.07 us with Struct.pack.
    """

    def __missing__(self, length: int) -> bytes:
        header = _HEADER.pack(0, length)
        if len(self) < _CACHED_LENGTHS:
            self[length] = header
        return header


_HEADERS: Final = _Headers()


def join_events(bodies: Sequence[bytes]) -> bytes:
    """Return the bytes of events with these payloads, one after the other.

    Measured per event of 100 B: filling a list by slices 0.04 us, a comprehension of both pieces 0.11 us.
    """
    pieces = [b""] * (2 * len(bodies))
    pieces[::2] = map(_HEADERS.__getitem__, map(len, bodies))
    pieces[1::2] = bodies
    return b"".join(pieces)


def split_events(block: bytes) -> list[bytes]:
    """Return the payloads of the events in `block`.

    Raises ValueError, with the offset in `block`, for anything but events and for a last event that is cut short. Type
    and length are read as one number: any type but 0 makes it larger than every block. Measured per event of 100 B:
    0.14 us, with the two apart 0.18 us.
    """
    bodies: list[bytes] = []
    add, header = bodies.append, _TYPE_AND_LENGTH.unpack_from
    at, size = 0, len(block)
    last = size - EVENT_HEADER_BYTES
    while at <= last:
        (length,) = header(block, at)
        start = at + EVENT_HEADER_BYTES
        at = start + length
        if at > size:
            raise _not_an_event(block, start - EVENT_HEADER_BYTES)
        add(block[start:at])
    if at < size:
        raise ValueError(f"the block ends inside the header of an event at byte {at}")
    return bodies


def _not_an_event(block: bytes, at: int) -> ValueError:
    kind, length = _HEADER.unpack_from(block, at)
    if kind:
        return ValueError(f"message type {kind} where an Event (0) was expected at byte {at} of the block")
    return ValueError(f"the block ends inside the event of {length} bytes at byte {at}")
