"""Changes to a table, written in the order in which they are made, many at a time.

Every change waits for the disk. While one operation of the table runs, all further changes gather, and are the next
one: the last change of a key counts. What is changed in one call is also written at once, if `MOST_BYTES` suffice; if
it is refused since it is too large, or since there is no room for it, only that call fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.tables.struct_table import Key, StructTable, batched, encoded

__all__ = ["JournalEntry", "TableJournal"]

log = structlog.get_logger()


class JournalEntry:
    """Changes of one call, as the table holds them; None removes a key."""

    def __init__(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.changes = changes
        self._done = trio.Event()
        self._failure: Failure | None = None

    def measure(self) -> tuple[int, int]:
        """Return the number of keys, and the bytes of keys and values."""
        return len(self.changes), sum(len(key) + len(value or b"") for key, value in self.changes.items())

    async def durable(self) -> None:
        """Wait until the changes are on disk, and all before them are there or have failed. Raises OperationFailed if
        these are not."""
        await self._done.wait()
        if self._failure is not None:
            raise OperationFailed(self._failure)

    def end(self, failure: Failure | None) -> None:
        """Wake the tasks that wait for the changes."""
        self._failure = failure
        self._done.set()


class TableJournal:
    """Writes changes; `run` must be running. It holds only changes that tasks wait for."""

    def __init__(self, table: StructTable) -> None:
        self._table = table
        self._waiting: list[JournalEntry] = []
        self._some = trio.Event()

    def change(self, changes: Mapping[Key[Any], msgspec.Struct | None]) -> JournalEntry:
        """Make changes; None removes a key. Return them, to wait for."""
        entry = JournalEntry(encoded(changes))
        self._waiting.append(entry)
        self._some.set()
        return entry

    async def run(self) -> None:
        """Write what is changed, until cancelled."""
        while True:
            await self._some.wait()
            waiting, self._waiting, self._some = self._waiting, [], trio.Event()
            for entries in batched(waiting, JournalEntry.measure):
                await self._write(entries)

    async def _write(self, entries: Sequence[JournalEntry]) -> None:
        """Write entries together, or each half of them if they are refused for their size."""
        failure = None
        try:
            await self._table.write({key: value for entry in entries for key, value in entry.changes.items()})
        except OperationFailed as error:
            failure = error.failure
            if failure.code is FailureCode.LIMIT_EXCEEDED and len(entries) > 1:
                half = len(entries) // 2
                await self._write(entries[:half])
                await self._write(entries[half:])
                return
            log.warning("table_not_stored", reason=str(failure))
        for entry in entries:
            entry.end(failure)
