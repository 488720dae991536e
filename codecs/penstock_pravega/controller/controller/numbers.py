"""The numbers of streams' first segments, which continue when a stream is deleted and created again.

The first segment of a stream is the one that has the stream's own name in the back (`penstock_pravega.segment.names`),
whatever its number. Positions in a deleted stream must not be valid in the next one of its name: a reader has to learn
that its data is gone, and a writer that its segment is. So the next stream begins with the number after all that were
used, as in Pravega. Clients of other protocols delete and create streams too: `ByteStreamInfo.incarnation` shows that
the next time that one of Pravega's clients asks for the stream.

Of a deleted stream its next number is kept; of the streams of a deleted scope, the largest of these.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Conflict, Key, Prefix, StructTable
from penstock_pravega.controller.controller.names import is_internal
from penstock_pravega.controller.controller.records import StreamRecord
from penstock_pravega.segment.names import SegmentName

__all__ = ["FirstSegment", "FirstSegments"]

_NUMBER: Final = 0xFFFF_FFFF


class FirstSegment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream's first segment: its id, and which stream of the back it is (see `ByteStreamInfo`).

    `incarnation` "": the next stream of the name, or any if the back cannot tell them apart.
    """

    segment: int
    incarnation: str = ""

    def stored(self, name: SegmentName) -> SegmentName:
        """Return the name of a segment of the stream in the back: its own, except that the first has number 0 if other
        protocols can see it."""
        return name if name.id != self.segment or is_internal(name.stream) else replace(name, number=0, epoch=0)

    def fits(self, incarnation: str) -> bool:
        """Return whether it may be the stream with this incarnation."""
        return not self.incarnation or not incarnation or self.incarnation == incarnation

    @property
    def following(self) -> int:
        """The lowest number that the next stream of the name can begin with."""
        return (self.segment & _NUMBER) + bool(self.incarnation)


_FLOORS: Final = Prefix("floor/", FirstSegment)
"""By deleted scope: the lowest number that streams of a new scope of this name can begin with."""


def _firsts(scope: str) -> Prefix[FirstSegment]:
    return Prefix(f"first/{scope}/", FirstSegment)


class FirstSegments:
    """The first segments of all streams that Pravega's clients have asked for. Fails as `StructTable`."""

    def __init__(self, table: StructTable) -> None:
        self._table = table

    async def get(self, scope: str, name: str) -> FirstSegment | None:
        """Return a stream's first segment, or None if it is unknown."""
        entry = await self._table.get(_firsts(scope).key(name))
        return None if entry is None else entry.value

    async def of(self, scope: str, name: str, incarnation: str, record: StreamRecord | None) -> int:
        """Return the id of the first segment of an existing stream of one segment.

        `record`: the controller's record under this name, maybe of a stream that has been deleted.
        """
        key = _firsts(scope).key(name)
        while True:
            entry = await self._table.get(key)
            if entry is not None and entry.value.fits(incarnation):
                number = entry.value.segment
            elif entry is None and record is not None:
                number = record.segments[0].id
            else:
                number = await self.following(scope, name, record)
            first = FirstSegment(number, incarnation)
            if not incarnation or (entry is not None and entry.value == first):
                return number
            with suppress(Conflict):  # another request was faster: read its entry
                await self._table.put(key, first, NOT_EXISTS if entry is None else entry.version)
                return number

    async def following(self, scope: str, name: str, record: StreamRecord | None) -> int:
        """Return the number that a new stream begins with. `record`: that of the stream before it, if there is one."""
        first = await self.get(scope, name)
        if first is None and record is None:
            floor = await self._table.get(_FLOORS.key(scope))
            return 0 if floor is None else floor.value.segment
        return max(0 if first is None else first.following, 0 if record is None else record.segments[-1].number + 1)

    async def first_segment(self, scope: str, name: str) -> SegmentName:
        """Return the name that the first segment of a stream has, or would have, in the back."""
        first = await self.get(scope, name) if is_internal(name) else None
        return SegmentName(scope, name, first.segment if first else 0)

    async def advance(self, scope: str, name: str) -> None:
        """Account for a stream that may have existed and is gone: the next one of its name begins with the number after
        it."""
        first = await self.get(scope, name)
        if first is not None and first.incarnation:
            await self.set(scope, name, FirstSegment(first.following))

    async def set(self, scope: str, name: str, first: FirstSegment) -> None:
        """Remember a stream's first segment."""
        await self._set(_firsts(scope).key(name), first)

    async def retire(self, scope: str, name: str, record: StreamRecord | None = None) -> None:
        """Remember the number that follows a deleted stream, which had this record, for the next stream of its name."""
        first = await self.get(scope, name)
        following = 1 if first is None else (first.segment & _NUMBER) + 1
        await self.set(
            scope, name, FirstSegment(following if record is None else await self.following(scope, name, record))
        )

    async def use(self, scope: str, name: str, number: int) -> None:
        """Remember that everything up to this number was used."""
        await self.set(scope, name, FirstSegment(number + 1))

    async def forget(self, scope: str) -> None:
        """Replace the numbers of all streams of an empty scope by one number."""
        firsts = [first async for _, first in self._table.each(_firsts(scope))]
        if not firsts:
            return
        floor = await self._table.get(_FLOORS.key(scope))
        following = max(first.following for first in firsts)
        await self._set(_FLOORS.key(scope), FirstSegment(max(following, 0 if floor is None else floor.value.segment)))
        names = [name async for name, _ in self._table.each(_firsts(scope))]
        for name in names:
            entry = await self._table.get(_firsts(scope).key(name))
            if entry is not None:
                await self._table.remove(_firsts(scope).key(name), entry.version)

    async def _set(self, key: Key[FirstSegment], first: FirstSegment) -> None:
        while True:
            entry = await self._table.get(key)
            with suppress(Conflict):
                await self._table.put(key, first, NOT_EXISTS if entry is None else entry.version)
                return
