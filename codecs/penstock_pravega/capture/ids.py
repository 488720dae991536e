"""Writer ids of the segment protocol, which clients make up: a server takes appends of a writer that it knows for
repetitions, so a replay has writers of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.capture.assigned_ids import AssignedIds
from penstock_pravega.capture.dialect_detection import HELLO
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, TYPE_TABLE, Dialect, Direction

__all__ = ["reassigned"]

_UUID_BYTES: Final = 16


def _places() -> dict[int, int]:
    """Return the offset of the writer id in each request that has one, by type: only numbers come before it."""
    places: dict[int, int] = {}
    for type_id, cls in TYPE_TABLE[Dialect.RELEASED].items():
        names = [field.name for field in cls.fields]
        if cls.direction is not Direction.REPLY and "writer_id" in names:
            before = cls.fields[: names.index("writer_id")]
            places[type_id] = HEADER_BYTES + sum(field.wire.size or 0 for field in before)
    return places


_PLACES: Final = _places()


def reassigned(ids: AssignedIds) -> Callable[[bytes], bytes]:
    """Return the function that puts writer ids of this run into the messages of one client, which are given in order.
    The draft's messages, before which no Hello comes, have none."""
    is_released = False

    def change(data: bytes) -> bytes:
        nonlocal is_released
        is_released = is_released or data.startswith(HELLO)
        if not is_released or len(data) < HEADER_BYTES:
            return data
        place = _PLACES.get(HEADER.unpack_from(data)[0])
        if place is None or len(data) < place + _UUID_BYTES:
            return data
        return data[:place] + ids.fresh(data[place : place + _UUID_BYTES]) + data[place + _UUID_BYTES :]

    return change
