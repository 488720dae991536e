"""Appended records that wait for their acknowledgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.capture.dialogue.messages import SeenRecord

__all__ = ["MOST_BYTES", "MOST_WAITING", "PendingBatches"]

MOST_WAITING: Final = 100_000
"""Unanswered requests of a conversation that are remembered."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of pending records, in memory. More are in flight only if a client sends without reading."""
_RECORD_COST: Final = 256
"""Bytes that a record costs beside its body."""


class PendingBatches:
    """Batches of records, oldest first. Beyond the limits the oldest are given up, and so are never acknowledged."""

    def __init__(self, most: int = MOST_WAITING, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._batches: dict[int, Sequence[SeenRecord]] = {}
        self._bytes = 0
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, records: Sequence[SeenRecord]) -> tuple[int, list[SeenRecord]]:
        """Keep a batch; return its ticket, and the records that were given up for it."""
        self._tickets += 1
        self._batches[self._tickets] = records
        self._bytes += _cost(records)
        given_up: list[SeenRecord] = []
        while len(self._batches) > self._most or self._bytes > self._most_bytes:
            given_up += _unacknowledged(self.take(next(iter(self._batches))), "")
        return self._tickets, given_up

    def take(self, ticket: int) -> Sequence[SeenRecord]:
        """Remove and return the batch of a ticket; nothing if it was given up."""
        records = self._batches.pop(ticket, ())
        self._bytes -= _cost(records)
        return records

    def refuse(self, ticket: int, failure: str) -> list[SeenRecord]:
        """Remove and return a batch as `take` does, marked with the error that the server sent."""
        return _unacknowledged(self.take(ticket), failure)

    def rest(self) -> list[SeenRecord]:
        """Remove and return all records that were not acknowledged, oldest first."""
        return [record for ticket in list(self._batches) for record in self.refuse(ticket, "")]


def _cost(records: Sequence[SeenRecord]) -> int:
    return sum(len(record.body) for record in records) + _RECORD_COST * len(records)


def _unacknowledged(records: Sequence[SeenRecord], failure: str) -> list[SeenRecord]:
    for record in records:
        record.acknowledged = False
        record.failure = failure
    return list(records)
