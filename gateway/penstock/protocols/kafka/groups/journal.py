"""Changes to the table of groups, written in the order in which they are made, many at a time.

Every change waits for the disk. While one operation of the table runs, all further changes gather, and are the next
one: the last change of a key counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
import trio

from penstock.protocols.struct_table import Key, StructTable
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["GroupJournal", "JournalBatch"]

log = structlog.get_logger()


class JournalBatch:
    """Changes that are written together; None removes a key."""

    def __init__(self) -> None:
        self.changes: dict[Key[Any], msgspec.Struct | None] = {}
        self._done = trio.Event()
        self._failure: Failure | None = None

    async def durable(self) -> None:
        """Wait until the changes, and all before them, are on disk. Raises OperationFailed if they are not."""
        await self._done.wait()
        if self._failure is not None:
            raise OperationFailed(self._failure)

    async def write(self, table: StructTable) -> None:
        """Write the changes, and wake the tasks that wait for them."""
        try:
            await table.set_all({key: value for key, value in self.changes.items() if value is not None})
            await table.discard(*[key for key, value in self.changes.items() if value is None])
        except OperationFailed as error:
            log.warning("groups_not_stored", reason=str(error.failure))
            self._failure = error.failure
        self._done.set()


class GroupJournal:
    """Writes changes; `run` must be running. It holds only changes that tasks wait for."""

    def __init__(self, table: StructTable) -> None:
        self._table = table
        self._next = JournalBatch()
        self._some = trio.Event()

    def change(self, changes: Mapping[Key[Any], msgspec.Struct | None]) -> JournalBatch:
        """Make changes; None removes a key. Return the batch that they are in, to wait for."""
        self._next.changes.update(changes)
        self._some.set()
        return self._next

    async def run(self) -> None:
        """Write what is changed, until cancelled."""
        while True:
            await self._some.wait()
            batch, self._next, self._some = self._next, JournalBatch(), trio.Event()
            await batch.write(self._table)
