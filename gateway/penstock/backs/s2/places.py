"""S3P's identifiers for records on an S2 server, which knows nothing of them.

The identifier of a record is its timestamp and its place among the records of that timestamp: its sequence number less
that of the first one. Which one that is, the server can be asked (a read from that timestamp on); of the newest ones
it is remembered here. Where a trim cut through the records of one ms, `cuts` knows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeVar

from penstock_codecs.model import RecordId, StreamPosition, StreamRef

__all__ = ["Places", "StreamPlaces"]

K = TypeVar("K")

MOST_REMEMBERED: Final = 32
"""Timestamps of one stream whose first record is remembered, and as many places where readers stopped."""


class StreamPlaces:
    """What is known of one stream."""

    __slots__ = ("_end", "_firsts", "_nexts")

    def __init__(self) -> None:
        self._firsts: OrderedDict[int, int] = OrderedDict()
        self._nexts: OrderedDict[RecordId, int] = OrderedDict()
        self._end = StreamPosition(0, -1)

    def first(self, timestamp: int) -> int | None:
        """The number of the first record that is stamped so; None where that is not known."""
        return self._firsts.get(timestamp)

    def learn(self, timestamp: int, seq_num: int) -> None:
        """The first record stamped `timestamp` is this one."""
        _remember(self._firsts, timestamp, seq_num)

    def at_or_after(self, record_id: RecordId) -> int | None:
        """The number of the first record whose identifier is at or after this one, where somebody read up to there."""
        return self._nexts.get(record_id)

    def read_up_to(self, last: RecordId, next_seq_num: int) -> None:
        """Behind the record `last` there is this number: who asks for what comes after it is likely to come."""
        _remember(self._nexts, RecordId(last.ms, last.seq + 1), next_seq_num)

    def saw_tail(self, tail: StreamPosition) -> None:
        """The stream ends here now. One that ends earlier than it did is another stream of the same name."""
        if tail.seq_num < self._end.seq_num:
            self._firsts.clear()
            self._nexts.clear()
            self._end = tail
        elif tail.seq_num > self._end.seq_num:
            self._end = tail

    def saw(self, seq_num: int, timestamps: Sequence[int]) -> None:
        """Consecutive records from `seq_num` on, at least one, are stamped so."""
        first, last = timestamps[0], timestamps[-1]
        self.saw_ends(seq_num, first, seq_num + len(timestamps), last)
        if last != first:
            self.learn(last, seq_num + bisect_left(timestamps, last))

    def saw_ends(self, seq_num: int, first: int, end: int, last: int) -> None:
        """Of consecutive records from `seq_num` up to `end` the first and the last are stamped so."""
        if seq_num == 0 or (seq_num == self._end.seq_num and first > self._end.timestamp):
            self.learn(first, seq_num)
        if end > self._end.seq_num:
            self._end = StreamPosition(end, last)

    def record_id(self, seq_num: int, timestamp: int) -> RecordId | None:
        """The identifier of a record; None where the first of its timestamp is not known."""
        first = self._firsts.get(timestamp)
        return None if first is None or first > seq_num else RecordId(timestamp, seq_num - first)


def _remember(known: OrderedDict[K, int], key: K, value: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_REMEMBERED:
        known.popitem(last=False)


class Places:
    """What is known of the streams that were used last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._streams: OrderedDict[StreamRef, StreamPlaces] = OrderedDict()

    def of(self, stream: StreamRef) -> StreamPlaces:
        """What is known of one stream."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = StreamPlaces()
            if len(self._streams) > self._capacity:
                self._streams.popitem(last=False)
        else:
            self._streams.move_to_end(stream)
        return found

    def forget(self, stream: StreamRef) -> None:
        """It was deleted."""
        self._streams.pop(stream, None)
