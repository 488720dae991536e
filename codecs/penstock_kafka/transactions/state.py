"""A transactional producer in memory: its record, and how far its open transaction has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from penstock_kafka.groups.offsets import GroupPartition
from penstock_kafka.sequences import ProducerSequence
from penstock_kafka.transactions.records import TransactionRecord

__all__ = ["PendingPlace", "ProducerState"]


class PendingPlace(msgspec.Struct):
    """A partition of an open transaction: batches that are stored, their records, and those of them that have been
    appended to the stream."""

    turn: trio.Lock = msgspec.field(default_factory=trio.Lock)
    sequence: ProducerSequence = msgspec.field(default_factory=ProducerSequence)
    batches: int = 0
    records: int = 0
    delivered: int = 0


class ProducerState:
    """A transactional producer in memory. `turn`: held while its state changes. `done`: set unless a decision is being
    executed. `writing`: batches that are being stored. `ending`: no more batches are taken. `refused`: the first
    partitions of a transaction were refused, so none is open."""

    def __init__(self, record: TransactionRecord) -> None:
        self.record = record
        self.turn = trio.Lock()
        self.done = trio.Event()
        if not record.state.prepared:
            self.done.set()
        self.places: dict[GroupPartition, PendingPlace] = {}
        self.size = 0
        self.writing = 0
        self.ending = False
        self.refused = False
        self.idle = trio.Condition()

    @property
    def transaction(self) -> str:
        """The name of the present transaction among pending batches."""
        return f"{self.record.producer_id}.{self.record.serial}"

    @asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """Store a batch in the block: the transaction does not end meanwhile."""
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1
            with trio.CancelScope(shield=True):
                async with self.idle:
                    self.idle.notify_all()
