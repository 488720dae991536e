"""Going through a segment, event by event, from one byte offset to another."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import MIB
from penstock_codecs.segment import NoEvent, Records, released, take_records
from penstock_spark.clients.segment.connection import StoreConnection
from penstock_spark.clients.segment.stores import Place, Stores

__all__ = ["ALL", "events", "walk"]

ALL: Final = sys.maxsize
"""As many as there are."""
MOST_EVENT: Final = 64 * MIB
"""Largest event that is read: clients that write larger ones than 8 MiB put them together from parts."""
_PAGE: Final = 1 * MIB
"""Bytes that one request asks for, half of what a real store gives at most."""
_DEPTH: Final = 4
"""Requests under way at once. What they bring is held: 4 MiB, and an event."""


def walk(stores: Stores, stream: str, start: int, end: int, wanted: int = ALL) -> Iterator[Records]:
    """The events between two offsets, up to so many; at last `offsets` has where they end. An event that ends behind
    `end` is not given. `end` is at most the segment's length, since a read at the tail would wait.

    A connection that breaks is made again. Raises OperationFailed: OFFSET_TRUNCATED (details: `offset`, where the
    segment begins now), NOT_REPRESENTABLE for bytes that are no events.
    """
    patience = stores.patience()
    while start < end and wanted > 0:
        try:
            place = stores.place(stream)
            with place.pool.use() as connection:
                for found in events(_bytes(connection, place, start, end), place.segment, start, wanted):
                    patience.progress()
                    wanted -= len(found.bodies)
                    start = found.offsets[-1]
                    yield found
                return
        except OperationFailed as error:
            stores.failed(stream, error)
            patience.wait(error)


@dataclass(slots=True)
class _Part:
    """One request, and what has come of it: a store may give less than it was asked for."""

    offset: int
    end: int
    pieces: list[bytes] = field(default_factory=list)


def _bytes(connection: StoreConnection, place: Place, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, with requests ahead of what is given. Replies may come in any order."""
    parts: deque[_Part] = deque()
    asked: dict[int, _Part] = {}

    def ask(part: _Part) -> None:
        request_id = connection.next_id()
        asked[request_id] = part
        size = part.end - part.offset
        connection.send(released.ReadSegment(place.segment, part.offset, size, place.token, request_id))

    while start < end or parts:
        while start < end and len(parts) < _DEPTH:
            parts.append(_Part(start, min(start + _PAGE, end)))
            start = parts[-1].end
            ask(parts[-1])
        while parts[0].offset < parts[0].end:
            part = _take(connection, place, asked)
            if part.offset < part.end:
                ask(part)
        yield b"".join(parts.popleft().pieces)


def _take(connection: StoreConnection, place: Place, asked: dict[int, _Part]) -> _Part:
    """The part that the next reply belongs to, with its bytes."""
    reply = connection.reply()
    part = asked.pop(getattr(reply, "request_id", -1), None)
    if not isinstance(reply, released.SegmentRead) or part is None or reply.offset != part.offset:
        raise connection.refused(reply, place.segment)
    if not reply.data:  # it stops, or the segment is another one of the same name
        raise fail(FailureCode.UNAVAILABLE, f"segment {place.segment}: no bytes at {reply.offset}, where it had some")
    data = reply.data[: part.end - part.offset]
    part.pieces.append(data)
    part.offset += len(data)
    return part


def events(blocks: Iterator[bytes], segment: str, start: int, wanted: int) -> Iterator[Records]:
    """The events in bytes that begin with one, at offset `start`; nothing of an event that is not all there."""
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
                found = take_records(
                    data, start, count=wanted, size=len(data), max_body=MOST_EVENT, max_event=MOST_EVENT
                )
            except NoEvent as problem:
                where = f"segment {segment}, offset {problem.offset}"
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{where}: {problem}") from None
            data = data[found.offsets[-1] - start :]
            start = found.offsets[-1]
            wanted -= len(found.bodies)
            if found.bodies:
                yield found
            if wanted <= 0:
                return
            if found.missing:
                break
        held, size = [data], len(data)
        needed = size + (found.missing if data else 1)
