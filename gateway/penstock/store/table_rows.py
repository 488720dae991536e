"""Reading tables of keys and values from the file: the operations that read them, and look-ups for changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from penstock.store.reader import ReaderThreads
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.limits import MIB
from penstock_codecs.table_operations import (
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    TableDelta,
    TableInfo,
    TableItem,
    TablePage,
)

__all__ = ["count_items", "get_info", "key_versions", "list_items", "read_delta", "read_items", "require", "row_of"]

PAGE_BYTES: Final = 1 * MIB
"""Bytes of items at which a page or a delta ends."""
READ_BYTES: Final = 8 * MIB
"""Most bytes of items in one read by keys, whose result cannot be split."""

_TABLE: Final = "SELECT id, length, key_length FROM tables WHERE name = ?"
_COUNT: Final = "SELECT count(*) FROM table_items WHERE table_id = ?"
_VERSION: Final = "SELECT version FROM table_items WHERE table_id = ? AND key = ?"
_ITEM: Final = "SELECT key, value, version FROM table_items WHERE table_id = ? AND key = ?"
_FROM_KEY: Final = """
SELECT key, value, version FROM table_items WHERE table_id = ? AND key >= ? ORDER BY key LIMIT ?
"""
_FROM_VERSION: Final = """
SELECT key, value, version FROM table_items WHERE table_id = ? AND version >= ? ORDER BY version LIMIT ?
"""


class TableRow(NamedTuple):
    """A table. `length`: the version that the next change gets."""

    id: int
    length: int
    key_length: int


def row_of(db: sqlite3.Connection, name: str) -> TableRow | None:
    """Return the table of this name, or None."""
    try:
        row = db.execute(_TABLE, (name,)).fetchone()
    except UnicodeEncodeError:  # no table's name has a lone surrogate
        return None
    return None if row is None else TableRow(*row)


def require(db: sqlite3.Connection, name: str) -> TableRow:
    """Return the table of this name. Raises OperationFailed(STREAM_NOT_FOUND)."""
    row = row_of(db, name)
    if row is None:
        raise fail(FailureCode.STREAM_NOT_FOUND, f"there is no table {name!r}")
    return row


def count_items(db: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Return the id of the table of this name, and its number of items. Raises OperationFailed(STREAM_NOT_FOUND)."""
    table = require(db, name)
    return table.id, _count(db, table)


def key_versions(db: sqlite3.Connection, table: int, keys: Iterable[bytes]) -> dict[bytes, int]:
    """Return the versions of the keys that exist, in the order of `keys`."""
    found = ((key, db.execute(_VERSION, (table, key)).fetchone()) for key in dict.fromkeys(keys))
    return {key: row[0] for key, row in found if row is not None}


async def get_info(reader: ReaderThreads, operation: GetTableInfo) -> TableInfo:
    """Carry out `GetTableInfo`. History begins at 0, since it is kept as long as the table."""
    return await reader.run(partial(_info, name=operation.table))


async def read_items(reader: ReaderThreads, operation: ReadTable) -> tuple[TableItem | None, ...]:
    """Carry out `ReadTable`."""
    return await reader.run(partial(_read_items, operation=operation))


async def list_items(reader: ReaderThreads, operation: ListTable) -> TablePage:
    """Carry out `ListTable`."""
    _check_count(operation.count)
    return await reader.run(partial(_list_items, operation=operation))


async def read_delta(reader: ReaderThreads, operation: ReadTableDelta) -> TableDelta:
    """Carry out `ReadTableDelta`."""
    _check_count(operation.count)
    return await reader.run(partial(_read_delta, operation=operation))


def _check_count(count: int) -> None:
    if count < 1:
        raise fail(FailureCode.INVALID, f"the count of items must be at least 1, not {count}")


def _info(db: sqlite3.Connection, name: str) -> TableInfo:
    table = require(db, name)
    return TableInfo(0, table.length, _count(db, table), table.key_length)


def _count(db: sqlite3.Connection, table: TableRow) -> int:
    count: int = db.execute(_COUNT, (table.id,)).fetchone()[0]
    return count


def _read_items(db: sqlite3.Connection, operation: ReadTable) -> tuple[TableItem | None, ...]:
    table = require(db, operation.table).id
    found: list[TableItem | None] = []
    size = 0
    for key in operation.keys:
        row = db.execute(_ITEM, (table, key)).fetchone()
        found.append(None if row is None else TableItem(*row))
        size += 0 if row is None else len(row[0]) + len(row[1])
        if size > READ_BYTES:
            raise fail(
                FailureCode.LIMIT_EXCEEDED, f"the items of these keys exceed {READ_BYTES} bytes: request fewer keys"
            )
    return tuple(found)


def _list_items(db: sqlite3.Connection, operation: ListTable) -> TablePage:
    table = require(db, operation.table).id
    lowest = max(operation.first or b"", operation.prefix, b"" if operation.after is None else operation.after + b"\0")
    rows = db.execute(_FROM_KEY, (table, lowest, operation.count + 1))
    items, has_more = _page(_until(rows, operation.last, operation.prefix), operation.count)
    return TablePage(items, has_more)


def _until(rows: Iterable[tuple[bytes, bytes, int]], last: bytes | None, prefix: bytes) -> Iterator[TableItem]:
    """Yield the first rows, while their keys begin with `prefix` and are not beyond `last`."""
    for row in rows:
        item = TableItem(*row)
        if not item.key.startswith(prefix) or (last is not None and item.key > last):
            return
        yield item


def _read_delta(db: sqlite3.Connection, operation: ReadTableDelta) -> TableDelta:
    table = require(db, operation.table)
    if not 0 <= operation.from_position <= table.length:
        raise fail(FailureCode.INVALID, f"position {operation.from_position} is not in 0 to {table.length}")
    rows = db.execute(_FROM_VERSION, (table.id, operation.from_position, operation.count + 1))
    items, has_more = _page((TableItem(*row) for row in rows), operation.count)
    next_position = items[-1].version + 1 if has_more else table.length
    return TableDelta(items, should_clear=False, reached_end=not has_more, next_position=next_position)


def _page(items: Iterable[TableItem], count: int) -> tuple[tuple[TableItem, ...], bool]:
    """Return the items that fit into a page, at least one, and whether there are more."""
    found: list[TableItem] = []
    size = 0
    for item in items:
        if len(found) == count or size >= PAGE_BYTES:
            return tuple(found), True
        found.append(item)
        size += len(item.key) + len(item.value)
    return tuple(found), False
