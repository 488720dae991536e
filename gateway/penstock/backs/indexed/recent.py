"""The newest records of a stream that somebody follows: read once, for all who follow."""

from __future__ import annotations

from collections import OrderedDict, deque

from penstock.backs.indexed.numbered import Numbered
from penstock.positions.marks import Mark
from penstock_codecs.model import RecordBatch, StreamPosition

__all__ = ["Recent", "RecentRoom"]


class RecentRoom:
    """What all streams of a back keep together: `most_bytes`, and where it is more, the streams that had news longest
    ago keep nothing. Who follows those reads from the server."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._holders: OrderedDict[Recent, None] = OrderedDict()  # who had news last comes last

    def grown(self, holder: Recent, size: int) -> None:
        """It keeps so many bytes more; fewer where that is negative."""
        self._size += size
        if size > 0:
            self._holders[holder] = None
            self._holders.move_to_end(holder)
        while self._size > self._most and (first := next(iter(self._holders))) is not holder:
            first.clear()

    def left(self, holder: Recent) -> None:
        """It keeps nothing any more."""
        self._holders.pop(holder, None)


class Recent:
    """Batches without a gap between them, the oldest first; about `most_bytes`, or the newest one. Where other streams
    need the `room`, there are none."""

    def __init__(self, most_bytes: int, room: RecentRoom | None = None) -> None:
        self._most = most_bytes
        self._room = room or RecentRoom(most_bytes)
        self._size = 0
        self._batches: deque[tuple[Numbered, RecordBatch]] = deque()

    def add(self, numbered: Numbered, tail: StreamPosition) -> None:
        """The newest records; what is not next to what is there takes its place. `tail`: the stream's."""
        if self._batches:
            end = self._batches[-1][0].end.seq_num
            if numbered.end.seq_num <= end and self.holding(numbered.first) is not None:
                return
            if numbered.first != end:
                self.clear()
        batch = numbered.batch(tail if numbered.end.seq_num == tail.seq_num else None)
        self._batches.append((numbered, batch))
        self._grow(batch.metered)
        while self._size > self._most and len(self._batches) > 1:
            self._grow(-self._batches.popleft()[1].metered)

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self._grow(-self._size)
        self._room.left(self)

    def _grow(self, size: int) -> None:
        self._size += size
        self._room.grown(self, size)

    def holding(self, seq_num: int) -> tuple[Numbered, RecordBatch] | None:
        """The records among which this one is."""
        for numbered, batch in reversed(self._batches):
            if numbered.first <= seq_num:
                return (numbered, batch) if seq_num < numbered.first + batch.count else None
        return None

    def mark_of(self, seq_num: int) -> Mark | None:
        """Where a record is, if it is one of these."""
        found = self.holding(seq_num)
        return None if found is None else found[0].mark(seq_num - found[0].first)

    def seq_num_of(self, mark: Mark) -> int | None:
        """The number of the record with the place of `mark` (whose own number does not count): identifier or offset."""
        for numbered, _ in reversed(self._batches):
            index = numbered.find(mark)
            if index is not None:
                return numbered.first + index
        return None
