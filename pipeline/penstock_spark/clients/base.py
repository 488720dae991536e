"""The interface that every protocol's client offers to the source, the sink and the jobs.

Streams are named `basin/stream` in S2 and by their plain name in Durable Streams, as in the tables of captures. In
Pravega each segment is a stream: the first one is called `scope/stream`, others `scope/stream/NUMBER.#epoch.EPOCH`.

Every method raises OperationFailed (`penstock_codecs.failures`) with the server's message, or UNAVAILABLE if the server
cannot be reached or goes away; the client can be used again after either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from penstock_codecs.model import Columns, Headers, StreamPosition

__all__ = ["ROW_BITS", "Appender", "NumberedAppender", "ReadPosition", "ReadResult", "StreamClient"]

ROW_BITS: Final = 32
"""Bits of a `NumberedAppender`'s number that count the rows of a batch. Those above are the number of the batch."""


class ReadPosition(NamedTuple):
    """The position of a reader in a stream: before the record with sequence number `seq_num`.

    `place`: how a protocol without sequence numbers finds the record again: in segments its byte offset, in Durable
    Streams an offset and a number of records behind it; "" for S2, where the number is the place. Without sequence
    numbers, `seq_num` is counted from 0 at the first record that a query finds in the stream; it equals S2's number
    unless records before it were trimmed.

    Positions of one stream are ordered by places that are numbers. Other places are visible ASCII characters with a
    comma, and have no order: there `seq_num` decides.
    """

    seq_num: int
    place: str = ""


class ReadResult(NamedTuple):
    """Consecutive records, and the position of the reader after them.

    `columns.timestamps` is empty for protocols that do not report timestamps (segments).
    """

    columns: Columns
    next: ReadPosition


class StreamClient(Protocol):
    """A client of one server."""

    indexed: bool
    """True if a sequence number is a place (S2), so that ranges of a stream can be read independently of each other."""

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Return the names of the streams that begin with `prefix`, sorted. Raises NOT_IMPLEMENTED if the protocol has
        no listing (Durable Streams; segments without a controller)."""

    def require(self, stream: str) -> None:
        """Raise STREAM_NOT_FOUND, with the name, if looking at a missing stream would create it: S2 has basins in which
        reads create streams. Otherwise ask nothing; the next request finds out."""

    def first(self, stream: str) -> ReadPosition:
        """Return the position of the oldest record that is kept, or the tail if there is none."""

    def tail(self, stream: str, after: ReadPosition | None = None) -> ReadPosition:
        """Return the position after the last record. `after`: a known position before it, so that a protocol without
        sequence numbers need not count from the beginning."""

    def last_timestamp(self, stream: str) -> int | None:
        """Return the timestamp of the last record, in ms, or None if there is no record or the protocol does not report
        timestamps."""

    def at_timestamp(self, stream: str, timestamp: int) -> ReadPosition:
        """Return the position of the first record stamped at or after `timestamp` (ms), or the tail. Raises
        NOT_IMPLEMENTED for segments, which have no timestamps."""

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        """Return the position `count` records after `start`, or the tail: the end of a micro-batch. Costs one request
        if `indexed`, otherwise reading the records between. Both this and `tail` raise RANGE_NOT_SATISFIABLE if the
        position that they count from was trimmed away (details: `first`, the Mark of the first record now, with the
        number reached)."""

    def identity(self, stream: str, mark: ReadPosition, like: str = "") -> str:
        """Return a value that tells the stream at `mark` from another one of the same name: a digest of the last record
        before it, with its timestamp (S2), or of some bytes before it (segments). Return "" if there is no such value:
        no record precedes `mark` (any more), or the protocol has no such value (Durable Streams). `like`: an identity
        to compare the result with."""

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        """Yield the records from `start` up to but not including `end`, without gaps.

        Raises RANGE_NOT_SATISFIABLE if `start` was trimmed away (details: `first`, the Mark of the first record now),
        at once or while reading, or if `end` is beyond the tail (details: `tail`, a Mark; all records before the tail
        were yielded). Command records of S2 (fences, trims) are yielded like other records. After a broken connection
        it reconnects and resumes.
        """

    def appender(self, stream: str) -> Appender:
        """Return an appender to a stream. Raises NOT_IMPLEMENTED except for S2: other protocols have no appends on
        condition of a sequence number."""

    def numbered_appender(self, stream: str, writer: UUID) -> NumberedAppender:
        """Return an appender to a stream on behalf of a writer. Raises NOT_IMPLEMENTED for S2."""

    def create(self, stream: str, *, endless: bool = False) -> bool:
        """Create a stream and return True; return False if it exists, and leave it as it is. `endless`: keep its
        records until they are trimmed, whatever the server's default retention. Raises NOT_IMPLEMENTED if the protocol
        cannot create streams."""

    def delete(self, stream: str) -> None:
        """Delete a stream; do nothing if it does not exist. The name may not be free at once. Raises NOT_IMPLEMENTED if
        the protocol cannot delete streams."""

    def trim(self, stream: str, first: ReadPosition) -> None:
        """Release the records before `first`; S2 does so some time later. In S2 a trim is a command record, which takes
        a sequence number. Raises NOT_IMPLEMENTED if the protocol cannot trim."""

    def close(self) -> None:
        """Close the connections, and abort reads and appends in flight on them."""


class Appender(Protocol):
    """An appender whose batches name the sequence number that they must begin at, so that a batch sent twice is stored
    once. It never resends by itself, and cannot be used after it raised."""

    acknowledged: int
    """Number of batches given that are known to be stored. Counts acknowledgements received up to the last call;
    reading it does not wait."""

    def append(
        self,
        bodies: Sequence[bytes],
        headers: Mapping[int, Headers],
        timestamps: Sequence[int | None] | None,
        expected: int | None,
    ) -> None:
        """Send a batch (at most 1,000 records and 1 MiB metered for S2) that must begin at sequence number `expected`
        (None: anywhere). Several batches may be in flight; waits while some MiB are. Raises
        OperationFailed(SEQ_NUM_MISMATCH) for this or an earlier batch: that batch, and all sent after it, were not
        stored."""

    def flush(self) -> StreamPosition | None:
        """Wait until every batch sent is acknowledged and return the end of the last one (None if none was sent).
        Raises as `append`. After UNAVAILABLE, batches in flight may or may not be stored: read the stream to find
        out."""

    def close(self) -> None:
        """Close the connection, without waiting."""


class NumberedAppender(Protocol):
    """An appender on behalf of a writer whose events carry increasing numbers. The server stores an append only while
    the writer's last number is the one that this appender knows, so that an append sent twice is stored once. It never
    resends by itself, and cannot be used after it raised."""

    last: int | None
    """Number of the writer's last stored event when this was opened (on construction), or None if the server does not
    know the writer. Numbers count the events of a batch from 1; see ROW_BITS."""

    acknowledged: int
    """As in `Appender`."""

    def append(self, bodies: Sequence[bytes], last: int) -> None:
        """Send a batch of events (several may be in flight, as in `Appender`). `last` is the number of its last event,
        at least one more than that of the batch before. Raises STALE_WRITER_POSITION if another client has appended as
        this writer: this batch, and all sent after it, were not stored."""

    def flush(self) -> None:
        """Wait until every batch sent is acknowledged. Raises as `append`. After UNAVAILABLE, batches in flight may or
        may not be stored; a new appender's `last` tells."""

    def close(self) -> None:
        """Close the connection, without waiting."""
