"""Committed offsets of groups, in the table of groups, each with the creation time of its partition's stream.

A stream that was deleted and created again begins at 0: an offset that was committed before is not served. The creation
time tells the two apart, on every back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from penstock.net.limits.work import in_turns
from penstock.tables.journal import JournalEntry, TableJournal
from penstock.tables.struct_table import Conflict, Key, Prefix, StructTable

__all__ = ["CommittedOffset", "CommittedOffsets", "GroupPartition"]

_END: Final = "\0"
"""It is in no name of a group or a topic."""


class GroupPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class CommittedOffset(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The record that a group reads next. `created_at`: of the stream, `committed_at`: both in Unix ms.
    `leader_epoch`, `metadata`: as the client gave them."""

    offset: int
    created_at: int
    committed_at: int
    leader_epoch: int = -1
    metadata: str | None = None


class CommittedOffsets:
    """The offsets of all groups of a listener. Changes go through the journal."""

    def __init__(self, table: StructTable, journal: TableJournal) -> None:
        self._table = table
        self._journal = journal

    def key(self, group: str, of: GroupPartition) -> Key[CommittedOffset]:
        """Return the key of an offset."""
        return _prefix(group).key(f"{of.topic}{_END}{of.partition}")

    def remove(self, group: str, partitions: list[GroupPartition]) -> JournalEntry:
        """Remove offsets."""
        return self._journal.change({self.key(group, partition): None for partition in partitions})

    async def expire(self, group: str, partitions: list[GroupPartition], before: int) -> None:
        """Remove offsets that were not committed after `before`, in Unix ms. Raises OperationFailed."""
        for partition in partitions:
            key = self.key(group, partition)
            entry = await self._table.get(key)
            if entry is not None and entry.value.committed_at <= before:
                with suppress(Conflict):  # it has just been committed
                    await self._table.remove(key, entry.version)

    async def get(self, group: str, partitions: list[GroupPartition]) -> list[CommittedOffset | None]:
        """Return the offsets of these partitions, in order; None where there is none."""
        keys = [self.key(group, partition) async for partition in in_turns(partitions)]
        return [None if entry is None else entry.value for entry in await self._table.get_all(keys)]

    async def all(self, group: str) -> AsyncIterator[tuple[GroupPartition, CommittedOffset]]:
        """Yield all offsets of a group, by topic."""
        async for name, value in self._table.each(_prefix(group)):
            topic, _, partition = name.partition(_END)
            yield GroupPartition(topic, int(partition)), value


def _prefix(group: str) -> Prefix[CommittedOffset]:
    return Prefix(f"offset/{group}{_END}", CommittedOffset)
