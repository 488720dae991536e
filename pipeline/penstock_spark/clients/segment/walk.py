"""Walk through a segment, event by event, from one byte offset to another."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import MIB
from penstock_codecs.segment import NoEvent, ScannedRecords, released, take_records
from penstock_spark.clients.segment.connection import BlockingStoreConnection
from penstock_spark.clients.segment.stores import EndpointStores, SegmentLocation

__all__ = ["ALL", "events", "read_bytes", "walk_events"]

ALL: Final = sys.maxsize
"""A count without limit."""
MOST_EVENT: Final = 64 * MIB
"""Largest event that is read, in bytes: clients write events above 8 MiB in parts."""
_PAGE: Final = 1 * MIB
"""Bytes of one request, half of the most that a real store returns."""
_DEPTH: Final = 4
"""Requests in flight at once. Their replies are held in memory: 4 MiB, plus one event."""


def walk_events(
    stores: EndpointStores, stream: str, start: int, end: int, count_left: int = ALL
) -> Iterator[ScannedRecords]:
    """Yield at most `count_left` events between two offsets; the last of `offsets` is the end of the last event. An
    event that ends after `end` is left out. `end` is at most the segment's length, since a read at the tail would wait.

    Reconnects after a broken connection. Raises OperationFailed: OFFSET_TRUNCATED (details: `offset`, the segment's
    first offset now), NOT_REPRESENTABLE for bytes that are not events.
    """
    patience = stores.patience()
    while start < end and count_left > 0:
        try:
            location = stores.place(stream)
            with location.pool.use() as connection:
                for scanned in events(_bytes(connection, location, start, end), location.segment, start, count_left):
                    patience.progress()
                    count_left -= len(scanned.bodies)
                    start = scanned.offsets[-1]
                    yield scanned
                return
        except OperationFailed as error:
            stores.failed(stream, error)
            patience.wait(error)


def read_bytes(stores: EndpointStores, stream: str, start: int, end: int) -> bytes:
    """Return the bytes between two offsets within the segment. Raises as `walk_events`."""
    patience = stores.patience()
    while True:
        try:
            location = stores.place(stream)
            with location.pool.use() as connection:
                return b"".join(_bytes(connection, location, start, end))
        except OperationFailed as error:
            stores.failed(stream, error)
            patience.wait(error)


@dataclass(slots=True)
class _Part:
    """One request and the bytes received for it so far: a store may return fewer bytes than requested."""

    offset: int
    end: int
    pieces: list[bytes] = field(default_factory=list)


def _bytes(connection: BlockingStoreConnection, location: SegmentLocation, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end`, keeping requests in flight ahead of them. Replies may arrive in any
    order."""
    parts: deque[_Part] = deque()
    parts_asked: dict[int, _Part] = {}

    def ask(part: _Part) -> None:
        request_id = connection.next_id()
        parts_asked[request_id] = part
        size = part.end - part.offset
        connection.send(released.ReadSegment(location.segment, part.offset, size, location.token, request_id))

    while start < end or parts:
        while start < end and len(parts) < _DEPTH:
            parts.append(_Part(start, min(start + _PAGE, end)))
            start = parts[-1].end
            ask(parts[-1])
        while parts[0].offset < parts[0].end:
            part = _take(connection, location, parts_asked)
            if part.offset < part.end:
                ask(part)
        yield b"".join(parts.popleft().pieces)


def _take(connection: BlockingStoreConnection, location: SegmentLocation, parts_asked: dict[int, _Part]) -> _Part:
    """Take the next reply and return the part that it belongs to, with its bytes added."""
    reply = connection.reply()
    part = parts_asked.pop(getattr(reply, "request_id", -1), None)
    if not isinstance(reply, released.SegmentRead) or part is None or reply.offset != part.offset:
        raise connection.refused(reply, location.segment)
    if not reply.data:  # the segment lost bytes, or is another one of the same name
        raise fail(
            FailureCode.UNAVAILABLE, f"segment {location.segment}: no bytes at {reply.offset}, where it had some"
        )
    data = reply.data[: part.end - part.offset]
    part.pieces.append(data)
    part.offset += len(data)
    return part


def events(blocks: Iterator[bytes], segment: str, start: int, count_left: int) -> Iterator[ScannedRecords]:
    """Yield the events in `blocks`, which begin with an event at offset `start`; a partial event at the end is left
    out."""
    held: list[bytes] = []
    size = needed = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size < needed:
            continue
        data, held = b"".join(held), []
        while data:
            try:
                scanned = take_records(
                    data, start, count=count_left, size=len(data), max_body=MOST_EVENT, max_event=MOST_EVENT
                )
            except NoEvent as problem:
                where = f"segment {segment}, offset {problem.offset}"
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{where}: {problem}") from None
            data = data[scanned.offsets[-1] - start :]
            start = scanned.offsets[-1]
            count_left -= len(scanned.bodies)
            if scanned.bodies:
                yield scanned
            if count_left <= 0:
                return
            if scanned.missing:
                break
        held, size = [data], len(data)
        needed = size + (scanned.missing if data else 1)
