"""A table whose values are bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Operation
from penstock.model.table_operations import (
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

__all__ = ["ByteTable"]

R = TypeVar("R")


class ByteTable:
    """A table of `state`. `guard` adds a condition to each change, for a table that only one gateway may change."""

    def __init__(
        self, state: Back, name: str, guard: Callable[[Operation[Any]], Operation[Any]] = lambda change: change
    ) -> None:
        self._state = state
        self.name = name
        self._guard = guard

    async def get(self, *keys: bytes) -> list[bytes | None]:
        """Return the values of these keys, None for each key that is missing."""
        return [None if item is None else item.value for item in await self.entries(*keys)]

    async def entries(self, *keys: bytes) -> tuple[TableItem | None, ...]:
        """Return the items of these keys, None for each key that is missing."""
        try:
            return await self._state.perform(ReadTable(self.name, keys))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)
            return (None,) * len(keys)

    async def put(self, *items: tuple[bytes, bytes]) -> None:
        """Set values, all or none, durably."""
        await self._update(tuple(TableItem(key, value) for key, value in items))

    async def replace(self, key: bytes, value: bytes, version: int, *others: tuple[bytes, bytes]) -> int | None:
        """Set the value of a key that has this version, or NOT_EXISTS, and with it the values of other keys, whatever
        their versions are. Returns the new version, or None if the key has another one."""
        beside = (TableItem(other, its_value) for other, its_value in others)
        versions = await self.update(TableItem(key, value, version), *beside)
        return None if versions is None else versions[0]

    async def update(self, *items: TableItem) -> tuple[int, ...] | None:
        """Set values, all or none, durably. Returns the new versions, or None if a key has not the version of its
        item."""
        try:
            return await self._update(items)
        except OperationFailed as error:
            _unless(error, FailureCode.TABLE_KEY_VERSION, FailureCode.TABLE_KEY_NOT_FOUND)
            return None

    async def add(self, *items: tuple[bytes, bytes]) -> None:
        """Set values of keys that do not exist; those that exist stay as they are."""
        while items:
            try:
                await self._update(tuple(TableItem(key, value, NOT_EXISTS) for key, value in items))
                return
            except OperationFailed as error:
                _unless(error, FailureCode.TABLE_KEY_VERSION)
            values = await self.get(*(key for key, _ in items))
            items = tuple(item for item, value in zip(items, values, strict=True) if value is None)

    async def remove(self, *keys: bytes) -> None:
        """Remove keys, all or none."""
        try:
            await self._state.perform(self._guard(RemoveTableKeys(self.name, tuple(map(VersionedKey, keys)))))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)

    async def remove_version(self, key: bytes, version: int, *others: bytes) -> bool:
        """Remove a key that has this version, and other keys with it. Returns False if it has another one, or is
        gone."""
        keys = (VersionedKey(key, version), *map(VersionedKey, others))
        try:
            await self._state.perform(self._guard(RemoveTableKeys(self.name, keys)))
        except OperationFailed as error:
            _unless(error, FailureCode.TABLE_KEY_VERSION, FailureCode.TABLE_KEY_NOT_FOUND, FailureCode.STREAM_NOT_FOUND)
            return False
        return True

    async def items(
        self, prefix: bytes = b"", *, first: bytes | None = None, last: bytes | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Iterate over all items whose keys begin with `prefix` and are within `first` and `last`, in their order."""
        after: bytes | None = None
        while True:
            try:
                page = await self._state.perform(
                    ListTable(self.name, after=after, first=first, last=last, prefix=prefix)
                )
            except OperationFailed as error:
                _unless(error, FailureCode.STREAM_NOT_FOUND)
                return
            for item in page.items:
                yield item.key, item.value
            if not page.has_more:
                return
            after = page.items[-1].key

    async def page(self, after: bytes, count: int, prefix: bytes = b"") -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return at most `count` keys that begin with `prefix`, after `after`, with their values, in order of keys, and
        whether there are more."""
        try:
            page = await self._state.perform(ListTable(self.name, after=after or None, prefix=prefix, count=count))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)
            return [], False
        return [(item.key, item.value) for item in page.items], page.has_more

    async def delete(self) -> None:
        """Delete the table."""
        try:
            await self._state.perform(self._guard(DeleteTable(self.name)))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)

    async def _update(self, items: tuple[TableItem, ...]) -> tuple[int, ...]:
        update: Operation[tuple[int, ...]] = self._guard(UpdateTable(self.name, items))
        try:
            return await self._state.perform(update)
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)
        try:
            await self._state.perform(CreateTable(self.name))
        except OperationFailed as error:
            _unless(error, FailureCode.RESOURCE_ALREADY_EXISTS)
        return await self._state.perform(update)


def _unless(error: OperationFailed, *codes: FailureCode) -> None:
    if error.failure.code not in codes:
        raise error
