"""The groups of the consumer protocol of one listener: their coordinator with a clock and a table.

A heartbeat is answered once the group that it leaves is on disk. Changes that wait for the disk together are one write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

import msgspec
import structlog
import trio

from penstock.core.pauses import sleep_unpaused
from penstock.model.failures import OperationFailed
from penstock.model.limits import MAX_TABLE_VALUE_BYTES
from penstock.tables.journal import JournalEntry, TableJournal
from penstock.tables.struct_table import Prefix, StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.assignors import GroupTopic
from penstock_kafka.groups.epochs import (
    EpochCoordinator,
    EpochGroup,
    EpochGroupRecord,
    EpochHeartbeat,
    EpochStatus,
)
from penstock_kafka.groups.messages import GroupLimits, Membership

__all__ = ["EpochService"]

log = structlog.get_logger()

_GROUPS: Final = Prefix("consumers/", EpochGroupRecord)
_MOST_BYTES: Final = MAX_TABLE_VALUE_BYTES - 64 * 1024
"""Most bytes of a group's record after a heartbeat. The rest is for what members that leave, pause or expire add to it:
those are not refused."""
_PARTITION_BYTES: Final = 40
"""Bytes of a partition in a record."""


class EpochService:
    """The groups of a listener. `limits` returns the bounds; `emptied` is called for each group that has lost its
    last member. `run` must be running."""

    def __init__(
        self,
        table: StructTable,
        journal: TableJournal,
        limits: Callable[[], GroupLimits],
        emptied: Callable[[str], object],
    ) -> None:
        self._emptied = emptied
        self._table = table
        self._journal = journal
        self._coordinator = EpochCoordinator(limits, lambda: str(uuid4()))
        self._records: dict[str, EpochGroupRecord] = {}
        self._writes: dict[str, JournalEntry] = {}
        self._until = trio.CancelScope()

    async def load(self) -> None:
        """Take up the groups that are stored. Raises OperationFailed."""
        async for group, record in self._table.each(_GROUPS):
            self._records[group] = record
            self._coordinator.restore(group, record, trio.current_time())

    async def run(self) -> None:
        """Do what time demands, until cancelled."""
        while True:
            with trio.CancelScope(deadline=or_never(self._coordinator.deadline())) as self._until:
                await trio.sleep_forever()
            await sleep_unpaused(min(trio.current_time(), self._until.deadline))  # heartbeats may be unread
            self._coordinator.fire(trio.current_time())
            self._write()

    def group(self, group_id: str) -> EpochGroup | None:
        """Return a group, None if it has no members of this protocol."""
        return self._coordinator.groups.get(group_id)

    def groups(self) -> list[EpochGroup]:
        """Return all groups."""
        return list(self._coordinator.groups.values())

    def check(self, membership: Membership) -> KafkaError | None:
        """See `EpochCoordinator.check`."""
        return self._coordinator.check(membership)

    async def heartbeat(self, request: EpochHeartbeat, topics: Mapping[str, GroupTopic]) -> EpochStatus:
        """Return the answer to a heartbeat, once it is durable. `topics`: see `EpochCoordinator.heartbeat`."""
        now, was_changed = trio.current_time(), request.group in self._coordinator.changed
        status = self._coordinator.heartbeat(request, topics, now)
        may_grow = request.epoch >= 0 and not status.error and request.group in self._coordinator.changed
        if may_grow and self._too_large(request.group):
            self._coordinator.take_back(request.group, self._records.get(request.group), status.member, now)
            if not was_changed:
                self._coordinator.changed.discard(request.group)
            reason = f"a group with its topics and assignments has at most {_MOST_BYTES} bytes"
            status = EpochStatus(KafkaError.GROUP_MAX_SIZE_REACHED, reason)
        self._write()
        batch = self._writes.get(request.group)
        if batch is not None:
            try:
                await batch.durable()
            except OperationFailed:
                self._coordinator.changed.add(request.group)
                return EpochStatus(KafkaError.COORDINATOR_NOT_AVAILABLE, "the group could not be stored")
            if self._writes.get(request.group) is batch:
                del self._writes[request.group]
        return status

    def _too_large(self, group_id: str) -> bool:
        """Return whether a group cannot be stored, or could not be once its members have what they are to have."""
        group = self.group(group_id)
        if group is None:
            return False
        missing = sum(len(member.target) - len(member.owned) for member in group.members.values())
        size = len(msgspec.json.encode(group.record())) + _PARTITION_BYTES * max(0, missing)
        if size > _MOST_BYTES:
            log.warning("group_too_large", group=group_id, bytes=size, most=_MOST_BYTES)
        return size > _MOST_BYTES

    def _write(self) -> None:
        """Begin to store what has changed, and watch the new deadline."""
        while self._coordinator.changed:
            group_id = self._coordinator.changed.pop()
            group = self.group(group_id)
            record = None if group is None else group.record()
            if record is None:
                self._records.pop(group_id, None)
                self._emptied(group_id)
            else:
                self._records[group_id] = record
            self._writes[group_id] = self._journal.change({_GROUPS.key(group_id): record})
        self._until.deadline = or_never(self._coordinator.deadline())


def or_never(deadline: float | None) -> float:
    """Return a deadline for trio."""
    return math.inf if deadline is None else deadline
