"""Batches that were read from the file a moment ago, for clients that ask again.

A client that pages through a stream, or polls it, sends one bounded read after another. Each stream has a window: the
consecutive batches of the last read from the file. A read that begins in it takes no thread hop, which would cost more
than all the rest of a small read. One that begins where it ends reads on, twice as many batches each time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.model.limits import MIB
from penstock.model.operations import FromRecordId, FromTimestamp
from penstock.model.records import RecordBatch, RecordId, id_at
from penstock.store.batches import index_of_id
from penstock.store.heads import StoredStream
from penstock.store.tail_cache import memory_of

__all__ = ["BatchWindows"]

CAPACITY: Final = 64 * MIB
"""Bytes of all windows together; the one that was used least recently is dropped first."""
TURNS: Final = 8
"""Streams that clients may read in turn with all their windows kept: a window has at most this part of the capacity,
or one batch. A larger one would be dropped before the client comes back to its stream, and be read again."""


class _Window:
    __slots__ = ("batches", "hops", "size")

    def __init__(self, batches: Sequence[RecordBatch], hops: int) -> None:
        self.batches = batches
        self.hops = hops  # how many reads from the file have followed each other
        self.size = sum(map(memory_of, batches))

    @property
    def end(self) -> int:
        return self.batches[-1].next_seq_num


class BatchWindows:
    """The windows of all streams."""

    def __init__(self, most_batches: int, capacity: int = CAPACITY) -> None:
        """`most_batches`: of one window; `capacity`: bytes of all windows together."""
        self._most_batches = most_batches
        self._capacity = capacity
        self._windows: OrderedDict[StoredStream, _Window] = OrderedDict()
        self._used = 0

    def take(self, stream: StoredStream, position: int) -> RecordBatch | None:
        """Return the records from `position` on, up to the end of their batch, or None if they are not in the
        window."""
        window = self._windows.get(stream)
        if window is None or not window.batches[0].first_seq_num <= position < window.end:
            return None
        self._windows.move_to_end(stream)
        batch = window.batches[bisect_right(window.batches, position, key=_first_seq_num) - 1]
        return batch.part(position - batch.first_seq_num, batch.count)

    def find(self, stream: StoredStream, start: FromRecordId | FromTimestamp) -> int | None:
        """Return the number of the first record at or after `start`, or None if the window does not tell it."""
        window = self._windows.get(stream)
        if window is None:
            return None
        batches = window.batches
        wanted = start.record_id if isinstance(start, FromRecordId) else RecordId(start.timestamp, 0)
        index = bisect_right(batches, wanted, key=_first_id) - 1
        if index < 0:
            return None
        batch = batches[index]
        timestamps, first_id = batch.columns.timestamps, _first_id(batch)
        within = index_of_id(timestamps, first_id, wanted)
        if within == batch.count and index + 1 == len(batches):
            last = id_at(timestamps, first_id, batch.count - 1)
            if wanted != RecordId(last.ms, last.seq + 1):  # the next record may come before it
                return None
        return batch.first_seq_num + within

    def depth(self, stream: StoredStream, position: int) -> int:
        """Return how many batches to read from `position` on."""
        window = self._windows.get(stream)
        if window is None or window.end != position:
            return 1
        fitting = self._capacity // TURNS * len(window.batches) // window.size
        return max(1, min(1 << window.hops, self._most_batches, fitting))

    def keep(self, stream: StoredStream, batches: Sequence[RecordBatch]) -> None:
        """Make consecutive batches that were read the stream's window, without one at the tail, which goes on."""
        if batches and batches[-1].next_seq_num == stream.durable.next_seq:
            batches = batches[:-1]
        if not batches:
            return
        before = self._windows.pop(stream, None)
        hops = 1
        if before is not None:
            self._used -= before.size
            if before.end == batches[0].first_seq_num:
                hops = before.hops + 1
        window = self._windows[stream] = _Window(batches, hops)
        self._used += window.size
        while self._used > self._capacity:
            self._used -= self._windows.popitem(last=False)[1].size


def _first_seq_num(batch: RecordBatch) -> int:
    return batch.first_seq_num


def _first_id(batch: RecordBatch) -> RecordId:
    assert batch.first_id is not None, "batches of the store tell it"
    return batch.first_id
