"""The newest durable batches of a stream, in memory, for those who follow it.

A thousand followers that are at the tail are given the very same `RecordBatch`, so that it is decoded and encoded
once for all of them. Those who fell behind a little are given several joined, and share those too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import Final

from penstock.store.batches import index_of, join, located
from penstock_codecs.limits import S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS
from penstock_codecs.model import U64_MAX, RecordBatch, RecordId, StreamPosition
from penstock_codecs.operations import FromRecordId, FromSeqNum, FromTimestamp, Located

__all__ = ["TailCache", "TailCaches"]

_OVERHEAD: Final = 4096
"""What a cached batch is counted at beside its records. It takes 1 KiB, but in ten objects, all of which the garbage
collector visits now and then while everybody waits: 30,000 batches took it 230 ms, a quarter of them 50 ms."""
MOST_JOINED: Final = 4
"""How many joins of one stream's batches are kept. Followers a little behind share few places; readers that page
through what is cached begin at ever new ones, and a join takes as much memory as the batches in it."""
_RECORD_OVERHEAD: Final = 100
"""Bytes that a decoded record takes beside its body: object header, list slots, timestamp."""


def _first_seq_num(batch: RecordBatch) -> int:
    return batch.first_seq_num


def _first_id(batch: RecordBatch) -> RecordId:
    assert batch.first_id is not None
    return batch.first_id


class TailCache:
    """Consecutive batches of one stream, the last of which ends at its durable tail."""

    __slots__ = ("_batches", "_joined")

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._joined: dict[int, RecordBatch] = {}

    @property
    def first_seq_num(self) -> int:
        """Where it begins; beyond everything where it is empty."""
        return self._batches[0].first_seq_num if self._batches else U64_MAX

    def push(self, batch: RecordBatch) -> None:
        """The batch that follows the last one."""
        self._joined.clear()
        self._batches.append(batch)

    def drop_oldest(self) -> None:
        """Forget the oldest batch."""
        self._batches.popleft()
        self._joined.clear()

    def take(self, position: int, tail: StreamPosition) -> RecordBatch | None:
        """The records from `position` on, up to the limits of a batch; None where they are no longer here."""
        batches = self._batches
        if not batches or position < batches[0].first_seq_num or position >= batches[-1].next_seq_num:
            return None
        last = batches[-1]
        if position == last.first_seq_num:  # all who are at the tail come this way
            return last
        found = self._joined.get(position)
        if found is None:
            if len(self._joined) >= MOST_JOINED:
                del self._joined[next(iter(self._joined))]
            found = self._joined[position] = self._join(position, tail)
        return found

    def find(self, start: FromSeqNum | FromTimestamp | FromRecordId) -> Located | None:
        """The first record at or after `start`; None where that may be an older one, or is yet to come."""
        batches = self._batches
        match start:
            case FromSeqNum(seq_num):
                index = bisect_right(batches, seq_num, key=_first_seq_num)
            case FromTimestamp(timestamp):
                index = bisect_left(batches, RecordId(timestamp, 0), key=_first_id)
            case FromRecordId(record_id):
                index = bisect_right(batches, record_id, key=_first_id)
        if not index:
            return None
        batch = batches[index - 1]
        within = index_of(start, batch)
        if within < batch.count:
            return located(batch, within)
        return located(batches[index], 0) if index < len(batches) else None

    def _join(self, position: int, tail: StreamPosition) -> RecordBatch:
        batches = self._batches
        index = bisect_right(batches, position, key=_first_seq_num) - 1
        first = batches[index]
        if position > first.first_seq_num:
            return join([first], tail).part(position - first.first_seq_num, first.count)
        some, count, metered = [first], first.count, first.metered
        for batch in islice(batches, index + 1, None):
            count += batch.count
            metered += batch.metered
            if count > S2_MAX_BATCH_RECORDS or metered > S2_MAX_BATCH_BYTES:
                break
            some.append(batch)
        return join(some, tail)


class TailCaches:
    """The bound on all streams' tail caches together: what is oldest goes first, whosever it is."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._order: deque[tuple[TailCache, int]] = deque()

    def push(self, cache: TailCache, batch: RecordBatch) -> None:
        """Keep a durable batch, until newer ones need its room."""
        # Twice: the payload, and the bodies that it was made of.
        size = 2 * batch.metered + _RECORD_OVERHEAD * batch.count + _OVERHEAD
        cache.push(batch)
        self._order.append((cache, size))
        self._used += size
        while self._used > self._capacity:
            oldest, freed = self._order.popleft()
            self._used -= freed
            oldest.drop_oldest()
