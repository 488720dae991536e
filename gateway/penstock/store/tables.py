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

from penstock.store.committer import Committer, Statement
from penstock.store.reader import ReaderThreads
from penstock.store.table_rows import count_items, key_versions, require, row_of
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.limits import SEGMENT_MAX_NAME, SEGMENT_MAX_TABLE_KEY, SEGMENT_MAX_TABLE_VALUE
from penstock_codecs.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    RemoveTableKeys,
    UpdateTable,
    VersionedKey,
)

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
        _check_name(operation.table)
        if not 0 <= operation.key_length <= SEGMENT_MAX_TABLE_KEY:
            raise fail(FailureCode.INVALID, f"the length of a table's keys must be 0 to {SEGMENT_MAX_TABLE_KEY} bytes")
        async with self._turn(operation.table):
            if await self._reader.run(partial(row_of, name=operation.table)) is not None:
                raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"table {operation.table!r} already exists")
            await self._write([(_INSERT, (operation.table, operation.key_length))], None)

    async def delete(self, operation: DeleteTable) -> None:
        """Carry out `DeleteTable`. Its rows go in the same transaction: tables are small compared with streams."""
        async with self._turn(operation.table):
            number, entries = await self._reader.run(partial(count_items, name=operation.table))
            if operation.must_be_empty and entries:
                raise fail(FailureCode.TABLE_NOT_EMPTY, f"table {operation.table!r} has {entries} entries")
            await self._write([(statement, (number,)) for statement in _DELETE], None)

    async def update(self, operation: UpdateTable) -> tuple[int, ...]:
        """Carry out `UpdateTable` and return the new versions of the items."""
        _check_sizes(operation)
        async with self._turn(operation.table):
            table = await self._find(operation.table, [item.key for item in operation.items])
            _check_length(table, operation.match_length)
            _check_versions(table, [VersionedKey(item.key, item.version) for item in operation.items])
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
            _check_length(table, operation.match_length)
            _check_versions(table, operation.keys)
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


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= SEGMENT_MAX_NAME:
        raise fail(FailureCode.INVALID, f"a table's name must be 1 to {SEGMENT_MAX_NAME} bytes of UTF-8")


def _check_sizes(operation: UpdateTable) -> None:
    for key, value, _ in operation.items:
        for what, size, most in (
            ("key", len(key), SEGMENT_MAX_TABLE_KEY),
            ("value", len(value), SEGMENT_MAX_TABLE_VALUE),
        ):
            if size > most:
                raise fail(FailureCode.LIMIT_EXCEEDED, f"the {what} has {size} bytes, at most {most} are allowed")


def _check_length(table: _Found, expected: int | None) -> None:
    if expected not in (None, table.length):
        raise fail(
            FailureCode.OFFSET_MISMATCH,
            f"the table's length is {table.length}, not {expected}",
            offset=table.length,
        )


def _check_versions(table: _Found, keys: Iterable[VersionedKey]) -> None:
    """Check each key against the table before the operation, regardless of other keys in the same operation."""
    for key, expected in keys:
        if table.key_length not in (0, len(key)):
            raise fail(
                FailureCode.INVALID, f"the key has {len(key)} bytes, the keys of this table have {table.key_length}"
            )
        version = table.versions.get(key)
        if expected in (ANY_VERSION, NOT_EXISTS if version is None else version):
            continue
        if version is None and not table.key_length:  # Pravega's tables of keys of one length do not tell
            raise fail(FailureCode.TABLE_KEY_NOT_FOUND, f"there is no key {key!r:.80}", key=key)
        raise fail(
            FailureCode.TABLE_KEY_VERSION,
            f"key {key!r:.80} has {'no version' if version is None else f'version {version}'}, not {expected}",
            key=key,
        )
