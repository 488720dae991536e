"""A client of servers of Durable Streams, which have neither numbers of records nor lists of streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from penstock_codecs.durable import RECORDS_TYPE
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_spark.clients.base import Appender, NumberedAppender, ReadPosition, ReadResult, StreamClient
from penstock_spark.clients.durable.appending import DurableAppender
from penstock_spark.clients.durable.connection import DurableConnection
from penstock_spark.clients.durable.walk import ALL, START, BeginningLost, DurableWalk
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.pool import Pool

__all__ = ["DurableStreamClient"]

_GONE: Final = (FailureCode.STREAM_NOT_FOUND, FailureCode.OFFSET_TRUNCATED)


class _Tail(NamedTuple):
    """The end of a stream, and the server's offset for it."""

    at: ReadPosition
    offset: str


class DurableStreamClient(StreamClient):
    """See `StreamClient`. A stream's name is what follows `/v1/stream/` in its URL, decoded. Its records are the
    messages of a stream of JSON, or those of a stream of the content type `application/vnd.penstock.records`; other
    content, which has no boundaries, raises NOT_REPRESENTABLE.

    Numbers are counted by reading, so `tail` costs reading what lies after `after`, and `advance` what lies between.
    `ReadPosition.place` is explained in `durable.walk`; if it is "", it is found by counting `seq_num` records from the
    first one.

    Clients cannot trim, but a server may remove records from the beginning. Before reading, that raises
    RANGE_NOT_SATISFIABLE: the offset of a place is gone, or the first record has another digest. Records that were
    removed are not counted, so the number behind the gap is known only if the end of a range tells it.
    """

    indexed = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool = Pool(endpoint, lambda: DurableConnection(endpoint))

    def streams(self, prefix: str = "") -> Iterator[str]:  # noqa: ARG002 - nothing can be listed
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._endpoint}: Durable Streams cannot list streams: name them")

    def require(self, stream: str) -> None:
        """See `StreamClient`: reads make no streams here."""

    def first(self, stream: str) -> ReadPosition:
        return self._walk(stream).first_place()

    def tail(self, stream: str, after: ReadPosition | None = None) -> ReadPosition:
        return self._count(stream, self.first(stream) if after is None else after, ALL)

    def last_timestamp(self, stream: str) -> int | None:
        """See `StreamClient`: always None."""
        self._pool.call(lambda connection: connection.head(stream))
        return None

    def at_timestamp(self, stream: str, timestamp: int) -> ReadPosition:  # noqa: ARG002 - as there
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._endpoint}: records of stream {stream} have no timestamps")

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        return self._count(stream, start, count)

    def identity(self, stream: str, mark: ReadPosition, like: str = "") -> str:  # noqa: ARG002 - as there
        """See `StreamClient`. Always "": the record before an offset cannot be found."""
        return ""

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        at = start = self._placed(stream, start)
        try:
            for page in self._walk(stream).pages(start, end.seq_num - start.seq_num):
                at = page.next
                yield page
        except BeginningLost:
            raise self._gone(stream, at, end) from None
        if at.seq_num < end.seq_num:
            reason = f"{self._endpoint}: stream {stream} ends {end.seq_num - at.seq_num} records before {end}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, reason, tail=at)

    def appender(self, stream: str) -> Appender:
        """See `StreamClient`: NOT_IMPLEMENTED."""
        reason = f"{self._endpoint}: Durable Streams has no appends on condition of a number, as to stream {stream}"
        raise fail(FailureCode.NOT_IMPLEMENTED, reason)

    def numbered_appender(self, stream: str, writer: UUID) -> NumberedAppender:
        return DurableAppender(self._pool, self._endpoint, stream, writer)

    def create(self, stream: str, *, endless: bool = False) -> bool:  # noqa: ARG002 - they all are
        """See `StreamClient`. The stream is one of records. The request is retried if its answer is lost; it returns
        False then even if the first attempt created the stream."""
        kind = [("content-type", RECORDS_TYPE)]
        try:
            return self._pool.call(lambda connection: connection.ask("PUT", stream, kind)).status == 201
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False

    def delete(self, stream: str) -> None:
        try:
            self._pool.call(lambda connection: connection.ask("DELETE", stream))
        except OperationFailed as error:
            if error.failure.code not in _GONE:
                raise

    def trim(self, stream: str, first: ReadPosition) -> None:  # noqa: ARG002 - as there
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._endpoint}: Durable Streams has no trims, as of {stream}")

    def close(self) -> None:
        self._pool.close()

    # ---- internals -----------------------------------------------------------------------------------------------

    def _walk(self, stream: str) -> DurableWalk:
        return DurableWalk(self._pool, self._endpoint, stream)

    def _placed(self, stream: str, mark: ReadPosition) -> ReadPosition:
        return mark if mark.place else self._count(stream, self.first(stream), mark.seq_num)

    def _count(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        at = start = self._placed(stream, start)
        try:
            for page in self._walk(stream).pages(start, count):
                at = page.next
        except BeginningLost:
            raise self._gone(stream, at) from None
        return at

    def _gone(self, stream: str, at: ReadPosition, end: ReadPosition | None = None) -> OperationFailed:
        """Return the failure for records from `at` on that are gone."""
        left = 0 if end is None or not end.place else self._left(stream, end)
        number = at.seq_num + 1 if end is None else max(end.seq_num - left, at.seq_num + 1)
        first = self.first(stream)._replace(seq_num=number)
        reason = f"{self._endpoint}: records of stream {stream} from {at} on are gone, {first.place} is first"
        return fail(FailureCode.RANGE_NOT_SATISFIABLE, reason, first=first)

    def _left(self, stream: str, end: ReadPosition) -> int:
        """Return the number of records that are left before `end`. Both ways to the tail are counted until they meet,
        since its server may cut answers anywhere."""
        try:
            from_first, from_end = self._to_tail(stream, START), self._to_tail(stream, end)
            while from_first.offset != from_end.offset:
                if from_first.offset < from_end.offset:  # offsets are ordered as text
                    from_first = self._to_tail(stream, from_first.at)
                else:
                    from_end = self._to_tail(stream, from_end.at)
        except BeginningLost:
            return 0  # the end is gone, too
        return max(from_first.at.seq_num - (from_end.at.seq_num - end.seq_num), 0)

    def _to_tail(self, stream: str, at: ReadPosition) -> _Tail:
        walk = self._walk(stream)
        for page in walk.pages(at):
            at = page.next
        return _Tail(at, walk.offset)
