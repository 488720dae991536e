"""Walk through an S3P stream record by record, and notice when records are trimmed meanwhile.

S3P does not number records, and a READ returns whatever is left from an identifier on. But TRIM removes from the front:
as long as the record before a place is there, nothing after the place was removed. So each READ begins with the record
before, and looks for it in the answer. If it is gone, the next identifier may still tell: within a millisecond
identifiers are dense, so a stream whose first record is in the middle of a millisecond has lost those before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.limits import MIB, S3PLimits
from penstock_codecs.model import U64_MAX, RecordId
from penstock_codecs.s3p import ReadRecords, Records
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import Pool
from penstock_spark.clients.s3p.connection import BlockingS3PConnection

__all__ = ["ALL", "START", "Trimmed", "Walk", "following"]

START: Final = RecordId(0, 0)
ALL: Final = sys.maxsize
"""A count without limit."""
_MOST: Final = S3PLimits().max_count
_FIRST_COUNT: Final = 100
_PAGE_BYTES: Final = 4 * MIB
"""Bytes to ask for at once, about; the number of records is estimated from the records before."""


class Trimmed(Exception):
    """Records were trimmed before they were read. `first` is the first record now, `walked` the number of records read
    before."""

    def __init__(self, first: RecordId, walked: int) -> None:
        super().__init__(str(first))
        self.first = first
        self.walked = walked


def following(record: RecordId) -> RecordId:
    """Return the smallest identifier after `record`."""
    return RecordId(record.ms, record.seq + 1) if record.seq < U64_MAX else RecordId(record.ms + 1, 0)


class Walk:
    """A walk through one stream. It reconnects after a broken connection."""

    def __init__(self, pool: Pool[BlockingS3PConnection], endpoint: Endpoint, name: bytes) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._name = name
        self._count = _FIRST_COUNT
        self._most = _MOST

    def pages(self, start: RecordId, wanted: int = ALL) -> Iterator[Records]:
        """Yield at most `wanted` records from `start` on, or up to the tail; no page is empty. Raises OperationFailed,
        Trimmed."""
        patience = self._pool.patience()
        walked = 0
        while walked < wanted:
            try:
                with self._pool.use() as connection:
                    for records in self._ask_on(connection, start, wanted - walked):
                        patience.progress()
                        walked += len(records.bodies)
                        start = following(RecordId(records.timestamps[-1], records.seqs[-1]))
                        yield records
                    return
            except Trimmed as trimmed:
                raise Trimmed(trimmed.first, walked) from None
            except OperationFailed as error:
                if error.failure.code is FailureCode.LIMIT_EXCEEDED and self._most > 1:
                    self._most //= 2  # ask for less than the server's limit, or ours
                    self._count = min(self._count, self._most)
                else:
                    patience.wait(error)

    def _ask_on(self, connection: BlockingS3PConnection, start: RecordId, left: int) -> Iterator[Records]:
        """Yield pages, asking for the next one before yielding each: the server reads while the caller works."""
        before = RecordId(start.ms, start.seq - 1) if start.seq else None
        connection.send(self._read(before or start, left))
        while True:
            records = self._behind(connection, connection.records(), before, start, left)
            if not records.bodies:
                return
            left -= len(records.bodies)
            self._count = max(1, min(_PAGE_BYTES // (sum(map(len, records.bodies)) // len(records.bodies)), self._most))
            before = RecordId(records.timestamps[-1], records.seqs[-1])
            start = following(before)
            if left:
                connection.send(self._read(before, left))
            yield records
            if not left:
                return

    def _read(self, first: RecordId, left: int) -> ReadRecords:
        """Return a READ of at least two records, unless the server's limit is one, as the first may be known
        already."""
        return ReadRecords(self._name, min(max(self._count, 2), self._most, left + 1), 0, first)

    def _behind(
        self, connection: BlockingS3PConnection, records: Records, before: RecordId | None, start: RecordId, left: int
    ) -> Records:
        """Return the part of `records` from `start` on. Raises Trimmed."""
        first = self._first(records, before or start)
        if before is not None and first == before:
            if len(records.bodies) > 1:
                return _part(records, 1, left + 1)
            records = connection.read(ReadRecords(self._name, min(self._count, left), 0, start))
            first = self._first(records, start)
            if first is None:
                return records
            if self._first(connection.read(ReadRecords(self._name, 1, 0, before)), before) == before:
                return _part(records, 0, left)
        if first is not None and first != start and first.seq and start != START:
            raise Trimmed(first, 0)
        return _part(records, 0, left)

    def _first(self, records: Records, asked: RecordId) -> RecordId | None:
        """Return the identifier of the first record, or None. Raises UNAVAILABLE if it is before `asked`."""
        if not records.bodies:
            return None
        first = RecordId(records.timestamps[0], records.seqs[0])
        if first < asked:
            raise lost(self._endpoint, f"asked for records from {asked} on it gives {first}")
        return first


def _part(records: Records, start: int, stop: int) -> Records:
    if start == 0 and stop >= len(records.bodies):
        return records
    return Records(records.timestamps[start:stop], records.seqs[start:stop], records.bodies[start:stop])
