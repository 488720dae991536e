"""A position index as a table of the gateway's state.

| key | value |
|---|---|
| `e` | the end of the stream and its first record: 4 numbers each (sequence number, ms, place, offset) |
| `g` | nothing: its version tells this index from a later one of the same name, if several gateways have the state |
| `c` and a sequence number | timestamp, place and offset of a mark that is always in memory: it begins a page |
| `m` and a sequence number | the same, of any other mark of the newest page |
| `p` and a sequence number | a full page, packed (`columns`), by the number of its first mark |

All numbers are unsigned, 8 bytes, big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.backends.logged_tables import GuardedChange, LoggedTables
from penstock.backends.positions.columns import MarkColumns
from penstock.core.back import Back
from penstock.core.internal_names import GATEWAY_TABLES
from penstock.core.marks import Mark
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Operation
from penstock.model.records import U64_MAX, StreamRef
from penstock.model.table_operations import NOT_EXISTS, ReadTable, TableItem
from penstock.tables.byte_table import ByteTable

__all__ = ["Ends", "IndexTable", "Kept", "NewMarks", "index_name"]

_ENDS_KEY: Final = b"e"
_GENERATION_KEY: Final = b"g"
_ENDS: Final = struct.Struct(">8Q")
_SEQ_NUM: Final = struct.Struct(">Q")
_MARK: Final = struct.Struct(">3Q")
_PAGE: Final = 1000


class Ends(NamedTuple):
    """The end of a stream, and its first record."""

    end: Mark
    first: Mark


class Kept(NamedTuple):
    """The ends of an index as they are kept. `version` changes whenever they do; `generation` when the index is made
    again, after it was deleted. It is 0 before an index of an earlier version of the gateway is changed."""

    ends: Ends
    version: int
    generation: int


def index_name(back: str, stream: StreamRef) -> str:
    """Return the name of the table that holds the index of a stream of the back called `back`."""
    return f"{GATEWAY_TABLES}positions/{back}/{stream}"


class NewMarks(NamedTuple):
    """Marks to be written: pages that are `full`, pages that have `begun`, and new `marks` of the newest page, without
    its first one."""

    full: Sequence[MarkColumns]
    begun: Sequence[MarkColumns]
    marks: Sequence[Mark]


class IndexTable:
    """The table of one index, created when first written to. All methods raise OperationFailed(STORAGE).

    `shared`: the state, if other gateways may have it too; None if it is this gateway's alone.
    """

    def __init__(self, state: Back, name: str) -> None:
        self.shared = state if isinstance(state, LoggedTables) else None
        self._table = ByteTable(state, name)

    def deleted(self) -> OperationFailed:
        """Return the error for what comes after another gateway has deleted the stream."""
        return fail(FailureCode.STREAM_NOT_FOUND, f"{self._table.name}: the stream was deleted through another gateway")

    async def kept(self) -> Kept | None:
        """Return what is kept now, or None if there is no table."""
        return self._kept(await self._table.entries(_ENDS_KEY, _GENERATION_KEY))

    def seen(self) -> Kept | None:
        """Return what is kept in shared state, as far as this gateway has read it."""
        assert self.shared is not None, "other gateways may have it too"
        try:
            return self._kept(self.shared.peek(ReadTable(self._table.name, (_ENDS_KEY, _GENERATION_KEY))))
        except OperationFailed:  # there is no table yet, or none any more
            return None

    def _kept(self, items: Sequence[TableItem | None]) -> Kept | None:
        ends, generation = items
        if ends is None:
            return None
        numbers = _ENDS.unpack(ends.value)
        version = 0 if generation is None else generation.version
        return Kept(Ends(Mark(*numbers[:4]), Mark(*numbers[4:])), ends.version, version)

    def seen_first_marks(self, behind: int) -> list[Mark]:
        """Return the first marks of pages in shared state, those above a sequence number, as far as this gateway has
        read it."""
        return self._seen_marks(b"c", behind)

    def seen_marks(self, behind: int) -> list[Mark]:
        """Return the other marks of the newest page above a sequence number in the same way."""
        return self._seen_marks(b"m", behind)

    def _seen_marks(self, kind: bytes, behind: int) -> list[Mark]:
        assert self.shared is not None, "other gateways may have it too"
        first, last = kind + _SEQ_NUM.pack(behind + 1), kind + _SEQ_NUM.pack(U64_MAX)
        return [
            _mark_of(item.key, item.value) for item in self.shared.peek_items(self._table.name, first=first, last=last)
        ]

    async def coarse(self) -> list[Mark]:
        """Return the marks that are always in memory."""
        return await self._list(b"c", 0, U64_MAX)

    async def newest(self, behind: int) -> list[Mark]:
        """Return the marks of the newest page behind the first, which has this sequence number."""
        return await self._list(b"m", behind + 1, U64_MAX)

    async def page(self, first: Mark, end: int, most: int) -> MarkColumns:
        """Return an older page, which begins with the mark `first`; the next one begins at `end`. `most`: the most
        marks that a page has."""
        (packed,) = await self._table.get(b"p" + _SEQ_NUM.pack(first.seq_num))
        if packed is not None:
            return MarkColumns.unpacked(packed, most)
        return MarkColumns([first, *await self._list(b"m", first.seq_num + 1, end - 1)])  # of an earlier version

    async def _list(self, kind: bytes, first: int, last: int) -> list[Mark]:
        items = self._table.items(first=kind + _SEQ_NUM.pack(first), last=kind + _SEQ_NUM.pack(last))
        return [_mark_of(key, value) async for key, value in items]

    async def write(self, ends: Ends, new: NewMarks, kept: Kept | None) -> bool:
        """Write the ends and marks, all or none. Shared state is changed only if it has `kept`; returns whether it
        was."""
        items = [_item(b"c", page[0]) for page in new.begun]
        items += [_item(b"m", mark) for mark in new.marks]
        items += [TableItem(b"p" + _SEQ_NUM.pack(page[0].seq_num), page.packed()) for page in new.full]
        value = _ENDS.pack(*ends.end, *ends.first)
        if self.shared is None:
            await self._table.update(*items, TableItem(_ENDS_KEY, value))
            return True
        if kept is None or not kept.generation:
            items.append(TableItem(_GENERATION_KEY, b"", NOT_EXISTS))
        version = NOT_EXISTS if kept is None else kept.version
        return await self._table.update(*items, TableItem(_ENDS_KEY, value, version)) is not None

    async def remove_before(self, newest: int, coarse: int, kept: Kept | None) -> None:
        """Remove marks of this generation: of the newest page those before `newest`, and of others those before
        `coarse`."""
        table = self._guarded(kept)
        for kind, end in ((b"m", newest), (b"c", coarse), (b"p", coarse)):
            if not end:
                continue
            keys = [key async for key, _ in self._table.items(first=kind, last=kind + _SEQ_NUM.pack(end - 1))]
            for at in range(0, len(keys), _PAGE):
                await table.remove(*keys[at : at + _PAGE])

    async def delete(self, kept: Kept | None) -> None:
        """Delete the table, if it exists with this generation."""
        try:
            await self._guarded(kept).delete()
        except OperationFailed:
            if self.shared is None or kept is None or not self.shared.loaded:
                raise
            seen = self.seen()
            if seen is not None and seen.generation == kept.generation:
                raise

    def _guarded(self, kept: Kept | None) -> ByteTable:
        """Return the table, to be changed in shared state only while it has this generation."""
        if self.shared is None or kept is None or not kept.generation:
            return self._table
        name, generation = self._table.name, kept.generation

        def guard(change: Operation[Any]) -> Operation[Any]:
            return GuardedChange(change, name, _GENERATION_KEY, generation)

        return ByteTable(self.shared, name, guard)


def _item(kind: bytes, mark: Mark) -> TableItem:
    return TableItem(kind + _SEQ_NUM.pack(mark.seq_num), _MARK.pack(*mark[1:]))


def _mark_of(key: bytes, value: bytes) -> Mark:
    return Mark(*_SEQ_NUM.unpack(key[1:]), *_MARK.unpack(value))
