"""Tables in memory as the records of a log have made them, and changes that are decided against them. No I/O.

| key of a record | value |
|---|---|
| `t`, the name of a table | 8 bytes, the id of the table; 2 bytes, the length of its keys, 0 for any |
| `i`, 8 bytes, the id of a table, then the key of an item | the value of the item |

A record without a value removes what its key names. The version of an item is the position of its record in the log.
The length of a table is the position behind its newest record; a removal writes the table's own record again, so that
it counts.
"""

from __future__ import annotations

import secrets
import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from penstock.core.table_rules import (
    check_count,
    check_creation,
    check_delta_start,
    check_empty,
    check_length,
    check_read_size,
    check_sizes,
    check_versions,
    first_listed,
    listed,
    page_of,
    unknown_table,
)
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import KIB
from penstock.model.operations import Operation
from penstock.model.table_operations import (
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableDelta,
    TableInfo,
    TableItem,
    TablePage,
    UpdateTable,
    VersionedKey,
)

__all__ = ["GuardedChange", "LoggedBatch", "TableChange", "TableDecision", "TableState"]

R = TypeVar("R")

_TABLE: Final = b"t"
_ITEM: Final = b"i"
_ID_BYTES: Final = 8
_ROW: Final = struct.Struct(f">{_ID_BYTES}sH")
_ITEM_KEY: Final = 1 + _ID_BYTES
_OVERHEAD: Final = 200
"""Bytes of memory of an item beside its key and value."""
_CLEARED: Final = 1000
_CLEARED_BYTES: Final = 64 * KIB
"""Most items of deleted tables that are removed with one change, and the bytes of keys after which it has enough."""


class GuardedChange(Operation[R], frozen=True):
    """Carry out a change of tables if a key of a table, which may be another one, has this version. Fails with
    HOT_SERVER if it has not, and as the change does."""

    change: Operation[R]
    table: str
    key: bytes
    version: int


class TableChange(NamedTuple):
    """One record of the log. `value`: None removes what `key` names."""

    key: bytes
    value: bytes | None


class LoggedBatch(NamedTuple):
    """Records that were appended together, with their positions. `author`: the random bytes that the gateway which
    wrote them gave them, b"" if compaction has removed them."""

    author: bytes
    changes: Sequence[tuple[int, TableChange]]


class TableDecision(NamedTuple):
    """The records that carry out an operation; `versions`: how many positions of theirs, from the first on, are its
    result. `exclusive`: names of records that no other operation may touch or depend on in the same batch, and
    `shared`: those that it depends on."""

    changes: tuple[TableChange, ...]
    exclusive: frozenset[bytes]
    shared: frozenset[bytes] = frozenset()
    versions: int | None = None


class _Content(msgspec.Struct):
    """The items of a table, by key. `newest`: the position of the newest of them."""

    items: dict[bytes, TableItem] = msgspec.field(default_factory=dict)
    newest: int = -1
    _sorted: list[bytes] | None = None

    def put(self, item: TableItem) -> None:
        if item.key not in self.items and self._sorted is not None:
            insort(self._sorted, item.key)
        self.items[item.key] = item
        self.newest = max(self.newest, item.version)

    def remove(self, key: bytes) -> None:
        if self.items.pop(key, None) is not None:
            self._sorted = None  # removals come in thousands, and each would move all keys behind it

    def from_key(self, first: bytes) -> Iterator[TableItem]:
        if self._sorted is None:
            self._sorted = sorted(self.items)
        keys = self._sorted
        return (self.items[keys[index]] for index in range(bisect_left(keys, first), len(keys)))


class _Row(NamedTuple):
    """The record of a table. `position`: its own."""

    id: bytes
    key_length: int
    position: int


class TableState:
    """All tables. `size`: about how many bytes of memory they take; `max_bytes`: how many changes may fill."""

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._rows: dict[str, _Row] = {}
        self._kept: set[bytes] = set()  # their ids
        self._contents: dict[bytes, _Content] = {}  # also of tables whose record comes later, or is gone
        self._loose: set[bytes] = set()  # the ids of those
        self._reads: dict[type[Operation[Any]], Callable[[Any], Any]] = {
            GetTableInfo: self._info,
            ReadTable: self._read,
            ListTable: self._list,
            ReadTableDelta: self._delta,
        }
        self._changes: dict[type[Operation[Any]], Callable[[Any], TableDecision]] = {
            CreateTable: self._create,
            DeleteTable: self._delete,
            UpdateTable: self._update,
            RemoveTableKeys: self._remove,
            GuardedChange: self._guarded,
        }

    # ---- the log -----------------------------------------------------------------------------------------------------

    def apply(self, position: int, change: TableChange) -> None:
        """Carry out a record of the log. Records of other kinds than the above are skipped."""
        key, value = change
        if key.startswith(_TABLE):
            self._apply_row(key[1:].decode(errors="replace"), value, position)
        elif key.startswith(_ITEM) and len(key) >= _ITEM_KEY:
            self._apply_item(key[1:_ITEM_KEY], key[_ITEM_KEY:], value, position)

    def _apply_row(self, name: str, value: bytes | None, position: int) -> None:
        if (before := self._rows.pop(name, None)) is not None:
            self.size -= _OVERHEAD
            self._kept.discard(before.id)
            if before.id in self._contents:
                self._loose.add(before.id)
        if value is not None and len(value) == _ROW.size:
            number, key_length = _ROW.unpack(value)
            row = self._rows[name] = _Row(number, key_length, position)
            self.size += _OVERHEAD
            self._kept.add(row.id)
            self._loose.discard(row.id)

    def _apply_item(self, number: bytes, key: bytes, value: bytes | None, position: int) -> None:
        content = self._contents.get(number)
        if content is None:
            content = self._contents[number] = _Content()
            if number not in self._kept:
                self._loose.add(number)
        self.size -= _size_of(content.items.get(key))
        if value is not None:
            item = TableItem(key, value, position)
            self.size += _size_of(item)
            content.put(item)
        else:
            content.remove(key)
            if not content.items:
                del self._contents[number]
                self._loose.discard(number)

    def is_newest(self, position: int, change: TableChange) -> bool:
        """Return whether a record that was applied still sets what its key names."""
        key, _ = change
        if key.startswith(_TABLE):
            row = self._rows.get(key[1:].decode(errors="replace"))
            return row is not None and row.position == position
        content = self._contents.get(key[1:_ITEM_KEY])
        item = None if content is None else content.items.get(key[_ITEM_KEY:])
        return item is not None and item.version == position

    def leftovers(self) -> list[TableChange]:
        """Return records that remove items of tables which no longer exist, a bounded number. The log must have been
        read to its end."""
        keys = (_ITEM + number + key for number in self._loose for key in self._contents[number].items)
        changes: list[TableChange] = []
        size = 0
        for key in islice(keys, _CLEARED):
            changes.append(TableChange(key, None))
            size += len(key)
            if size >= _CLEARED_BYTES:
                break
        return changes

    # ---- changes -----------------------------------------------------------------------------------------------------

    def changes(self, operation: Operation[Any]) -> bool:
        """Return whether this is an operation that changes tables."""
        return type(operation) in self._changes

    def decide(self, operation: Operation[Any]) -> TableDecision:
        """Return the records that carry out an operation now. Raises as the operation does."""
        return self._changes[type(operation)](operation)

    def _guarded(self, operation: GuardedChange[Any]) -> TableDecision:
        row = self._rows.get(operation.table)
        item = None if row is None else self._items(row).get(operation.key)
        if row is None or item is None or item.version != operation.version:
            raise fail(FailureCode.HOT_SERVER, f"another gateway has {operation.key!r:.80} of {operation.table!r}")
        decision = self.decide(operation.change)
        guard = {_ITEM + row.id + operation.key} - decision.exclusive
        return decision._replace(shared=decision.shared | guard)

    def _create(self, operation: CreateTable) -> TableDecision:
        check_creation(operation)
        if operation.table in self._rows:
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"table {operation.table!r} already exists")
        self._check_room(_OVERHEAD)
        key = _row_key(operation.table)
        row = _ROW.pack(secrets.token_bytes(_ID_BYTES), operation.key_length)
        return TableDecision((TableChange(key, row),), frozenset({key}))

    def _delete(self, operation: DeleteTable) -> TableDecision:
        row = self._find(operation.table)
        if operation.must_be_empty:
            check_empty(operation.table, len(self._items(row)))
        key = _row_key(operation.table)
        return TableDecision((TableChange(key, None),), frozenset({key}))

    def _update(self, operation: UpdateTable) -> TableDecision:
        check_sizes(operation)
        row = self._check(
            operation.table, [VersionedKey(item.key, item.version) for item in operation.items], operation.match_length
        )
        replaced = map(self._items(row).get, {item.key for item in operation.items})
        self._check_room(sum(map(_size_of, operation.items)) - sum(map(_size_of, replaced)))
        changes = tuple(TableChange(_ITEM + row.id + item.key, item.value) for item in operation.items)
        return self._in_table(operation.table, changes, operation.match_length, len(operation.items))

    def _remove(self, operation: RemoveTableKeys) -> TableDecision:
        row = self._check(operation.table, operation.keys, operation.match_length)
        items, keys = self._items(row), dict.fromkeys(key for key, _ in operation.keys)
        changes = [TableChange(_ITEM + row.id + key, None) for key in keys if key in items]
        if changes:
            changes.append(TableChange(_row_key(operation.table), _ROW.pack(row.id, row.key_length)))
        touched = self._in_table(operation.table, changes, operation.match_length, None)
        return touched._replace(exclusive=touched.exclusive | {_ITEM + row.id + key for key in keys})

    def _in_table(
        self, table: str, changes: Sequence[TableChange], match_length: int | None, versions: int | None
    ) -> TableDecision:
        """Return a decision that depends on a table: on its keys that are changed, or with a length on all of it."""
        name = _row_key(table)
        touched = frozenset(change.key for change in changes) | (frozenset() if match_length is None else {name})
        return TableDecision(tuple(changes), touched, frozenset({name}) - touched, versions)

    def _check(self, table: str, keys: Sequence[VersionedKey], match_length: int | None) -> _Row:
        row = self._find(table)
        items = self._items(row)
        check_length(self._length(row), match_length)
        versions = {key: items[key].version for key, _ in keys if key in items}
        check_versions(versions, row.key_length, keys)
        return row

    def _check_room(self, more: int) -> None:
        if more > 0 and self.size + more > self._max_bytes:
            reason = f"the gateway's state has {self.size} bytes, at most {self._max_bytes} are allowed"
            raise fail(FailureCode.LIMIT_EXCEEDED, reason)

    # ---- reads -------------------------------------------------------------------------------------------------------

    def reads(self, operation: Operation[Any]) -> bool:
        """Return whether this is an operation that reads tables."""
        return type(operation) in self._reads

    def read(self, operation: Operation[Any]) -> Any:
        """Return the result of an operation that reads tables. Raises as the operation does."""
        return self._reads[type(operation)](operation)

    def _info(self, operation: GetTableInfo) -> TableInfo:
        row = self._find(operation.table)
        return TableInfo(0, self._length(row), len(self._items(row)), row.key_length)

    def _read(self, operation: ReadTable) -> tuple[TableItem | None, ...]:
        items = self._items(self._find(operation.table))
        items_read = tuple(items.get(key) for key in operation.keys)
        check_read_size(sum(len(item.key) + len(item.value) for item in items_read if item is not None))
        return items_read

    def _list(self, operation: ListTable) -> TablePage:
        check_count(operation.count)
        content = self._contents.get(self._find(operation.table).id, _Content())
        return TablePage(*page_of(listed(content.from_key(first_listed(operation)), operation), operation.count))

    def _delta(self, operation: ReadTableDelta) -> TableDelta:
        check_count(operation.count)
        row = self._find(operation.table)
        length = self._length(row)
        check_delta_start(operation.from_position, length)
        changed = [item for item in self._items(row).values() if item.version >= operation.from_position]
        items, has_more = page_of(sorted(changed, key=lambda item: item.version), operation.count)
        next_position = items[-1].version + 1 if has_more else length
        return TableDelta(items, should_clear=False, reached_end=not has_more, next_position=next_position)

    def _find(self, table: str) -> _Row:
        row = self._rows.get(table)
        if row is None:
            raise unknown_table(table)
        return row

    def _items(self, row: _Row) -> dict[bytes, TableItem]:
        content = self._contents.get(row.id)
        return {} if content is None else content.items

    def _length(self, row: _Row) -> int:
        content = self._contents.get(row.id)
        return 1 + max(row.position, -1 if content is None else content.newest)


def _row_key(table: str) -> bytes:
    return _TABLE + table.encode()


def _size_of(item: TableItem | None) -> int:
    return 0 if item is None else len(item.key) + len(item.value) + _OVERHEAD


def sizes_of(changes: Iterable[TableChange]) -> int:
    """Return the bytes of keys and values."""
    return sum(len(change.key) + len(change.value or b"") for change in changes)
