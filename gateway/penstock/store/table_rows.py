"""Reading tables of keys and values from the file: the operations that read them, and look-ups for changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from penstock.core.table_rules import (
    check_count,
    check_delta_start,
    check_read_size,
    first_listed,
    listed,
    page_of,
    unknown_table,
)
from penstock.model.table_operations import (
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    TableDelta,
    TableInfo,
    TableItem,
    TablePage,
)
from penstock.store.reader import ReaderThreads

__all__ = ["count_items", "get_info", "key_versions", "list_items", "read_delta", "read_items", "require", "row_of"]

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
        raise unknown_table(name)
    return row


def count_items(db: sqlite3.Connection, name: str) -> tuple[int, int]:
    """Return the id of the table of this name, and its number of items. Raises OperationFailed(STREAM_NOT_FOUND)."""
    table = require(db, name)
    return table.id, _count(db, table)


def key_versions(db: sqlite3.Connection, table: int, keys: Iterable[bytes]) -> dict[bytes, int]:
    """Return the versions of the keys that exist, in the order of `keys`."""
    rows = ((key, db.execute(_VERSION, (table, key)).fetchone()) for key in dict.fromkeys(keys))
    return {key: row[0] for key, row in rows if row is not None}


async def get_info(reader: ReaderThreads, operation: GetTableInfo) -> TableInfo:
    """Carry out `GetTableInfo`. History begins at 0, since it is kept as long as the table."""
    return await reader.run(partial(_info, name=operation.table))


async def read_items(reader: ReaderThreads, operation: ReadTable) -> tuple[TableItem | None, ...]:
    """Carry out `ReadTable`."""
    return await reader.run(partial(_read_items, operation=operation))


async def list_items(reader: ReaderThreads, operation: ListTable) -> TablePage:
    """Carry out `ListTable`."""
    check_count(operation.count)
    return await reader.run(partial(_list_items, operation=operation))


async def read_delta(reader: ReaderThreads, operation: ReadTableDelta) -> TableDelta:
    """Carry out `ReadTableDelta`."""
    check_count(operation.count)
    return await reader.run(partial(_read_delta, operation=operation))


def _info(db: sqlite3.Connection, name: str) -> TableInfo:
    table = require(db, name)
    return TableInfo(0, table.length, _count(db, table), table.key_length)


def _count(db: sqlite3.Connection, table: TableRow) -> int:
    count: int = db.execute(_COUNT, (table.id,)).fetchone()[0]
    return count


def _read_items(db: sqlite3.Connection, operation: ReadTable) -> tuple[TableItem | None, ...]:
    table = require(db, operation.table).id
    items: list[TableItem | None] = []
    size = 0
    for key in operation.keys:
        row = db.execute(_ITEM, (table, key)).fetchone()
        items.append(None if row is None else TableItem(*row))
        size += 0 if row is None else len(row[0]) + len(row[1])
        check_read_size(size)
    return tuple(items)


def _list_items(db: sqlite3.Connection, operation: ListTable) -> TablePage:
    table = require(db, operation.table).id
    rows = db.execute(_FROM_KEY, (table, first_listed(operation), operation.count + 1))
    items, has_more = page_of(listed((TableItem(*row) for row in rows), operation), operation.count)
    return TablePage(items, has_more)


def _read_delta(db: sqlite3.Connection, operation: ReadTableDelta) -> TableDelta:
    table = require(db, operation.table)
    check_delta_start(operation.from_position, table.length)
    rows = db.execute(_FROM_VERSION, (table.id, operation.from_position, operation.count + 1))
    items, has_more = page_of((TableItem(*row) for row in rows), operation.count)
    next_position = items[-1].version + 1 if has_more else table.length
    return TableDelta(items, should_clear=False, reached_end=not has_more, next_position=next_position)
