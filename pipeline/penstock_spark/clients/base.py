"""What a client of any protocol can do: one face for the source, the sink and the jobs.

Streams are named `basin/stream` for S2, and by their plain name for S3P, as in the tables of captures. Of Pravega each
segment is a stream: the first one is called `scope/stream`, others `scope/stream/NUMBER.#epoch.EPOCH`.

Everything raises OperationFailed (`penstock_codecs.failures`) with the server's words, or UNAVAILABLE where the server
could not be reached or went away; the client may be used again after either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock_codecs.model import Columns, Headers, StreamPosition

__all__ = ["Appender", "Mark", "NumberedAppender", "Rows", "StreamClient"]


class Mark(NamedTuple):
    """Where a reader stands in a stream: at the next record, which has sequence number `seq_num`.

    `place`: how a protocol without sequence numbers finds it again: S3P the smallest identifier that it may have
    (`ms-seq`), segments its byte offset; "" for S2, where the number is the place. There `seq_num` is counted, from 0
    at the first record that a query finds in the stream; it equals S2's where nothing was trimmed before.
    """

    seq_num: int
    place: str = ""


class Rows(NamedTuple):
    """Consecutive records, and where the reader stands after them.

    `columns.timestamps` is empty where the protocol tells none (segments)."""

    columns: Columns
    next: Mark


class StreamClient(Protocol):
    """See the module."""

    indexed: bool
    """Whether a sequence number is a place (S2): then ranges of a stream can be read apart from each other."""

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Names of the streams that begin with `prefix`, in their order. Raises NOT_IMPLEMENTED where the protocol has
        no listing (S3P; segments without a controller)."""

    def first(self, stream: str) -> Mark:
        """At the first record that is kept; the tail where there is none."""

    def tail(self, stream: str, after: Mark | None = None) -> Mark:
        """Behind the last record. `after`: a place before it that is known, so that a protocol without sequence numbers
        need not count from the beginning."""

    def last_timestamp(self, stream: str) -> int | None:
        """Of the last record, in ms; None where there is none, or the protocol does not tell."""

    def at_timestamp(self, stream: str, timestamp: int) -> Mark:
        """At the first record stamped at or after `timestamp` (ms), or the tail. Raises NOT_IMPLEMENTED for segments,
        where nothing is stamped."""

    def advance(self, stream: str, start: Mark, count: int) -> Mark:
        """`count` records on from `start`, or the tail: what bounds a micro-batch. Costs one request where `indexed`,
        else reading what lies between. Both this and `tail` raise RANGE_NOT_SATISFIABLE where what they count from was
        trimmed away (details: `first`, the Mark that is there now, with the number that was reached)."""

    def read(self, stream: str, start: Mark, end: Mark) -> Iterator[Rows]:
        """The records from `start` up to and without `end`, none missing.

        Raises RANGE_NOT_SATISFIABLE where `start` was trimmed away (details: `first`, the Mark that is there now), at
        once or while reading, or where `end` is beyond the tail (details: `tail`, a Mark; what there is was given).
        Command records of S2 (fences, trims) are records like the others. A connection that breaks is made again, and
        the reading goes on where it was."""

    def appender(self, stream: str) -> Appender:
        """To append to a stream; see there. Raises NOT_IMPLEMENTED for S3P and segments, which have no such
        conditions."""

    def numbered_appender(self, stream: str, writer: UUID) -> NumberedAppender:
        """To append to a stream in the name of a writer; see there. Raises NOT_IMPLEMENTED but for segments."""

    def create(self, stream: str, *, endless: bool = False) -> bool:
        """Create a stream; False where it is there already, as it is. `endless`: its records are kept until they are
        trimmed, whatever the server's default. Raises NOT_IMPLEMENTED where the protocol cannot."""

    def delete(self, stream: str) -> None:
        """Delete a stream; does nothing where there is none. The name may not be free at once. Raises NOT_IMPLEMENTED
        where the protocol cannot."""

    def trim(self, stream: str, first: Mark) -> None:
        """Let go of the records before `first`; S2 does so some time after. For S2 that takes a record of its own, a
        command, which has a sequence number. Raises NOT_IMPLEMENTED where the protocol cannot."""

    def close(self) -> None:
        """Give up the connections, and reads and appends that are under way on them."""


class Appender(Protocol):
    """Appends on condition of the place, so that what was sent twice is stored once. It sends nothing by itself a
    second time. After it raised, it is of no use any more."""

    acknowledged: int
    """How many of the batches that were given are known to be stored; looks, without waiting, at what came until the
    last call."""

    def append(
        self,
        bodies: Sequence[bytes],
        headers: Mapping[int, Headers],
        timestamps: Sequence[int | None] | None,
        expected: int | None,
    ) -> None:
        """Send a batch (at most 1,000 records and 1 MiB metered for S2) that must begin at sequence number `expected`
        (None: anywhere). Several may be under way; waits while they are some MiB. Raises
        OperationFailed(SEQ_NUM_MISMATCH) of this or an earlier one: then it, and all that were sent after it, were not
        stored."""

    def flush(self) -> StreamPosition | None:
        """Wait until everything sent is acknowledged; the end of the last batch (None: nothing was sent). Raises as
        `append`. UNAVAILABLE: what was under way may be stored or not, and a look at the stream tells."""

    def close(self) -> None:
        """Give up the connection, without waiting."""


class NumberedAppender(Protocol):
    """Appends in the name of a writer, whose events have growing numbers: the server stores an append only while the
    writer's last number is the one that this appender knows, so that what was sent twice is stored once. It sends
    nothing by itself a second time. After it raised, it is of no use any more."""

    last: int | None
    """The number of the writer's last event that was stored when this was opened (which is when it is made); None:
    the server does not know the writer."""

    acknowledged: int
    """As in Appender."""

    def append(self, bodies: Sequence[bytes], last: int) -> None:
        """Send a batch of events (several may be under way, as in Appender), the last of which has this number, at
        least one more than that of the batch before. Raises STALE_WRITER_POSITION where the writer has gone on without
        us: then this batch, and all that were sent after it, were not stored."""

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises as `append`. UNAVAILABLE: what was under way may be stored
        or not; a new appender's `last` tells."""

    def close(self) -> None:
        """Give up the connection, without waiting."""
