"""A position index as a table of the gateway's state.

| key | value |
|---|---|
| `e` | the end of the stream and its first record: 4 numbers each (sequence number, ms, place, offset) |
| `g` | nothing: its version tells this index from a later one of the same name, if several gateways have the state |
| `c` and a sequence number | timestamp, place and offset of a mark that is always in memory |
| `m` and a sequence number | the same, of any other mark |

All numbers are unsigned, 8 bytes, big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.backends.kept_table import KeptTable
from penstock.backends.logged_tables import GuardedChange, LoggedTables
from penstock.core.back import Back
from penstock.core.marks import Mark
from penstock.core.segment_names import INTERNAL_TABLES
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import U64_MAX, StreamRef
from penstock_codecs.operations import Operation
from penstock_codecs.table_operations import NOT_EXISTS, ListTable, ReadTable, TableItem

__all__ = ["Ends", "IndexTable", "Kept", "index_name"]

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
    again, after it was deleted."""

    ends: Ends
    version: int
    generation: int


def index_name(back: str, stream: StreamRef) -> str:
    """Return the name of the table that holds the index of a stream of the back called `back`."""
    return f"{INTERNAL_TABLES}positions/{back}/{stream}"


class IndexTable:
    """The table of one index, created when first written to. All methods raise OperationFailed(STORAGE).

    `shared`: the state, if other gateways may have it too; None if it is this gateway's alone.
    """

    def __init__(self, state: Back, name: str) -> None:
        self.shared = state if isinstance(state, LoggedTables) else None
        self._table = KeptTable(state, name)

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

    def _kept(self, found: Sequence[TableItem | None]) -> Kept | None:
        ends, generation = found
        if ends is None:
            return None
        numbers = _ENDS.unpack(ends.value)
        version = 0 if generation is None else generation.version
        return Kept(Ends(Mark(*numbers[:4]), Mark(*numbers[4:])), ends.version, version)

    async def coarse(self) -> list[Mark]:
        """Return the marks that are always in memory."""
        return await self._list(b"c", 0, U64_MAX)

    async def marks(self, behind: int, end: int | None) -> list[Mark]:
        """Return the other marks with sequence numbers above `behind` and below `end`."""
        return await self._list(b"m", behind + 1, U64_MAX if end is None else end - 1)

    def seen_marks(self, behind: int) -> tuple[list[Mark], set[int]]:
        """Return all marks in shared state with sequence numbers above `behind`, as far as this gateway has read it,
        and the sequence numbers of those that are always in memory."""
        assert self.shared is not None, "other gateways may have it too"
        found: dict[bytes, list[Mark]] = {}
        for kind in (b"c", b"m"):
            marks = found[kind] = []
            first, last = kind + _SEQ_NUM.pack(behind + 1), kind + _SEQ_NUM.pack(U64_MAX)
            after, more = None, True
            while more:
                page = self.shared.peek(ListTable(self._table.name, after=after, first=first, last=last))
                marks += [_mark_of(item.key, item.value) for item in page.items]
                more = page.has_more
                after = page.items[-1].key if more else None
        return sorted(found[b"c"] + found[b"m"]), {mark.seq_num for mark in found[b"c"]}

    async def _list(self, kind: bytes, first: int, last: int) -> list[Mark]:
        items = self._table.items(first=kind + _SEQ_NUM.pack(first), last=kind + _SEQ_NUM.pack(last))
        return [_mark_of(key, value) async for key, value in items]

    async def write(self, ends: Ends, marks: Sequence[Mark], coarse: Collection[int], kept: Kept | None) -> bool:
        """Write the ends and marks, all or none; `coarse`: sequence numbers of the marks that are always in memory.

        Shared state is changed only if it has `kept`; returns whether it was.
        """
        items = [
            TableItem((b"c" if mark.seq_num in coarse else b"m") + _SEQ_NUM.pack(mark.seq_num), _MARK.pack(*mark[1:]))
            for mark in marks
        ]
        value = _ENDS.pack(*ends.end, *ends.first)
        if self.shared is None:
            await self._table.update(*items, TableItem(_ENDS_KEY, value))
            return True
        if kept is None:
            items.append(TableItem(_GENERATION_KEY, b"", NOT_EXISTS))
        version = NOT_EXISTS if kept is None else kept.version
        return await self._table.update(*items, TableItem(_ENDS_KEY, value, version)) is not None

    async def remove_before(self, seq_num: int, coarse: int, kept: Kept | None) -> None:
        """Remove the marks before `seq_num`, and those that are always in memory before `coarse`, of a generation."""
        table = self._guarded(kept)
        for kind, end in ((b"m", seq_num), (b"c", coarse)):
            if not end:
                continue
            keys = [key async for key, _ in self._table.items(first=kind, last=kind + _SEQ_NUM.pack(end - 1))]
            for at in range(0, len(keys), _PAGE):
                await table.remove(*keys[at : at + _PAGE])

    async def delete(self, kept: Kept | None) -> None:
        """Delete the table, if it exists with this generation."""
        with suppress(OperationFailed):
            await self._guarded(kept).delete()

    def _guarded(self, kept: Kept | None) -> KeptTable:
        """Return the table, to be changed in shared state only while it has this generation."""
        if self.shared is None or kept is None:
            return self._table
        name, generation = self._table.name, kept.generation

        def guard(change: Operation[Any]) -> Operation[Any]:
            return GuardedChange(change, name, _GENERATION_KEY, generation)

        return KeptTable(self.shared, name, guard)


def _mark_of(key: bytes, value: bytes) -> Mark:
    return Mark(*_SEQ_NUM.unpack(key[1:]), *_MARK.unpack(value))
