"""The events in the bytes that reads bring, also those that are cut across replies (segment fact sheet, 1.5)."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock_codecs.byte_layout import MOST_EMPTY
from penstock_codecs.limits import MIB, SEGMENT_MAX_EVENT
from penstock_codecs.segment.events import EVENT_HEADER_BYTES

__all__ = ["Deliveries", "Delivery"]

MOST_BYTES: Final = 32 * MIB
"""Of events that are not complete, over all readers: four of the largest."""
MOST_PLACES: Final = 10_000
"""Places up to which somebody has read, with what is missing there."""
MOST_TRIED: Final = 1000
"""So many places of a read are tried where events might begin."""
SMALL_PIECE: Final = 4096
"""Pieces of an event that are smaller are put together."""
ENOUGH: Final = 16
"""So many events one behind the other are no chance."""
_TYPE: Final = bytes(4)
_TYPE_AND_LENGTH: Final = Struct(">Q")
"""Read as one number, any type but 0 makes it larger than every event."""


class Delivery(NamedTuple):
    """Bodies with their offsets in the segment. `raw`: one of them is no event, but bytes as they came; the last one,
    or the first one where events were found behind it."""

    bodies: list[bytes]
    offsets: list[int]
    raw: bool = False


class _Left(NamedTuple):
    """What stands before a place where a reader goes on: the beginning of an event, from `offset` on, in pieces of
    `size` bytes together, or nothing of one; `raw`: bytes that are no events; `sought`: they may be the middle of one;
    `read_on`: somebody was given what follows. `cost`: the bytes that are held for this place alone."""

    offset: int
    pieces: tuple[bytes, ...] = ()
    size: int = 0
    cost: int = 0
    raw: bool = False
    read_on: bool = False
    sought: bool = False


class Deliveries:
    """What readers have been given of events that were cut, by segment and the place where the rest stands.

    What is left there is kept, since several readers may come by; the oldest goes first where there is too much. A
    client may ask for the rest on another connection, so the dialogues of one capture share these.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_places: int = MOST_PLACES) -> None:
        self._most_bytes = most_bytes
        self._most_places = most_places
        self._left: dict[tuple[str, int], _Left] = {}
        self._bytes = 0

    @property
    def held(self) -> int:
        """Bytes of events that are not complete."""
        return self._bytes

    def cut(self, segment: str, place: int) -> tuple[int, int] | None:
        """Where an event begins that is cut off at this place, behind which nobody has read on, and how much of it
        there is; None: there is none, or it was let go."""
        left = self._left.get((segment, place))
        return (left.offset, left.size) if left is not None and left.size and not left.read_on else None

    def read(self, segment: str, offset: int, data: bytes, *, late: bool = False) -> Delivery:
        """What the bytes at this offset of a segment complete. `segment`: a name that no other server has, too.

        `late`: what was read before may be missing, so that they may begin in the middle of an event. Then they are
        bytes as they came, until events are found.
        """
        if not data:
            return Delivery([], [])
        left = self._left.get((segment, offset))
        if left is None:
            left = _Left(offset, raw=late and offset > 0, sought=late and offset > 0)
        elif not left.read_on:
            left = self._left[segment, offset] = left._replace(read_on=True)
        if not left.raw:
            return self._events(segment, left, data)
        begin = _first_event(data) if left.sought else None
        if begin is None:
            return self._raw(segment, offset, data, Delivery([], []), sought=left.sought)
        found = self._events(segment, _Left(offset + begin, sought=True), data[begin:])
        if not begin:
            return found
        return Delivery([data[:begin], *found.bodies], [offset, *found.offsets], raw=True)

    def _events(self, segment: str, left: _Left, data: bytes) -> Delivery:
        """Bytes that follow what was left, where an event begins."""
        *before, last = left.pieces or (b"",)
        pieces = (*before, last + data) if len(last) < SMALL_PIECE else (*left.pieces, data)
        size = left.size + len(data)
        if size < _needed(pieces):  # a large event in small reads is put together once
            self._bytes -= left.cost  # the next place holds the same pieces, and goes later
            if left.size:
                self._left[segment, left.offset + left.size] = left._replace(cost=0)
            self._keep(segment, left.offset + size, left._replace(pieces=pieces, size=size, cost=size, read_on=False))
            return Delivery([], [])
        whole = b"".join(pieces)
        found, at = _whole_events(whole, left.offset)
        zeros = found.bodies.count(b"") > MOST_EMPTY  # bytes that look like so many events without a body
        if zeros:
            found, at = Delivery([], []), 0
        rest = whole[at:]
        if zeros or (rest and not _may_begin(rest)):
            return self._raw(segment, left.offset + at, rest, found, sought=left.sought)
        self._keep(segment, left.offset + size, _Left(left.offset + at, (rest,), len(rest), len(rest)))
        return found

    def _raw(self, segment: str, offset: int, data: bytes, found: Delivery, *, sought: bool = False) -> Delivery:
        self._keep(segment, offset + len(data), _Left(offset, raw=True, sought=sought))
        return Delivery([*found.bodies, data], [*found.offsets, offset], raw=True)

    def _keep(self, segment: str, place: int, left: _Left) -> None:
        known = self._left.pop((segment, place), None)
        if known is not None and left.raw:
            left = known  # somebody else has seen where events begin
        self._bytes += left.cost - (0 if known is None else known.cost)
        self._left[segment, place] = left
        while self._bytes > self._most_bytes or len(self._left) > self._most_places:
            self._bytes -= self._left.pop(next(iter(self._left))).cost


def _needed(pieces: tuple[bytes, ...]) -> int:
    """How many bytes the event has that begins in these pieces, with its header; at most as many as any event."""
    head = b"".join(pieces[:EVENT_HEADER_BYTES])[:EVENT_HEADER_BYTES]
    if len(head) < EVENT_HEADER_BYTES:
        return EVENT_HEADER_BYTES if _may_begin(head) else 0
    length = int.from_bytes(head, "big")
    return EVENT_HEADER_BYTES + length if length <= SEGMENT_MAX_EVENT else 0


def _whole_events(data: bytes, offset: int) -> tuple[Delivery, int]:
    """Whole events from the beginning on, and where they end."""
    found = Delivery([], [])
    at, size, header = 0, len(data), _TYPE_AND_LENGTH.unpack_from
    while at + EVENT_HEADER_BYTES <= size:
        (length,) = header(data, at)
        start = at + EVENT_HEADER_BYTES
        if length > SEGMENT_MAX_EVENT or start + length > size:
            break
        found.bodies.append(data[start : start + length])
        found.offsets.append(offset + at)
        at = start + length
    return found, at


def _may_begin(data: bytes) -> bool:
    """Whether this is the beginning of an event."""
    head = data[:EVENT_HEADER_BYTES]
    if len(head) == EVENT_HEADER_BYTES:
        return int.from_bytes(head, "big") <= SEGMENT_MAX_EVENT
    return not any(head[:4])


def _first_event(data: bytes) -> int | None:
    """Where the first event begins in bytes that may begin in the middle of one; None where there is none for certain.

    From there on there are whole events, none of them empty, up to the end, or at least two and the beginning of one.
    Where there is nothing such, their first bytes count, if these may begin an event.
    """
    begin = -1
    for _ in range(MOST_TRIED):
        begin = data.find(_TYPE, begin + 1)
        if begin < 0:
            break
        count, at = _chain(data, begin)
        if (
            count >= ENOUGH
            or (count and at == len(data))
            or (count > 1 and _may_begin(data[at : at + EVENT_HEADER_BYTES]))
        ):
            return begin
    empty = len(data) >= EVENT_HEADER_BYTES and not any(data[:EVENT_HEADER_BYTES])
    return 0 if _may_begin(data) and not empty else None


def _chain(data: bytes, at: int) -> tuple[int, int]:
    """How many whole events with a body stand here one behind the other, and where they end; so many as are enough."""
    count, size, header = 0, len(data), _TYPE_AND_LENGTH.unpack_from
    while count < ENOUGH and at + EVENT_HEADER_BYTES <= size:
        (length,) = header(data, at)
        end = at + EVENT_HEADER_BYTES + length
        if not length or end > size:
            break
        count, at = count + 1, end
    return count, at
