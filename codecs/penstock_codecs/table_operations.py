"""Operations on table segments: keys and values with versions (segment fact sheet, 1.3 and 3.1).

Pravega's clients keep the state that several of them agree on in such tables, and so does our controller. A table is
named by any text that is unique; it is no stream. A version is the position of a key's newest value in the history of
the table: it rises with every change to any key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock_codecs.operations import Operation

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
"""An expected version: whatever is there."""
NOT_EXISTS = -1
"""An expected version: the key must not be there."""


class VersionedKey(NamedTuple):
    """A key and the version that it is expected to have."""

    key: bytes
    version: int = ANY_VERSION


class TableItem(NamedTuple):
    """A key, its value, and its version: found, or expected."""

    key: bytes
    value: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CreateTable(Operation[None]):
    """Create a table. `key_length` in bytes: all keys have it; 0: any. RESOURCE_ALREADY_EXISTS, INVALID (name or key
    length)."""

    table: str
    key_length: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTable(Operation[None]):
    """Delete a table. STREAM_NOT_FOUND, TABLE_NOT_EMPTY."""

    table: str
    must_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class TableInfo:
    """`length`: the position that the next change gets; `start`: the first that `ReadTableDelta` can begin at."""

    start: int
    length: int
    entries: int
    key_length: int


@dataclass(frozen=True, slots=True)
class GetTableInfo(Operation[TableInfo]):
    """About a table. STREAM_NOT_FOUND."""

    table: str


@dataclass(frozen=True, slots=True)
class UpdateTable(Operation[tuple[int, ...]]):
    """Insert or replace items, all or none; the result is their new versions, in order.

    Every expected version is held against the table as it was before the operation, also where a key comes twice.
    `match_length`: the table's `length` must be this. Fails with STREAM_NOT_FOUND, TABLE_KEY_VERSION,
    TABLE_KEY_NOT_FOUND (a version was expected and the key is not there), OFFSET_MISMATCH, INVALID (key length),
    LIMIT_EXCEEDED (a key of more than 8 KiB, a value of more than 1 MiB - 8 KiB).
    """

    table: str
    items: tuple[TableItem, ...]
    match_length: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveTableKeys(Operation[None]):
    """Remove keys, all or none; a key that is not there and may be is no error. Fails as `UpdateTable`."""

    table: str
    keys: tuple[VersionedKey, ...]
    match_length: int | None = None


@dataclass(frozen=True, slots=True)
class ReadTable(Operation[tuple[TableItem | None, ...]]):
    """The items of these keys, in order; None where a key is not there. STREAM_NOT_FOUND, LIMIT_EXCEEDED where they
    have more than 8 MiB together."""

    table: str
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TablePage:
    """Part of a table in key order."""

    items: tuple[TableItem, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class ListTable(Operation[TablePage]):
    """Items in the order of their keys (bytes): those after `after` and at or after `first`, up to `last`, inclusive;
    at most `count` of them, and about 1 MiB, at least one. `prefix`: keys that begin so. STREAM_NOT_FOUND, INVALID
    (`count` below 1)."""

    table: str
    after: bytes | None = None
    first: bytes | None = None
    last: bytes | None = None
    prefix: bytes = b""
    count: int = 1000


@dataclass(frozen=True, slots=True)
class TableDelta:
    """What changed. `next_position`: where to go on. `reached_end`: this is all there is now. `should_clear`: the
    history before the asked position is gone, so begin anew with these items."""

    items: tuple[TableItem, ...]
    should_clear: bool
    reached_end: bool
    next_position: int


@dataclass(frozen=True, slots=True)
class ReadTableDelta(Operation[TableDelta]):
    """Items whose version is at or above `from_position` and that are still current, in the order of versions; at most
    `count`, and about 1 MiB, at least one. Removed keys do not show. STREAM_NOT_FOUND, INVALID (`count` below 1, a
    position beyond the table's length)."""

    table: str
    from_position: int
    count: int
