"""Append the rows of one stream: send them, resend them, or find that they are stored.

Each append states the sequence number that it must get, and carries a marker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed
from penstock_spark.clients.appending import Appender
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.cutting import AppendRows
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.ledger import stream_end
from penstock_spark.sink.marker import Marker, find_marker, marker_header

__all__ = ["StreamWriter"]

_LOG: Final = logging.getLogger(__name__)
_MANY: Final = 64
"""A warning is logged at this number of conflicts, and at each doubling: a conditional append cannot succeed while
another writer appends without pause."""
_CAREFUL: Final = 4
"""Appends that are sent one by one after a conflict, as those sent ahead would fail."""


class StreamWriter:
    """Appends one task's rows to one stream, each once, in order. Several appends are in flight at a time, and are kept
    until acknowledged; the client bounds their number.

    Rows are put in order, from row 0 on, including those that are stored already. All methods raise OperationFailed if
    the server is gone for too long or refuses, and SinkFailed if the rows cannot be written.

    `owner`: as in markers. `start`: a sequence number before all of the owner's rows. `create`: create the stream if it
    does not exist and an append does not create it.
    """

    def __init__(
        self, client: StreamClient, stream: str, owner: bytes, start: int, patience: Patience, *, create: bool = False
    ) -> None:
        self.stream = stream
        self._client = client
        self._owner = owner
        self._create = create
        self._made = False
        self._patience = patience
        self._seen = start  # all records from `start` up to here were read, or are ours and acknowledged
        self._next = start  # the number that the next append must get
        self._known = 0  # rows that are stored, or have a marker
        self._unmatched: deque[Marker] = deque()  # of rows that were not put yet
        self._waiting: deque[AppendRows] = deque()  # not acknowledged; the first `_sent` are in flight
        self._sent = 0
        self._settled = 0  # acknowledged appends of the current appender that were removed from `_waiting`
        self._careful = 0
        self._passes = 0  # conflicts with other writers
        self._appender: Appender | None = None

    def look_back(self) -> int:
        """Read the records since `start`, instead of waiting for an append to be refused; return the number of stored
        rows."""
        self._look()
        return self._known

    def put(self, cut: AppendRows) -> None:
        """Take an append; returns when it is in flight, or stored."""
        self._waiting.extend(self._missing(cut))
        self._drive(self._send)

    def rest(self) -> None:
        """Wait until all that was put is stored, and close the connection. More may be put later."""
        self._drive(self._flush)
        self.close()

    def finish(self) -> None:
        """Wait until all is stored. Raises RowsDiffer if more is stored than was put."""
        self.rest()
        if self._unmatched:
            message = f"{self._whose()} stored {self._known} rows, and has fewer now"
            raise RowsDiffer(f"{self.stream}: {message}")

    def close(self) -> None:
        """Close the connection."""
        appender, self._appender = self._appender, None
        self._sent = self._settled = 0
        if appender is not None:
            appender.close()

    # ---- appends in flight -------------------------------------------------------------------------------------------

    def _drive(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
                return
            except OperationFailed as error:
                self._settle()
                self.close()
                self._recover(error)

    def _send(self) -> None:
        while self._sent < len(self._waiting):
            if self._appender is None:
                self._appender = self._client.appender(self.stream)
                self._next = self._seen
            self._append(self._appender, self._waiting[self._sent])
            self._sent += 1
            if self._careful:
                self._careful -= 1
                self._appender.flush()
            self._settle()

    def _append(self, appender: Appender, cut: AppendRows) -> None:
        rows = cut.rows
        marker = marker_header(self._owner, Marker(cut.first, cut.end, cut.digest_at(cut.end)))
        first = (*rows.headers.get(0, ()), marker)
        appender.append(rows.bodies, {**rows.headers, 0: first}, rows.timestamps, self._next)
        self._next += len(rows.bodies)

    def _flush(self) -> None:
        self._send()
        if self._appender is not None:
            self._appender.flush()
            self._settle()

    def _settle(self) -> None:
        if self._appender is None:
            return
        while self._settled < self._appender.acknowledged:
            self._settled += 1
            self._sent -= 1
            cut = self._waiting.popleft()
            self._seen += len(cut.rows.bodies)
            self._known = cut.end
            self._patience.progress()

    # ---- after a failure ---------------------------------------------------------------------------------------------

    def _recover(self, error: OperationFailed) -> None:
        code = error.failure.code
        if code is FailureCode.SEQ_NUM_MISMATCH:
            self._careful = _CAREFUL
            self._note_pass()
        elif code is FailureCode.STREAM_NOT_FOUND:
            self._make(error)
        else:
            self._patience.wait(error)
        before = self._seen
        self._patience.over(self._look)
        if self._seen == before and code is FailureCode.SEQ_NUM_MISMATCH:
            message = (
                f"{self.stream}: the server refuses an append ({error.failure}), although no other append came between"
            )
            raise SinkFailed(message) from error
        self._waiting = deque(part for cut in self._waiting for part in self._missing(cut))

    def _note_pass(self) -> None:
        self._passes += 1
        if self._passes >= _MANY and self._passes & (self._passes - 1) == 0:
            _LOG.warning("%s: appends of others came between %d times and delay this task", self.stream, self._passes)

    def _make(self, error: OperationFailed) -> None:
        if self._made:
            raise error
        if not self._create:
            message = f"{error.failure.message}: appends do not create it; set the option create = true"
            raise SinkFailed(f"{self.stream}: {message}") from error
        self._made = True
        self._client.create(self.stream)

    def _missing(self, cut: AppendRows) -> list[AppendRows]:
        """Return the part of an append that is not known to be stored: all, a part or nothing. Raises RowsDiffer."""
        while self._unmatched and self._unmatched[0].end <= cut.end:
            marker = self._unmatched.popleft()
            if cut.digest_at(marker.end) != marker.digest:
                raise RowsDiffer(f"{self.stream}: {self._whose()} already stored other rows than these {marker.end}")
        if cut.first >= self._known:
            return [cut]
        return [cut.after(self._known)] if cut.end > self._known else []

    def _look(self) -> None:
        """Find out, by reading the records from `_seen` on, which rows are stored. May be called again if it fails
        halfway."""
        start = self._seen
        try:
            tail = stream_end(self._client, self.stream)
            if tail < start:
                message = f"it had {start} records and has {tail}: it was deleted meanwhile"
                raise SinkFailed(f"{self.stream}: {message}")
            if tail > start:
                self._search(start, tail)
        except OperationFailed as error:
            if error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE:
                message = f"records from {start} on were trimmed while {self._whose()} was being written"
                raise SinkFailed(f"{self.stream}: {message}; the stored part is unknown") from error
            raise

    def _search(self, start: int, tail: int) -> None:
        for batch in self._client.read(self.stream, start, tail):
            for index in sorted(batch.columns.headers):
                marker = find_marker(self._owner, batch.columns.headers[index])
                if marker is not None:
                    self._note(marker, batch.columns.seq_nums[index])
            self._seen = batch.next_seq_num

    def _note(self, marker: Marker, seq_num: int) -> None:
        if marker.first != self._known:
            message = (
                f"record {seq_num} says that it is row {marker.first} of {self._whose()}, after {self._known} rows"
            )
            raise SinkFailed(f"{self.stream}: {message}: was it copied?")
        self._known = marker.end
        self._unmatched.append(marker)

    def _whose(self) -> str:
        return "sink {}, batch {}, partition {}".format(*self._owner.decode().split(" "))
