"""The newest durable batches of a stream, in memory, for its followers.

All followers at the tail get the very same `RecordBatch`, so that it is decoded and encoded once, even for a thousand
of them. Followers a little behind get several batches joined, and share those too. Byte reads share the bytes of each
batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import Final

from penstock.model.byte_rendering import Rendered, rendered
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp, Located
from penstock.model.records import U64_MAX, RecordBatch, RecordId, StreamPosition
from penstock.store.batches import ByteSpan, all_have_bytes, index_of, join, located, seq_num_at

__all__ = ["TailCache", "TailCaches", "memory_of"]

_OVERHEAD: Final = 4096
"""Bytes counted for a cached batch besides its records. It takes 1 KiB, but in ten objects, all of which the garbage
collector visits now and then while all tasks wait: this took 230 ms for 30,000 batches, 50 ms for a quarter of them."""
MOST_JOINED: Final = 4
"""Most joins of one stream's batches that are kept. Followers a little behind share few places; readers that page
through the cache begin at ever new ones, and a join takes as much memory as the batches in it."""
MOST_RENDERED: Final = 4096
"""Most batches that one byte read renders: more would block all other tasks for over 10 ms."""
_RECORD_OVERHEAD: Final = 100
"""Bytes that a decoded record takes besides its body: object header, list slots, timestamp."""


def memory_of(batch: RecordBatch) -> int:
    """Return the bytes of memory that a batch is counted for: twice its metered size, for the payload and for the
    bodies that it was made of, and some for each object."""
    return 2 * batch.metered + _RECORD_OVERHEAD * batch.count + _OVERHEAD


class _Cached:
    """A batch with its place in the stream's bytes, and its rendered bytes after the first byte read."""

    __slots__ = ("_rendered", "batch", "span")

    def __init__(self, batch: RecordBatch, span: ByteSpan) -> None:
        self.batch = batch
        self.span = span
        self._rendered: Rendered | None = None

    @property
    def rendered(self) -> Rendered:
        """The bytes of the batch, rendered at first use."""
        if self._rendered is None:
            self._rendered = rendered(self.batch, self.span.layout, self.span.first_offset)
        return self._rendered


def _encoding(batch: RecordBatch) -> str | None:
    return None if batch.wire is None else batch.wire.encoding


def _first_seq_num(cached: _Cached) -> int:
    return cached.batch.first_seq_num


def _first_id(cached: _Cached) -> RecordId:
    assert cached.batch.first_id is not None
    return cached.batch.first_id


def _end_offset(cached: _Cached) -> int:
    return cached.span.end_offset


class TailCache:
    """Consecutive batches of one stream, the last of which ends at its durable tail."""

    __slots__ = ("_batches", "_joined", "_whole_from")

    def __init__(self) -> None:
        self._batches: deque[_Cached] = deque()
        self._joined: dict[int, RecordBatch] = {}
        self._whole_from: int | None = None  # offset from which on no batch is missing, even one without bytes

    @property
    def first_seq_num(self) -> int:
        """Number of its first record; U64_MAX if it is empty."""
        return self._batches[0].batch.first_seq_num if self._batches else U64_MAX

    def push(self, batch: RecordBatch, span: ByteSpan) -> None:
        """Add the batch that follows the last one."""
        if self._whole_from is None:  # earlier batches without bytes may be at this offset
            self._whole_from = span.first_offset + 1 if batch.first_seq_num else 0
        self._joined.clear()
        self._batches.append(_Cached(batch, span))

    def drop_oldest(self) -> None:
        """Drop the oldest batch."""
        batch, span = self._batches[0].batch, self._batches[0].span
        self._whole_from = span.end_offset + (not all_have_bytes(span, batch.metered))
        self._batches.popleft()
        self._joined.clear()

    def take(self, position: int, tail: StreamPosition) -> RecordBatch | None:
        """Return the records from `position` on, up to the limits of a batch, or None if they are not cached."""
        batches = self._batches
        if not batches:
            return None
        last = batches[-1].batch
        if position == last.first_seq_num:  # true for all followers at the tail
            return last
        if not batches[0].batch.first_seq_num <= position < last.next_seq_num:
            return None
        joined = self._joined.get(position)
        if joined is None:
            if len(self._joined) >= MOST_JOINED:
                del self._joined[next(iter(self._joined))]
            joined = self._joined[position] = self._join(position, tail)
        return joined

    def since(self, seq_num: int) -> list[tuple[RecordBatch, ByteSpan]] | None:
        """Return the batches from the one that begins with this number on, or None if that one is not cached."""
        batches = self._batches
        index = bisect_left(batches, seq_num, key=_first_seq_num)
        if index == len(batches) or batches[index].batch.first_seq_num != seq_num:
            return None
        return [(cached.batch, cached.span) for cached in islice(batches, index, None)]

    def bytes_at(self, offset: int, max_bytes: int) -> list[Rendered] | None:
        """Return the bytes from `offset` on, `max_bytes` or a little more, or fewer if they are of many batches.

        Returns None if some of them are not cached. The first batch may end at `offset`: it may have records without
        bytes there.
        """
        index = self._ending_at(offset)
        if index is None:
            return None
        rendered_batches: list[Rendered] = []
        for cached in islice(self._batches, index, None):
            rendered_batches.append(cached.rendered)
            size = cached.span.end_offset - offset
            if size >= max_bytes or (size and len(rendered_batches) >= MOST_RENDERED):
                break
        return rendered_batches

    def find(self, start: FromSeqNum | FromTimestamp | FromRecordId | FromByteOffset) -> Located | None:
        """Return the first record at or after `start`; None if an older one may be it, or none exists yet."""
        batches = self._batches
        match start:
            case FromSeqNum(seq_num):
                index = bisect_right(batches, seq_num, key=_first_seq_num) - 1
            case FromTimestamp(timestamp):
                index = bisect_left(batches, RecordId(timestamp, 0), key=_first_id) - 1
            case FromRecordId(record_id):
                index = bisect_right(batches, record_id, key=_first_id) - 1
            case FromByteOffset(offset):
                index_ending = self._ending_at(offset)
                index = -1 if index_ending is None else index_ending
        if index < 0:
            return None
        for cached in islice(batches, index, index + 2):
            within = index_of(start, cached.batch, cached.span)
            if within < cached.batch.count:
                return located(cached.batch, within, cached.span)
        return None

    def seq_num_at(self, offset: int) -> int | None:
        """Return the number of the record that holds the byte at `offset`, or None if it is not cached."""
        batches = self._batches
        if not batches or not batches[0].span.first_offset <= offset < batches[-1].span.end_offset:
            return None
        cached = batches[bisect_right(batches, offset, key=_end_offset)]
        return seq_num_at(offset, cached.batch, cached.span)

    def _ending_at(self, offset: int) -> int | None:
        """Return the index of the first batch that ends at or after `offset`, or None if that may be a dropped one."""
        batches = self._batches
        if not batches or offset < max(self._whole_from or 0, batches[0].span.first_offset):
            return None
        return bisect_left(batches, offset, key=_end_offset)

    def _join(self, position: int, tail: StreamPosition) -> RecordBatch:
        batches = self._batches
        index = bisect_right(batches, position, key=_first_seq_num) - 1
        first = batches[index].batch
        if position > first.first_seq_num:
            part = first.part(position - first.first_seq_num, first.count)  # `first` keeps what is decoded for the next
            part.tail = tail
            return part
        some, count, metered = [first], first.count, first.metered
        for cached in islice(batches, index + 1, None):
            batch = cached.batch
            count += batch.count
            metered += batch.metered
            if count > MAX_BATCH_RECORDS or metered > MAX_BATCH_BYTES or _encoding(batch) != _encoding(first):
                break
            some.append(batch)
        return join(some, tail)


class TailCaches:
    """The bound on all streams' tail caches together; the oldest batch of all streams is dropped first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._order: deque[tuple[TailCache, int]] = deque()

    def push(self, cache: TailCache, batch: RecordBatch, span: ByteSpan) -> None:
        """Cache a durable batch until newer ones need its room."""
        size = memory_of(batch)
        cache.push(batch, span)
        self._order.append((cache, size))
        self._used += size
        while self._used > self._capacity:
            oldest, freed = self._order.popleft()
            self._used -= freed
            oldest.drop_oldest()
