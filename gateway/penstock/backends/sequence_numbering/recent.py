"""The newest records of a followed stream, read once for all its followers."""

from __future__ import annotations

from collections import OrderedDict, deque

from penstock.backends.sequence_numbering.numbered import NumberedRecords
from penstock.core.marks import Mark
from penstock.model.records import RecordBatch, StreamPosition

__all__ = ["RecentBatches", "RecentRoom"]


class RecentRoom:
    """The bound on what all streams of a back keep together, in bytes.

    Beyond `most_bytes`, the streams without new records for longest are cleared; their followers read from the server.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._holders: OrderedDict[RecentBatches, None] = OrderedDict()  # ordered by their newest record, oldest first

    def grown(self, holder: RecentBatches, size: int) -> None:
        """Add `size` bytes, which may be negative, to what `holder` keeps, and clear other holders if needed."""
        self._size += size
        if size > 0:
            self._holders[holder] = None
            self._holders.move_to_end(holder)
        while self._size > self._most and (first := next(iter(self._holders))) is not holder:
            first.clear()

    def left(self, holder: RecentBatches) -> None:
        """Remove a holder that keeps nothing."""
        self._holders.pop(holder, None)


class RecentBatches:
    """The newest batches of a stream, without gaps, oldest first: about `most_bytes`, or one larger batch.

    Empty if other streams need the `room`.
    """

    def __init__(self, most_bytes: int, room: RecentRoom | None = None) -> None:
        self._most = most_bytes
        self._room = room or RecentRoom(most_bytes)
        self._size = 0
        self._batches: deque[tuple[NumberedRecords, RecordBatch]] = deque()

    def add(self, numbered: NumberedRecords, tail: StreamPosition) -> None:
        """Add the newest records; if they do not follow the present ones, they replace them. `tail`: the stream's."""
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
        """Drop all batches."""
        self._batches.clear()
        self._grow(-self._size)
        self._room.left(self)

    def _grow(self, size: int) -> None:
        self._size += size
        self._room.grown(self, size)

    def holding(self, seq_num: int) -> tuple[NumberedRecords, RecordBatch] | None:
        """Return the batch that holds this record, or None."""
        for numbered, batch in reversed(self._batches):
            if numbered.first <= seq_num:
                return (numbered, batch) if seq_num < numbered.first + batch.count else None
        return None

    def mark_of(self, seq_num: int) -> Mark | None:
        """Return the mark of a record, or None if no batch holds it."""
        holding = self.holding(seq_num)
        return None if holding is None else holding[0].mark(seq_num - holding[0].first)

    def seq_num_of(self, mark: Mark) -> int | None:
        """Return the number of the record with the identifier or offset of `mark`, or None; ignores `mark.seq_num`."""
        for numbered, _ in reversed(self._batches):
            index = numbered.find(mark)
            if index is not None:
                return numbered.first + index
        return None
