"""Tables of keys and values, in the same file as the streams (segment fact sheet, 1.3 and 3.1).

They hold state that a few clients share, so they are simple rather than fast: a change reads the file, is decided, and
is durable before the next change to the same table begins. Changes to one table take turns; those to different tables
share commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from penstock.core.table_rules import check_creation, check_empty, check_length, check_sizes, check_versions
from penstock.model.failures import FailureCode, fail
from penstock.model.table_operations import CreateTable, DeleteTable, RemoveTableKeys, UpdateTable, VersionedKey
from penstock.store.committer import Committer, Statement
from penstock.store.reader import ReaderThreads
from penstock.store.table_rows import count_items, key_versions, require, row_of

__all__ = ["StoreTables"]

T = TypeVar("T")

_INSERT: Final = "INSERT INTO tables (name, key_length) VALUES (?, ?)"
_DELETE: Final = ("DELETE FROM table_items WHERE table_id = ?", "DELETE FROM tables WHERE id = ?")
_LENGTH: Final = "UPDATE tables SET length = ? WHERE id = ?"
_PUT: Final = """
INSERT INTO table_items (table_id, key, version, value) VALUES (?, ?, ?, ?)
ON CONFLICT (table_id, key) DO UPDATE SET version = excluded.version, value = excluded.value
"""
_REMOVE: Final = "DELETE FROM table_items WHERE table_id = ? AND key = ?"


class _Found(NamedTuple):
    """A table as it is in the file, and the versions of some of its keys; missing keys have none."""

    id: int
    length: int
    key_length: int
    versions: dict[bytes, int]


class StoreTables:
    """The operations that change tables; operations that read them are in `table_rows`."""

    def __init__(self, committer: Committer, reader: ReaderThreads) -> None:
        self._committer = committer
        self._reader = reader
        self._turns: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    async def create(self, operation: CreateTable) -> None:
        """Carry out `CreateTable`."""
        check_creation(operation)
        async with self._turn(operation.table):
            if await self._reader.run(partial(row_of, name=operation.table)) is not None:
                raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"table {operation.table!r} already exists")
            await self._write([(_INSERT, (operation.table, operation.key_length))], None)

    async def delete(self, operation: DeleteTable) -> None:
        """Carry out `DeleteTable`. Its rows go in the same transaction: tables are small compared with streams."""
        async with self._turn(operation.table):
            number, entries = await self._reader.run(partial(count_items, name=operation.table))
            if operation.must_be_empty:
                check_empty(operation.table, entries)
            await self._write([(statement, (number,)) for statement in _DELETE], None)

    async def update(self, operation: UpdateTable) -> tuple[int, ...]:
        """Carry out `UpdateTable` and return the new versions of the items."""
        check_sizes(operation)
        async with self._turn(operation.table):
            table = await self._find(operation.table, [item.key for item in operation.items])
            check_length(table.length, operation.match_length)
            expected = [VersionedKey(item.key, item.version) for item in operation.items]
            check_versions(table.versions, table.key_length, expected)
            versions = tuple(range(table.length, table.length + len(operation.items)))
            statements: list[Statement] = [
                (_PUT, (table.id, item.key, version, item.value))
                for item, version in zip(operation.items, versions, strict=True)
            ]
            size = sum(len(item.key) + len(item.value) for item in operation.items)
            return await self._change(table, statements, versions, size)

    async def remove(self, operation: RemoveTableKeys) -> None:
        """Carry out `RemoveTableKeys`."""
        async with self._turn(operation.table):
            table = await self._find(operation.table, [key for key, _ in operation.keys])
            check_length(table.length, operation.match_length)
            check_versions(table.versions, table.key_length, operation.keys)
            statements: list[Statement] = [(_REMOVE, (table.id, key)) for key in table.versions]
            await self._change(table, statements, None)

    def _turn(self, name: str) -> trio.Lock:
        """Return the lock for changes to a table; it is garbage-collected when no task holds or awaits it."""
        return self._turns.setdefault(name, trio.Lock())

    async def _find(self, name: str, keys: Iterable[bytes]) -> _Found:
        def look_up(db: sqlite3.Connection) -> _Found:
            table = require(db, name)
            return _Found(table.id, table.length, table.key_length, key_versions(db, table.id, keys))

        return await self._reader.run(look_up)

    async def _change(self, table: _Found, statements: Sequence[Statement], result: T, size: int = 0) -> T:
        """Write a change; each statement takes one position of the table's history."""
        if not statements:
            return result
        length = (_LENGTH, (table.length + len(statements), table.id))
        return await self._write([*statements, length], result, size)

    async def _write(self, statements: Sequence[Statement], result: T, size: int = 0) -> T:
        """Write statements and wait until they are durable, even if cancelled: the next change reads the file."""
        with trio.CancelScope(shield=True):
            result = await self._committer.settle(result, statements, size)
        return result  # noqa: RET504  (to the type checker the scope may end the block early)
