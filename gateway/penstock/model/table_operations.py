"""Operations on tables: keys and values with versions (segment fact sheet, 1.3 and 3.1).

Clients keep shared state in such tables, and so does the gateway. A table is named by any unique text; it
is not a stream. A version is the position of a key's newest value in the history of the table: it rises with every
change to any key.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from penstock.model.operations import Operation

__all__ = [
    "ANY_VERSION",
    "NOT_EXISTS",
    "CreateTable",
    "DeleteTable",
    "GetTableInfo",
    "ListTable",
    "ReadTable",
    "ReadTableDelta",
    "RemoveTableKeys",
    "TableDelta",
    "TableInfo",
    "TableItem",
    "TablePage",
    "UpdateTable",
    "VersionedKey",
]

ANY_VERSION = -(1 << 63)
"""An expected version that matches any, and a missing key."""
NOT_EXISTS = -1
"""An expected version: the key must not exist."""


class VersionedKey(NamedTuple):
    """A key and its expected version."""

    key: bytes
    version: int = ANY_VERSION


class TableItem(NamedTuple):
    """A key, its value, and its version: found, or expected."""

    key: bytes
    value: bytes
    version: int = ANY_VERSION


class CreateTable(Operation[None], frozen=True):
    """Create a table. `key_length`: bytes of every key; 0: any. Fails with RESOURCE_ALREADY_EXISTS, INVALID (name or
    key length)."""

    table: str
    key_length: int = 0


class DeleteTable(Operation[None], frozen=True):
    """Delete a table. Fails with STREAM_NOT_FOUND, TABLE_NOT_EMPTY."""

    table: str
    must_be_empty: bool = False


class TableInfo(Struct, frozen=True):
    """State of a table. `length`: the position of the next change; `start`: the first that `ReadTableDelta` can begin
    at."""

    start: int
    length: int
    entries: int
    key_length: int


class GetTableInfo(Operation[TableInfo], frozen=True):
    """Get the state of a table. Fails with STREAM_NOT_FOUND."""

    table: str


class UpdateTable(Operation[tuple[int, ...]], frozen=True):
    """Insert or replace items, all or none; the result is their new versions, in order.

    Every expected version is compared with the table as it was before the operation, even if a key occurs twice.
    `match_length`: required `length` of the table. Fails with STREAM_NOT_FOUND, TABLE_KEY_VERSION, TABLE_KEY_NOT_FOUND
    (a version was expected of a missing key; if all keys have the same length, that is TABLE_KEY_VERSION),
    OFFSET_MISMATCH, INVALID (key length), LIMIT_EXCEEDED (a key of more than 8 KiB, a value of more than 1 MiB - 8
    KiB).
    """

    table: str
    items: tuple[TableItem, ...]
    match_length: int | None = None


class RemoveTableKeys(Operation[None], frozen=True):
    """Remove keys, all or none; a missing key is an error only if a version of it was expected. Fails as `UpdateTable`
    does."""

    table: str
    keys: tuple[VersionedKey, ...]
    match_length: int | None = None


class ReadTable(Operation[tuple[TableItem | None, ...]], frozen=True):
    """Get the items of these keys, in order; None for a missing key. Fails with STREAM_NOT_FOUND, and LIMIT_EXCEEDED if
    they have more than 8 MiB together."""

    table: str
    keys: tuple[bytes, ...]


class TablePage(Struct, frozen=True):
    """A part of a table, sorted by key."""

    items: tuple[TableItem, ...]
    has_more: bool


class ListTable(Operation[TablePage], frozen=True):
    """List items in the order of their keys (bytes): those after `after` and at or after `first`, up to and including
    `last`; at most `count` of them, and about 1 MiB, at least one. `prefix`: keys that begin with it. Fails with
    STREAM_NOT_FOUND, INVALID (`count` below 1)."""

    table: str
    after: bytes | None = None
    first: bytes | None = None
    last: bytes | None = None
    prefix: bytes = b""
    count: int = 1000


class TableDelta(Struct, frozen=True):
    """The changes of a table. `next_position`: where to continue. `reached_end`: there are no more changes now.
    `should_clear`: the history before the requested position is gone, so start over with these items."""

    items: tuple[TableItem, ...]
    should_clear: bool
    reached_end: bool
    next_position: int


class ReadTableDelta(Operation[TableDelta], frozen=True):
    """List items whose version is at or above `from_position` and that are still current, in the order of versions; at
    most `count`, and about 1 MiB, at least one. Removed keys are not listed. Fails with STREAM_NOT_FOUND, INVALID
    (`count` below 1, a position beyond the table's length)."""

    table: str
    from_position: int
    count: int
