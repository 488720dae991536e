"""S3P's identifiers of records on an S2 server, which does not know them.

A record's identifier is its timestamp and its place among the records of that timestamp: its sequence number less that
of the first one. The server can be asked for the first one (a read from that timestamp on); those of the newest
timestamps are remembered here. Trims that cut through the records of one ms are stored by `cuts`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.model.records import RecordId, StreamPosition, StreamRef

__all__ = ["PlaceCache", "StreamPlaces"]

K = TypeVar("K")

MOST_REMEMBERED: Final = 32
"""Timestamps of one stream whose first record is remembered, and as many places where readers stopped."""


class StreamPlaces:
    """Remembered places of one stream's records."""

    __slots__ = ("_end", "_firsts", "_nexts")

    def __init__(self) -> None:
        self._firsts: OrderedDict[int, int] = OrderedDict()
        self._nexts: OrderedDict[RecordId, int] = OrderedDict()
        self._end = StreamPosition(0, -1)

    def first(self, timestamp: int) -> int | None:
        """Return the number of the first record with this timestamp; None if unknown."""
        return self._firsts.get(timestamp)

    def learn(self, timestamp: int, seq_num: int) -> None:
        """Remember that `seq_num` is the first record with this timestamp."""
        _remember(self._firsts, timestamp, seq_num)

    def at_or_after(self, record_id: RecordId) -> int | None:
        """Return the number of the first record at or after this identifier.

        None unless a reader stopped just before it.
        """
        return self._nexts.get(record_id)

    def read_up_to(self, last: RecordId, next_seq_num: int) -> None:
        """Remember the number after the record `last`: the reader is likely to ask for what follows it."""
        _remember(self._nexts, RecordId(last.ms, last.seq + 1), next_seq_num)

    def saw_tail(self, tail: StreamPosition) -> None:
        """Note the stream's tail.

        If it is before the known one this is another stream of the same name, and all is forgotten.
        """
        if tail.seq_num < self._end.seq_num:
            self._firsts.clear()
            self._nexts.clear()
            self._end = tail
        elif tail.seq_num > self._end.seq_num:
            self._end = tail

    def saw(self, seq_num: int, timestamps: Sequence[int]) -> None:
        """Note the timestamps of consecutive records from `seq_num` on, at least one."""
        first, last = timestamps[0], timestamps[-1]
        self.saw_ends(seq_num, first, seq_num + len(timestamps), last)
        if last != first:
            self.learn(last, seq_num + bisect_left(timestamps, last))

    def saw_ends(self, seq_num: int, first: int, end: int, last: int) -> None:
        """Note the first and the last timestamp of the consecutive records from `seq_num` up to `end`."""
        if seq_num == 0 or (seq_num == self._end.seq_num and first > self._end.timestamp):
            self.learn(first, seq_num)
        if end > self._end.seq_num:
            self._end = StreamPosition(end, last)

    def record_id(self, seq_num: int, timestamp: int) -> RecordId | None:
        """Return a record's identifier; None if the first record of its timestamp is unknown."""
        first = self._firsts.get(timestamp)
        return None if first is None or first > seq_num else RecordId(timestamp, seq_num - first)


def _remember(known: OrderedDict[K, int], key: K, value: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_REMEMBERED:
        known.popitem(last=False)


class PlaceCache:
    """Remembered places of the `capacity` most recently used streams."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._streams: OrderedDict[StreamRef, StreamPlaces] = OrderedDict()

    def of(self, stream: StreamRef) -> StreamPlaces:
        """Return the places of a stream, empty ones if it is unknown."""
        places = self._streams.get(stream)
        if places is None:
            places = self._streams[stream] = StreamPlaces()
            if len(self._streams) > self._capacity:
                self._streams.popitem(last=False)
        else:
            self._streams.move_to_end(stream)
        return places

    def forget(self, stream: StreamRef) -> None:
        """Forget a stream, because it was deleted or recreated."""
        self._streams.pop(stream, None)
