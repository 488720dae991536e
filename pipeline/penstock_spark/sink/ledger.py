"""A sink's ledger: where each batch began in each stream, and which batch was committed last, with its tallies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Header, is_command
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.entries import (
    BatchCommitted,
    LedgerEntry,
    LedgerOpened,
    PartitionsStored,
    RowTally,
    StreamsTouched,
    decode_entry,
    touched,
)
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.marker import MARKER
from penstock_spark.source.selection import LEDGERS

__all__ = ["Ledger", "ledger_name", "stream_end"]


class Ledger:
    """The state of the ledger when it was last read. `partition`: the one for which streams' ends are kept, since each
    partition of a batch may write to thousands.

    `patience`: makes the limit for retrying an append; a doubled entry does no harm. All methods raise OperationFailed
    with the server's message, and SinkFailed if the ledger belongs to another query.

    An entry has a header, as each append of rows has: if the server does not keep it, stored rows could not be found.
    """

    def __init__(
        self,
        client: StreamClient,
        stream: str,
        query: str,
        patience: Callable[[], Patience],
        *,
        partition: int | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._query = query
        self._patience = patience
        self._partition = partition
        self._next: int | None = None
        self._keeps_headers = True  # the newest entry that was read has its header
        self._counted: dict[int, dict[int, RowTally]] = {}  # by batch and partition, of batches not committed yet
        self.opened = False
        """True if the driver of a one-off job created it."""
        self.committed: int | None = None
        """The last committed batch."""
        self.tallies: Mapping[int, RowTally] = {}
        """Tallies of the last committed batch, by partition; partitions without rows are missing."""
        self.touched: dict[tuple[int, int], dict[str, int]] = {}
        """By batch and partition: the streams' ends before its first append; empty for partitions other than ours. Only
        batches not yet committed."""

    def open(self) -> None:
        """Create the ledger if it does not exist, with unlimited retention, and read it."""
        self._client.create(self._stream, endless=True)
        self.look()

    def look(self) -> None:
        """Read new entries. Entries that were trimmed meanwhile are obsolete."""
        if self._next is None:
            self._next = self._client.first(self._stream)
        tail = self._client.tail(self._stream)
        while self._next < tail:
            try:
                for batch in self._client.read(self._stream, self._next, tail):
                    for index, body in enumerate(batch.columns.bodies):
                        headers = batch.columns.headers.get(index, ())
                        if not is_command(headers):
                            self._take(body, batch.columns.seq_nums[index])
                            self._keeps_headers = bool(headers)
                    self._next = batch.next_seq_num
            except OperationFailed as error:
                first = self._client.first(self._stream)
                if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE or first <= self._next:
                    raise
                self._next = first

    def touch(self, batch: int, partition: int, streams: Iterable[str]) -> dict[str, int]:
        """Return the streams' ends before any attempt at this batch and partition appended rows to them.

        Ends that the ledger lacks are requested from the streams (0 for one that does not exist) and entered. The first
        entry is valid for all attempts. Raises SinkFailed if the batch was committed meanwhile, or if the server drops
        headers.
        """
        known = self.touched.get((batch, partition), {})
        ends = {stream: stream_end(self._client, stream) for stream in streams if stream not in known}
        if ends or not self._keeps_headers:
            self.enter(touched(self._query, batch, partition, ends or known))
            self.look()
            if not self._keeps_headers:
                raise SinkFailed(
                    f"{self._stream}: the server does not keep headers, by which the sink finds rows that are stored. "
                    'For a server behind a gateway, set headers = "envelope" in [backs.NAME.loss]'
                )
            self.check(batch)
        if self.committed == batch:
            raise SinkFailed(f"{self._stream}: batch {batch} was committed while this attempt at it ran")
        return self.touched.get((batch, partition), {})

    def check(self, batch: int) -> None:
        """Raise SinkFailed if this batch is older than the last committed one."""
        if self.committed is not None and self.committed > batch:
            raise SinkFailed(
                f"{self._stream}: batch {batch} comes too late: batch {self.committed} was already committed. "
                "Batches of a sink have growing numbers; a query or job that starts again needs another sink"
            )

    def enter(self, entries: Iterable[LedgerEntry]) -> int:
        """Append entries, one after another; return the sequence number of the first."""
        return min([self._patience().over(_Append(self._client, self._stream, entry)) for entry in entries])

    def trim(self, first: int) -> None:
        """Trim all entries before this sequence number. Raises SinkFailed if the server takes no command records."""
        try:
            self._client.trim(self._stream, first)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.INVALID:
                raise
            raise SinkFailed(
                f"{self._stream}: the batch is stored, but entries of earlier ones cannot be trimmed: "
                f'{error.failure.message}. For a server behind a gateway, set command_records = "envelope" in '
                "[backs.NAME.loss]"
            ) from error

    def delete(self) -> None:
        """Delete the ledger."""
        self._client.delete(self._stream)

    def _take(self, body: bytes, seq_num: int) -> None:
        entry = decode_entry(body, f"{self._stream}: record {seq_num}")
        if entry.query != self._query:
            raise SinkFailed(
                f"{self._stream}: this sink belongs to {_owner(entry.query)}, not to {_owner(self._query)}; "
                "use the option sink to give this one another name"
            )
        if isinstance(entry, LedgerOpened):
            self.opened = True
        elif isinstance(entry, StreamsTouched):
            if self.committed is None or entry.batch > self.committed:
                place = self.touched.setdefault((entry.batch, entry.partition), {})
                if entry.partition == self._partition:
                    for stream, end in entry.streams.items():
                        place.setdefault(stream, end)
        elif isinstance(entry, PartitionsStored):
            self._counted.setdefault(entry.batch, {}).update(entry.partitions)
        else:
            self._commit(entry)

    def _commit(self, entry: BatchCommitted) -> None:
        if self.committed is None or entry.batch > self.committed:
            self.committed, self.tallies = entry.batch, self._counted.get(entry.batch, {})
            self._counted = {batch: tallies for batch, tallies in self._counted.items() if batch > entry.batch}
            self.touched = {place: tallies for place, tallies in self.touched.items() if place[0] > entry.batch}


class _Append:
    """Appends an entry in one attempt, and returns its sequence number."""

    def __init__(self, client: StreamClient, stream: str, entry: LedgerEntry) -> None:
        self._client, self._stream, self._body = client, stream, msgspec.json.encode(entry)

    def __call__(self) -> int:
        appender = self._client.appender(self._stream)
        try:
            appender.append([self._body], {0: (Header(MARKER, b"ledger"),)}, None, None)
            end = appender.flush()
        finally:
            appender.close()
        assert end is not None
        return end.seq_num - 1


def _owner(query: str) -> str:
    return f"the query {query}" if query else "batch jobs"


def stream_end(client: StreamClient, stream: str) -> int:
    """Return the end of a stream; 0 for one that does not exist (yet)."""
    try:
        return client.tail(stream)
    except OperationFailed as error:
        if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
            raise
        return 0


def ledger_name(basin: str, sink: str) -> str:
    """Return the name of the ledger's stream."""
    return f"{basin}/{LEDGERS}{sink}"
