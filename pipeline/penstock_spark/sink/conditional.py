"""Appends to one stream of S2: each states the sequence number that it must get, and carries a marker."""

from __future__ import annotations

from collections import deque

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import Appender, ReadPosition, StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.appending import StreamWriter
from penstock_spark.sink.cutting import AppendRows
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.ledger import stream_end
from penstock_spark.sink.marker import Marker, find_marker, marker_header

__all__ = ["ConditionalWriter"]


class ConditionalWriter(StreamWriter):
    """A `StreamWriter` for S2. `owner`: as in markers. `start`: a number before all of the owner's rows."""

    _passed = FailureCode.SEQ_NUM_MISMATCH

    def __init__(
        self, client: StreamClient, stream: str, owner: bytes, start: int, patience: Patience, *, create: bool = False
    ) -> None:
        super().__init__(client, stream, patience, create=create)
        self._owner = owner
        self._seen = start  # all records from `start` up to here were read, or are ours and acknowledged
        self._next = start  # the number that the next append must get
        self._known = 0  # rows that are stored, or have a marker
        self._found: deque[Marker] = deque()  # of rows that were not put yet
        self._conditional: Appender

    def look_back(self) -> int:
        """Read the records since `start`, instead of waiting for an append to be refused; return the number of stored
        rows."""
        self._look()
        return self._known

    def _open(self) -> Appender:
        self._conditional = self._client.appender(self.stream)
        self._next = self._seen
        return self._conditional

    def _append(self, cut: AppendRows) -> None:
        rows = cut.rows
        marker = marker_header(self._owner, Marker(cut.first, cut.end, cut.digest_at(cut.end)))
        first = (*rows.headers.get(0, ()), marker)
        self._conditional.append(rows.bodies, {**rows.headers, 0: first}, rows.timestamps, self._next)
        self._next += len(rows.bodies)

    def _stored(self, cut: AppendRows) -> None:
        self._seen += len(cut.rows.bodies)
        self._known = cut.end

    def _missing(self, cut: AppendRows) -> list[AppendRows]:
        while self._found and self._found[0].end <= cut.end:
            marker = self._found.popleft()
            if cut.digest_at(marker.end) != marker.digest:
                raise RowsDiffer(f"{self.stream}: {self._whose()} already stored other rows than these {marker.end}")
        if cut.first >= self._known:
            return [cut]
        return [cut.after(self._known)] if cut.end > self._known else []

    def _look(self) -> None:
        start = ReadPosition(self._seen)
        try:
            tail = stream_end(self._client, self.stream)
            if tail.seq_num < start.seq_num:
                message = f"it had {start.seq_num} records and has {tail.seq_num}: it was deleted meanwhile"
                raise SinkFailed(f"{self.stream}: {message}")
            if tail.seq_num > start.seq_num:
                self._search(start, tail)
        except OperationFailed as error:
            if error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE:
                message = f"records from {start.seq_num} on were trimmed while {self._whose()} was being written"
                raise SinkFailed(f"{self.stream}: {message}; the stored part is unknown") from error
            raise

    def _search(self, start: ReadPosition, tail: ReadPosition) -> None:
        for rows in self._client.read(self.stream, start, tail):
            for index in sorted(rows.columns.headers):
                marker = find_marker(self._owner, rows.columns.headers[index])
                if marker is not None:
                    self._note(marker, rows.columns.seq_nums[index])
            self._seen = rows.next.seq_num

    def _note(self, marker: Marker, seq_num: int) -> None:
        if marker.first != self._known:
            message = (
                f"record {seq_num} says that it is row {marker.first} of {self._whose()}, after {self._known} rows"
            )
            raise SinkFailed(f"{self.stream}: {message}: was it copied?")
        self._known = marker.end
        self._found.append(marker)

    def _check_end(self) -> None:
        if self._found:
            message = f"{self._whose()} stored {self._known} rows, and has fewer now"
            raise RowsDiffer(f"{self.stream}: {message}")

    def _whose(self) -> str:
        return "sink {}, batch {}, partition {}".format(*self._owner.decode().split(" "))
