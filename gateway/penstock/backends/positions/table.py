"""A position index as a table of the embedded store.

| key | value |
|---|---|
| `e` | the end of the stream and its first record: 4 numbers each (sequence number, ms, place, offset) |
| `c` and a sequence number | timestamp, place and offset of a mark that is always in memory |
| `m` and a sequence number | the same, of any other mark |

All numbers are unsigned, 8 bytes, big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.backends.kept_table import KeptTable
from penstock.core.back import Back
from penstock.core.marks import Mark
from penstock.core.segment_names import INTERNAL_TABLES
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import U64_MAX, StreamRef

__all__ = ["Ends", "IndexTable", "index_name"]

_ENDS_KEY: Final = b"e"
_ENDS: Final = struct.Struct(">8Q")
_SEQ_NUM: Final = struct.Struct(">Q")
_MARK: Final = struct.Struct(">3Q")
_PAGE: Final = 1000


class Ends(NamedTuple):
    """The end of a stream, and its first record."""

    end: Mark
    first: Mark


def index_name(back: str, stream: StreamRef) -> str:
    """Return the name of the table that holds the index of a stream of the back called `back`."""
    return f"{INTERNAL_TABLES}positions/{back}/{stream}"


class IndexTable:
    """The table of one index, created when first written to. All methods raise OperationFailed(STORAGE)."""

    def __init__(self, state: Back, name: str) -> None:
        self._table = KeptTable(state, name)

    async def ends(self) -> Ends | None:
        """Return the end and the first record, or None if there is no table."""
        (value,) = await self._table.get(_ENDS_KEY)
        if value is None:
            return None
        numbers = _ENDS.unpack(value)
        return Ends(Mark(*numbers[:4]), Mark(*numbers[4:]))

    async def coarse(self) -> list[Mark]:
        """Return the marks that are always in memory."""
        return await self._list(b"c", 0, U64_MAX)

    async def marks(self, behind: int, end: int | None) -> list[Mark]:
        """Return the other marks with sequence numbers above `behind` and below `end`."""
        return await self._list(b"m", behind + 1, U64_MAX if end is None else end - 1)

    async def _list(self, kind: bytes, first: int, last: int) -> list[Mark]:
        items = self._table.items(first=kind + _SEQ_NUM.pack(first), last=kind + _SEQ_NUM.pack(last))
        return [Mark(*_SEQ_NUM.unpack(key[1:]), *_MARK.unpack(value)) async for key, value in items]

    async def write(self, ends: Ends, marks: Sequence[Mark], coarse: Collection[int]) -> None:
        """Write the ends and marks, all or none; `coarse`: sequence numbers of the marks that are always in memory."""
        items = [
            ((b"c" if mark.seq_num in coarse else b"m") + _SEQ_NUM.pack(mark.seq_num), _MARK.pack(*mark[1:]))
            for mark in marks
        ]
        await self._table.put(*items, (_ENDS_KEY, _ENDS.pack(*ends.end, *ends.first)))

    async def remove_before(self, seq_num: int, coarse: int) -> None:
        """Remove the marks before `seq_num`, and those that are always in memory before `coarse`."""
        for kind, end in ((b"m", seq_num), (b"c", coarse)):
            if not end:
                continue
            keys = [key async for key, _ in self._table.items(first=kind, last=kind + _SEQ_NUM.pack(end - 1))]
            for at in range(0, len(keys), _PAGE):
                await self._table.remove(*keys[at : at + _PAGE])

    async def delete(self) -> None:
        """Delete the table, if it exists."""
        with suppress(OperationFailed):
            await self._table.delete()
