"""A table of the embedded store that holds state of the byte view."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.core.back import Back
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.table_operations import (
    CreateTable,
    DeleteTable,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

__all__ = ["ByteViewTable"]


class ByteViewTable:
    """A table that is created with its first item. A missing table counts as an empty one."""

    def __init__(self, state: Back, name: str) -> None:
        self._state = state
        self._name = name

    async def get(self, *keys: bytes) -> list[bytes | None]:
        """Return the values of these keys, None for each key that is missing."""
        try:
            items = await self._state.perform(ReadTable(self._name, keys))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)
            return [None] * len(keys)
        return [None if item is None else item.value for item in items]

    async def put(self, *items: tuple[bytes, bytes]) -> None:
        """Set values, all or none, durably."""
        update = UpdateTable(self._name, tuple(TableItem(key, value) for key, value in items))
        try:
            await self._state.perform(update)
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)
            await self._create()
            await self._state.perform(update)

    async def remove(self, *keys: bytes) -> None:
        """Remove keys, all or none."""
        try:
            await self._state.perform(RemoveTableKeys(self._name, tuple(map(VersionedKey, keys))))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)

    async def items(self, prefix: bytes = b"") -> AsyncIterator[tuple[bytes, bytes]]:
        """Iterate over all items whose keys begin with `prefix`, in the order of keys."""
        after: bytes | None = None
        while True:
            try:
                page = await self._state.perform(ListTable(self._name, after=after, prefix=prefix))
            except OperationFailed as error:
                _unless(error, FailureCode.STREAM_NOT_FOUND)
                return
            for item in page.items:
                yield item.key, item.value
            if not page.has_more:
                return
            after = page.items[-1].key

    async def delete(self) -> None:
        """Delete the table."""
        try:
            await self._state.perform(DeleteTable(self._name))
        except OperationFailed as error:
            _unless(error, FailureCode.STREAM_NOT_FOUND)

    async def _create(self) -> None:
        try:
            await self._state.perform(CreateTable(self._name))
        except OperationFailed as error:
            _unless(error, FailureCode.RESOURCE_ALREADY_EXISTS)


def _unless(error: OperationFailed, code: FailureCode) -> None:
    if error.failure.code is not code:
        raise error
