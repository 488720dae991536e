"""Key-value tables: their configurations, and the table segments that hold their entries.

The keys of a table are divided among its segments, the partitions, as those of a stream are; but the partitions never
change. When a table is deleted and created again, the numbers of its segments continue, so that a client of the old
table learns that it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from penstock.core.permissions import ANY_PERMISSION, APPEND, MANAGE, Permission
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MAX_TABLE_KEY_BYTES
from penstock.tables.struct_table import Prefix, VersionedValue
from penstock_pravega.controller.controller.catalog import Catalog
from penstock_pravega.controller.controller.names import KEY_VALUE_TABLE_SUFFIX, is_stream
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import KeyValueTable, KeyValueTableState
from penstock_pravega.controller.controller.scopes import Scopes
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.topology import Segment, initial
from penstock_pravega.segment.names import SegmentName

__all__ = ["MAX_PARTITIONS", "KeyValueTables"]

MAX_PARTITIONS: Final = 1000
"""Most partitions of a table."""

_ALL: Final = Prefix("kvt/", KeyValueTable)


def _tables_in(scope: str) -> Prefix[KeyValueTable]:
    return Prefix(f"kvt/{scope}/", KeyValueTable)


class KeyValueTables:
    """The operations on key-value tables. Their entries are changed and read by the segment protocol."""

    def __init__(self, catalog: Catalog, scopes: Scopes) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._scopes = scopes

    async def create(self, scope: str, name: str, config: KeyValueTable) -> None:
        """Create a table.

        Raises INVALID_NAME, INVALID_CONFIG, SCOPE_NOT_FOUND, and TABLE_EXISTS, also if one of its segments exists: a
        reader group of the Python client has a table segment of the same name.
        """
        if not is_stream(name):
            raise ControllerRefusal(ControllerProblem.INVALID_NAME, repr(name))
        _check(config)
        try:
            self._require(scope, name, APPEND | MANAGE)
        except ControllerRefusal:
            raise ControllerRefusal(ControllerProblem.SCOPE_NOT_FOUND, repr(scope)) from None
        key, stored = _tables_in(scope).key(name), name + KEY_VALUE_TABLE_SUFFIX
        async with self._catalog.turn(scope):
            await self._scopes.require(scope)
            async with self._catalog.turn(scope, stored):
                existing = await self._table.get(key)
                if existing is not None and existing.value.state is KeyValueTableState.OPEN:
                    raise ControllerRefusal(ControllerProblem.TABLE_EXISTS, f"{scope}/{name}")
                if existing is not None:
                    await self._finish_deletion(scope, name, existing)
                first = await self._catalog.numbers.following(scope, stored, None)
                record = msgspec.structs.replace(config, state=KeyValueTableState.CREATING, first=first)
                await self._check_free(scope, name, record)
                _, version = await self._table.put(key, record)
                await at_once(
                    lambda segment: self._catalog.segments.create_table(segment, record.key_length),
                    _segments(scope, name, record),
                )
                await self._table.put(key, msgspec.structs.replace(record, state=KeyValueTableState.OPEN), version)

    async def get(self, scope: str, name: str) -> KeyValueTable:
        """Return a table's configuration. Raises TABLE_NOT_FOUND."""
        self._require(scope, name, ANY_PERMISSION)
        stored = await self._table.get(_tables_in(scope).key(name))
        if stored is None or stored.value.state is not KeyValueTableState.OPEN:
            raise ControllerRefusal(ControllerProblem.TABLE_NOT_FOUND, f"{scope}/{name}")
        return stored.value

    async def segments(self, scope: str, name: str) -> tuple[Segment, ...]:
        """Return a table's segments, in the order of their keys. Raises TABLE_NOT_FOUND."""
        return _partitions(await self.get(scope, name))

    async def page(self, scope: str, after: str, limit: int) -> list[str]:
        """Return the first tables after this name that the client may see, in name order. Raises SCOPE_NOT_FOUND."""
        await self._scopes.require(scope)
        names: list[str] = []
        more = True
        while more and len(names) < limit:
            rows, more = await self._table.page(_tables_in(scope), after)
            names += [
                name for name, table in rows if table.state is KeyValueTableState.OPEN and self._is_seen(scope, name)
            ]
            after = rows[-1][0] if rows else after
        return names[:limit]

    async def delete(self, scope: str, name: str) -> None:
        """Delete a table with its entries. Raises TABLE_NOT_FOUND."""
        self._require(scope, name, APPEND | MANAGE)
        key = _tables_in(scope).key(name)
        async with self._catalog.turn(scope, name + KEY_VALUE_TABLE_SUFFIX):
            stored = await self._table.get(key)
            if stored is None or stored.value.state is KeyValueTableState.CREATING:
                raise ControllerRefusal(ControllerProblem.TABLE_NOT_FOUND, f"{scope}/{name}")
            record = msgspec.structs.replace(stored.value, state=KeyValueTableState.DELETING)
            await self._finish_deletion(scope, name, await self._table.put(key, record, stored.version))
            await self._catalog.end_turns(scope, name + KEY_VALUE_TABLE_SUFFIX)

    async def delete_all(self, scope: str) -> None:
        """Delete all tables of a scope, also those that were being created or deleted."""
        names = [name async for name, _ in self._table.each(_tables_in(scope))]
        for name in names:
            with suppress(ControllerRefusal):  # another request deleted it first
                await self.delete(scope, name)
        await self.clear(scope)

    async def clear(self, scope: str) -> None:
        """Delete the tables of a scope that were being created or deleted. The caller may have the scope's turn."""
        unfinished = [name async for name, table in self._table.each(_tables_in(scope)) if table.unfinished]
        for name in unfinished:
            await self._clear(scope, name)

    async def finish_all(self) -> None:
        """Delete all tables that were being created or deleted when the process ended."""
        unfinished = [path async for path, table in self._table.each(_ALL) if table.unfinished]
        for path in unfinished:
            await self._clear(*path.split("/"))

    async def is_empty(self, scope: str) -> bool:
        """Return whether the scope has no tables, whether or not the client sees them."""
        rows, _ = await self._table.page(_tables_in(scope), count=1)
        return not rows

    async def _clear(self, scope: str, name: str) -> None:
        async with self._catalog.turn(scope, name + KEY_VALUE_TABLE_SUFFIX):
            stored = await self._table.get(_tables_in(scope).key(name))
            if stored is not None and stored.value.unfinished:
                await self._finish_deletion(scope, name, stored)

    async def _finish_deletion(self, scope: str, name: str, stored: VersionedValue[KeyValueTable]) -> None:
        """Delete a table's segments and its record. The caller has its turn."""
        await at_once(self._catalog.segments.delete_table, _segments(scope, name, stored.value))
        await self._catalog.numbers.use(scope, name + KEY_VALUE_TABLE_SUFFIX, _partitions(stored.value)[-1].number)
        await self._table.remove(_tables_in(scope).key(name), stored.version)

    async def _check_free(self, scope: str, name: str, record: KeyValueTable) -> None:
        for segment in _segments(scope, name, record):
            if await self._catalog.segments.has_table(segment):
                raise ControllerRefusal(ControllerProblem.TABLE_EXISTS, f"the table segment {segment}")

    def _require(self, scope: str, name: str, needs: frozenset[Permission]) -> None:
        """Check the client's permissions for the table. Raises TABLE_NOT_FOUND if no route matches it,
        PERMISSION_DENIED."""
        try:
            self._catalog.segments.require(scope, name + KEY_VALUE_TABLE_SUFFIX, needs)
        except ControllerRefusal:
            raise ControllerRefusal(ControllerProblem.TABLE_NOT_FOUND, f"{scope}/{name}") from None

    def _is_seen(self, scope: str, name: str) -> bool:
        try:
            self._require(scope, name, ANY_PERMISSION)
        except OperationFailed as error:
            if error.failure.code in (FailureCode.PERMISSION_DENIED, FailureCode.STREAM_NOT_FOUND):
                return False
            raise
        return True


def _check(config: KeyValueTable) -> None:
    """Check what a client wants. Raises INVALID_CONFIG."""
    for what, value, least, most in (
        ("partitionCount", config.partitions, 1, MAX_PARTITIONS),
        ("primaryKeyLength", config.primary_key_length, 1, MAX_TABLE_KEY_BYTES),
        ("secondaryKeyLength", config.secondary_key_length, 0, MAX_TABLE_KEY_BYTES),
        ("primaryKeyLength + secondaryKeyLength", config.key_length, 1, MAX_TABLE_KEY_BYTES),
    ):
        if not least <= value <= most:
            raise ControllerRefusal(ControllerProblem.INVALID_CONFIG, f"{what} is {least} to {most}, not {value}")
    if config.rollover_size_bytes < 0:
        raise ControllerRefusal(
            ControllerProblem.INVALID_CONFIG, f"rolloverSizeBytes is not negative: {config.rollover_size_bytes}"
        )


def _partitions(table: KeyValueTable) -> tuple[Segment, ...]:
    return initial(table.partitions, table.first)


def _segments(scope: str, name: str, table: KeyValueTable) -> Iterable[SegmentName]:
    return [
        SegmentName(scope, name + KEY_VALUE_TABLE_SUFFIX, partition.number, partition.epoch)
        for partition in _partitions(table)
    ]
