"""Find the events in bytes of reads, also those that are cut across replies (segment fact sheet, 1.5)."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.model.byte_events import EVENT_HEADER_BYTES
from penstock.model.byte_layout import MOST_EMPTY
from penstock.model.limits import MIB
from penstock_pravega.codec.limits import SEGMENT_MAX_EVENT

__all__ = ["DeliveredEvents", "Deliveries"]

MOST_BYTES: Final = 32 * MIB
"""Most bytes of incomplete events, over all readers: four of the largest."""
MOST_PLACES: Final = 10_000
"""Most offsets at which reads ended that are remembered."""
MOST_TRIED: Final = 1000
"""Most offsets of a read that are tried as beginnings of events."""
SMALL_PIECE: Final = 4096
"""Pieces of an event that are smaller are put together."""
ENOUGH: Final = 16
"""Consecutive events that rule out chance."""
_TYPE: Final = bytes(4)
_TYPE_AND_LENGTH: Final = Struct(">Q")
"""Read as one number, any type but 0 makes it larger than every event."""


class DeliveredEvents(NamedTuple):
    """Bodies with their offsets in the segment. `raw`: one of them is not an event, but bytes as they came: the last
    one, or the first one if events were found behind it."""

    bodies: list[bytes]
    offsets: list[int]
    raw: bool = False


class _Left(NamedTuple):
    """Bytes before an offset at which a reader continues: the beginning of an event, from `offset` on, in pieces of
    `size` bytes together, or none; `raw`: the bytes are not events; `sought`: they may be the middle of an event;
    `read_on`: the bytes that follow were delivered to some reader. `cost`: the bytes that are held for this offset
    alone."""

    offset: int
    pieces: tuple[bytes, ...] = ()
    size: int = 0
    cost: int = 0
    raw: bool = False
    read_on: bool = False
    sought: bool = False


class Deliveries:
    """Beginnings of events that reads have cut, by segment and the offset of the rest.

    They are kept after use, since several readers may continue there; when there are too many the oldest are dropped. A
    client may request the rest on another connection, so the dialogues of one capture share these.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_places: int = MOST_PLACES) -> None:
        self._most_bytes = most_bytes
        self._most_places = most_places
        self._left: dict[tuple[str, int], _Left] = {}
        self._bytes = 0

    @property
    def held(self) -> int:
        """Bytes of incomplete events."""
        return self._bytes

    def cut(self, segment: str, place: int) -> tuple[int, int] | None:
        """Return the offset, and the number of bytes held, of an event that is cut off at this offset and behind which
        no reader continued; None: there is none, or it was dropped."""
        remainder = self._left.get((segment, place))
        return (
            (remainder.offset, remainder.size)
            if remainder is not None and remainder.size and not remainder.read_on
            else None
        )

    def read(self, segment: str, offset: int, data: bytes, *, late: bool = False) -> DeliveredEvents:
        """Return the events that the bytes at this offset complete. `segment`: a name that is unique among all servers.

        `late`: earlier reads may be missing, so that the bytes may begin in the middle of an event. Then they are
        delivered raw until events are found.
        """
        if not data:
            return DeliveredEvents([], [])
        remainder = self._left.get((segment, offset))
        if remainder is None:
            remainder = _Left(offset, raw=late and offset > 0, sought=late and offset > 0)
        elif not remainder.read_on:
            remainder = self._left[segment, offset] = remainder._replace(read_on=True)
        if not remainder.raw:
            return self._events(segment, remainder, data)
        begin = _first_event(data) if remainder.sought else None
        if begin is None:
            return self._raw(segment, offset, data, DeliveredEvents([], []), sought=remainder.sought)
        events = self._events(segment, _Left(offset + begin, sought=True), data[begin:])
        if not begin:
            return events
        return DeliveredEvents([data[:begin], *events.bodies], [offset, *events.offsets], raw=True)

    def _events(self, segment: str, remainder: _Left, data: bytes) -> DeliveredEvents:
        """Split bytes that follow those left over, with which an event begins."""
        *before, last = remainder.pieces or (b"",)
        pieces = (*before, last + data) if len(last) < SMALL_PIECE else (*remainder.pieces, data)
        size = remainder.size + len(data)
        if size < _needed(pieces):  # a large event in small reads is put together once
            self._bytes -= remainder.cost  # the next place holds the same pieces, and goes later
            if remainder.size:
                self._left[segment, remainder.offset + remainder.size] = remainder._replace(cost=0)
            self._keep(
                segment, remainder.offset + size, remainder._replace(pieces=pieces, size=size, cost=size, read_on=False)
            )
            return DeliveredEvents([], [])
        whole = b"".join(pieces)
        events, at = _whole_events(whole, remainder.offset)
        zeros = events.bodies.count(b"") > MOST_EMPTY  # bytes that look like so many events without a body
        if zeros:
            events, at = DeliveredEvents([], []), 0
        rest = whole[at:]
        if zeros or (rest and not _may_begin(rest)):
            return self._raw(segment, remainder.offset + at, rest, events, sought=remainder.sought)
        self._keep(segment, remainder.offset + size, _Left(remainder.offset + at, (rest,), len(rest), len(rest)))
        return events

    def _raw(
        self, segment: str, offset: int, data: bytes, events: DeliveredEvents, *, sought: bool = False
    ) -> DeliveredEvents:
        self._keep(segment, offset + len(data), _Left(offset, raw=True, sought=sought))
        return DeliveredEvents([*events.bodies, data], [*events.offsets, offset], raw=True)

    def _keep(self, segment: str, place: int, remainder: _Left) -> None:
        known = self._left.pop((segment, place), None)
        if known is not None and remainder.raw:
            remainder = known  # another reader has found the beginnings of events
        self._bytes += remainder.cost - (0 if known is None else known.cost)
        self._left[segment, place] = remainder
        while self._bytes > self._most_bytes or len(self._left) > self._most_places:
            self._bytes -= self._left.pop(next(iter(self._left))).cost


def _needed(pieces: tuple[bytes, ...]) -> int:
    """Return the length, with its header, of the event that begins in these pieces, or 0 if no event can begin so."""
    head = b"".join(pieces[:EVENT_HEADER_BYTES])[:EVENT_HEADER_BYTES]
    if len(head) < EVENT_HEADER_BYTES:
        return EVENT_HEADER_BYTES if _may_begin(head) else 0
    length = int.from_bytes(head, "big")
    return EVENT_HEADER_BYTES + length if length <= SEGMENT_MAX_EVENT else 0


def _whole_events(data: bytes, offset: int) -> tuple[DeliveredEvents, int]:
    """Return the whole events from the beginning on, and their end."""
    events = DeliveredEvents([], [])
    at, size, header = 0, len(data), _TYPE_AND_LENGTH.unpack_from
    while at + EVENT_HEADER_BYTES <= size:
        (length,) = header(data, at)
        start = at + EVENT_HEADER_BYTES
        if length > SEGMENT_MAX_EVENT or start + length > size:
            break
        events.bodies.append(data[start : start + length])
        events.offsets.append(offset + at)
        at = start + length
    return events, at


def _may_begin(data: bytes) -> bool:
    """Return whether these bytes may begin an event."""
    head = data[:EVENT_HEADER_BYTES]
    if len(head) == EVENT_HEADER_BYTES:
        return int.from_bytes(head, "big") <= SEGMENT_MAX_EVENT
    return not any(head[:4])


def _first_event(data: bytes) -> int | None:
    """Return the offset of the first event in bytes that may begin in the middle of one, or None if it is uncertain.

    From it on there must be whole events, none of them empty, up to the end, or at least two and the beginning of
    another. If there are none, the result is 0 if the first bytes may begin an event.
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
    """Return the number of consecutive whole events with a body that begin here, at most ENOUGH, and their end."""
    count, size, header = 0, len(data), _TYPE_AND_LENGTH.unpack_from
    while count < ENOUGH and at + EVENT_HEADER_BYTES <= size:
        (length,) = header(data, at)
        end = at + EVENT_HEADER_BYTES + length
        if not length or end > size:
            break
        count, at = count + 1, end
    return count, at
