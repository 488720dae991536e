"""Operations on the stores' tables (segment fact sheet, 1.3, Tables)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.core.internal_names import GATEWAY_TABLES
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.table_operations import (
    NOT_EXISTS,
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
)
from penstock_pravega.codec import TableEntry, TableKey, released
from penstock_pravega.segment.back.stores import SegmentStores

__all__ = ["SegmentTables"]

ANY_LENGTH: Final = -1
_LISTED_AT_A_TIME: Final = 1000
_MOST_LISTED: Final = 8 * MIB
"""Most bytes of a table to list: stores give its keys in no order, so they are all sorted here."""
_ITEM_COST: Final = 200


class SegmentTables:
    """Operations on tables.

    Tables are created such that their changes can be read, which Pravega's sorted ones do not allow.
    """

    def __init__(self, stores: SegmentStores) -> None:
        self._stores = stores
        self.handlers: dict[type, Callable[[Any], Awaitable[Any]]] = {
            CreateTable: self._create,
            DeleteTable: self._delete,
            GetTableInfo: self._info,
            UpdateTable: self._update,
            RemoveTableKeys: self._remove,
            ReadTable: self._read,
            ListTable: self._list,
            ReadTableDelta: self._read_delta,
        }

    async def _ask(self, table: str, make: Callable[[int, str], Any], *, idempotent: bool = False) -> Any:
        if table.startswith(GATEWAY_TABLES):
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{table!r:.80} is not a table segment's name")
        return await self._stores.ask(table, make, idempotent=idempotent)

    async def _create(self, operation: CreateTable) -> None:
        table = operation.table
        await self._ask(
            table,
            lambda request_id, token: released.CreateTableSegment(
                request_id, table, token, sorted=False, key_length=operation.key_length
            ),
        )

    async def _delete(self, operation: DeleteTable) -> None:
        table, empty = operation.table, operation.must_be_empty
        await self._ask(table, lambda request_id, token: released.DeleteTableSegment(request_id, table, empty, token))

    async def _info(self, operation: GetTableInfo) -> TableInfo:
        table = operation.table
        reply = await self._ask(
            table, lambda request_id, token: released.GetTableSegmentInfo(request_id, table, token), idempotent=True
        )
        return TableInfo(reply.start_offset, reply.length, reply.entry_count, reply.key_length)

    async def _update(self, operation: UpdateTable) -> tuple[int, ...]:
        table, length = operation.table, _length(operation.match_length)
        entries = tuple(TableEntry(TableKey(item.key, item.version), item.value) for item in operation.items)
        try:
            reply = await self._ask(
                table,
                lambda request_id, token: released.UpdateTableEntries(request_id, table, token, entries, length),
            )
        except OperationFailed as error:
            raise _changed(error, [item.key for item in operation.items]) from None
        return tuple(reply.versions)

    async def _remove(self, operation: RemoveTableKeys) -> None:
        table, length = operation.table, _length(operation.match_length)
        keys = tuple(TableKey(key.key, key.version) for key in operation.keys)
        try:
            await self._ask(
                table, lambda request_id, token: released.RemoveTableKeys(request_id, table, token, keys, length)
            )
        except OperationFailed as error:
            raise _changed(error, [key.key for key in operation.keys]) from None

    async def _read(self, operation: ReadTable) -> tuple[TableItem | None, ...]:
        table = operation.table
        keys = tuple(map(TableKey, operation.keys))
        reply = await self._ask(
            table, lambda request_id, token: released.ReadTable(request_id, table, token, keys), idempotent=True
        )
        return tuple(None if entry.key.version == NOT_EXISTS else _item(entry) for entry in reply.entries)

    async def _list(self, operation: ListTable) -> TablePage:
        if operation.count < 1:
            raise fail(FailureCode.INVALID, "a page of a table has at least one item")
        items = sorted(item for item in await self._all(operation.table) if _is_listed(item.key, operation))
        page: list[TableItem] = []
        size = 0
        for item in items[: operation.count]:
            size += len(item.key) + len(item.value)
            if page and size > 1 * MIB:
                break
            page.append(item)
        return TablePage(tuple(page), has_more=len(items) > len(page))

    async def _all(self, table: str) -> list[TableItem]:
        """Return all items. Raises LIMIT_EXCEEDED if they are too many to be sorted here."""
        items: list[TableItem] = []
        size, after = 0, b""
        while True:
            reply = await self._ask(table, _page(table, after), idempotent=True)
            items += map(_item, reply.entries)
            size += sum(len(entry.key.key) + len(entry.value) + _ITEM_COST for entry in reply.entries)
            after = reply.continuation_token
            if not reply.entries or not after:
                return items
            if size > _MOST_LISTED:
                raise fail(FailureCode.LIMIT_EXCEEDED, f"table {table} is too large to be listed in the order of keys")

    async def _read_delta(self, operation: ReadTableDelta) -> TableDelta:
        table, start, count = operation.table, operation.from_position, operation.count
        if count < 1:
            raise fail(FailureCode.INVALID, "a page of a table has at least one item")
        reply = await self._ask(
            table,
            lambda request_id, token: released.ReadTableEntriesDelta(request_id, table, token, start, count),
            idempotent=True,
        )
        items = sorted(map(_item, reply.entries), key=lambda item: item.version)
        position = reply.last_position if items else max(reply.last_position, start)
        return TableDelta(tuple(items), reply.should_clear, reply.reached_end, position)


def _page(table: str, after: bytes) -> Callable[[int, str], released.ReadTableEntries]:
    def make(request_id: int, token: str) -> released.ReadTableEntries:
        return released.ReadTableEntries(request_id, table, token, _LISTED_AT_A_TIME, after)

    return make


def _length(match: int | None) -> int:
    return ANY_LENGTH if match is None else match


def _item(entry: TableEntry) -> TableItem:
    return TableItem(entry.key.key, entry.value, entry.key.version)


def _is_listed(key: bytes, operation: ListTable) -> bool:
    if operation.after is not None and key <= operation.after:
        return False
    if operation.first is not None and key < operation.first:
        return False
    return (operation.last is None or key <= operation.last) and key.startswith(operation.prefix)


def _changed(error: OperationFailed, keys: list[bytes]) -> OperationFailed:
    """Return the failure of a refused change. Stores do not say which key it was; of several, the key is left empty."""
    failure = error.failure
    if failure.code is FailureCode.OFFSET_TRUNCATED:
        return OperationFailed(Failure(FailureCode.OFFSET_MISMATCH, failure.message, failure.details))
    if failure.code in (FailureCode.TABLE_KEY_VERSION, FailureCode.TABLE_KEY_NOT_FOUND):
        return OperationFailed(Failure(failure.code, failure.message, {"key": keys[0] if len(keys) == 1 else b""}))
    return error
