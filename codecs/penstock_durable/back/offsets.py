"""The server's offsets of some positions of a stream.

An offset is opaque: it cannot be computed from a position, and a server tells one only where an answer ends. So the
gateway keeps offsets beside the stream, in the embedded store, about one for each MiB of content. A read begins at the
nearest one before its position and skips what lies between. Without the table all positions are the same: a read then
begins at the beginning. Only what a server removes by itself, from the beginning, is counted with their help.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.core.back import Back
from penstock.model.records import StreamRef
from penstock.tables.struct_table import Prefix, StructTable
from penstock_durable.codec import BEGINNING

__all__ = ["KnownOffset", "KnownOffsets", "OffsetTable"]

_MOST: Final = 4096
"""Most offsets of one stream in memory; beyond it every second one is dropped there."""


class _Offset(msgspec.Struct, frozen=True):
    """The value of a key, which is a stream and a position."""

    offset: str


class KnownOffset(NamedTuple):
    """A position, and the server's offset for it."""

    position: int
    offset: str


class OffsetTable:
    """The table of one back, in the embedded store `state`. `name`: that of the back."""

    def __init__(self, state: Back, name: str) -> None:
        self._table = StructTable(state, f"offsets/{name}")

    async def open(self, stream: StreamRef, step: int) -> KnownOffsets:
        """Return the offsets of a stream, of which one is kept for each `step` of positions."""
        prefix = Prefix(f"{stream}\0", _Offset)
        offsets = [KnownOffset(int(position), value.offset) async for position, value in self._table.each(prefix)]
        return KnownOffsets(self._table, prefix, step, offsets)

    async def forget(self, stream: StreamRef) -> None:
        """Remove the offsets of a stream that is gone."""
        await self._table.discard_all(Prefix(f"{stream}\0", _Offset))


class KnownOffsets:
    """The offsets of one stream, in order: those that are kept, and the newest."""

    def __init__(self, table: StructTable, prefix: Prefix[_Offset], step: int, kept: list[KnownOffset]) -> None:
        self._table = table
        self._prefix = prefix
        self._step = step
        self._kept = kept
        self._newest = kept[-1] if kept else KnownOffset(0, BEGINNING)
        self._thin()

    @property
    def newest(self) -> KnownOffset:
        """The last position with a known offset."""
        return self._newest

    def before(self, position: int) -> KnownOffset:
        """Return the nearest known offset at or before a position: the stream's beginning, if there is none."""
        if self._newest.position <= position:
            return self._newest
        at = bisect_right(self._kept, position, key=_position)
        return self._kept[at - 1] if at else KnownOffset(0, BEGINNING)

    def behind(self, position: int) -> Sequence[KnownOffset]:
        """Return the known offsets beyond a position, in order."""
        offsets = self._kept[bisect_right(self._kept, position, key=_position) :]
        if self._newest.position > max(position, offsets[-1].position if offsets else 0):
            offsets.append(self._newest)
        return offsets

    async def note(self, position: int, offset: str) -> None:
        """Add an offset that the server told, and write it down if the nearest that is kept is a step away."""
        known = KnownOffset(position, offset)
        if position >= self._newest.position:
            self._newest = known
        at = bisect_left(self._kept, position, key=_position)
        last, following = self._kept[at - 1].position if at else -self._step, self._kept[at : at + 1]
        if position - last < self._step or (following and following[0].position - position < self._step):
            return
        insort(self._kept, known)
        self._thin()
        await self._table.add(self._prefix.key(f"{position:020d}"), _Offset(offset))

    def _thin(self) -> None:
        while len(self._kept) > _MOST:
            del self._kept[1::2]


def _position(known: KnownOffset) -> int:
    return known.position
