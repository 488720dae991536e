"""A client of S3P servers. S3P identifies records as `ms-seq`; it neither numbers records nor lists streams."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import Columns, RecordId
from penstock_codecs.s3p import Create, Delete, ReadRecords, Records, TrimRecords
from penstock_spark.clients.base import Appender, NumberedAppender, ReadPosition, ReadResult, StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import Pool
from penstock_spark.clients.s3p.connection import BlockingS3PConnection
from penstock_spark.clients.s3p.walk import ALL, START, Trimmed, Walk, following

__all__ = ["S3PStreamClient"]

_LAST_MS: Final = (1 << 63) - 1
"""Bound above every record's time, in ms. Later times are never asked for: some of them crash the reference server."""


class S3PStreamClient(StreamClient):
    """See `StreamClient`. A stream's name is its bytes as UTF-8 (other bytes by Python's surrogateescape).

    Numbers are counted by reading, so `tail` costs reading what lies after `after`, `advance` what lies between, and
    `at_timestamp` what lies before. `ReadPosition.place` is the smallest identifier that the next record may have; if
    it is "", it is found by counting `seq_num` records from the first one.

    Trimming before reading raises RANGE_NOT_SATISFIABLE, as far as S3P reveals it: `read` compares the number of
    records between its marks; `tail` and `advance` notice unless the record before `start` is still there, or if the
    record that is now first is not the first of its millisecond. If a trim removed both the last record read and
    records of later milliseconds after it, before they were counted, it goes unnoticed.
    """

    indexed = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool = Pool(endpoint, lambda: BlockingS3PConnection(endpoint))

    def streams(self, prefix: str = "") -> Iterator[str]:  # noqa: ARG002 - nothing can be listed
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._endpoint}: S3P cannot list streams: name them")

    def require(self, stream: str) -> None:
        """See `StreamClient`: reads make no streams here."""

    def first(self, stream: str) -> ReadPosition:
        """See `StreamClient`. In an empty stream the smallest of all identifiers."""
        return ReadPosition(0, str(self._find(stream, START) or START))

    def tail(self, stream: str, after: ReadPosition | None = None) -> ReadPosition:
        return self._count(stream, self.first(stream) if after is None else after, ALL)

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        return self._count(stream, start, count)

    def identity(self, stream: str, mark: ReadPosition, like: str = "") -> str:  # noqa: ARG002 - as there
        """See `StreamClient`. Always "", since a new stream's identifiers follow those of the old one."""
        return ""

    def last_timestamp(self, stream: str) -> int | None:
        """See `StreamClient`. Takes about 80 requests at most, with steps of time that double and then halve."""
        first = self._find(stream, START)
        if first is None:
            return None
        last, step = first.ms, 1
        while last + step < _LAST_MS and (found := self._find(stream, RecordId(last + step, 0))) is not None:
            last, step = found.ms, 2 * step
        none = min(last + step, _LAST_MS)
        while none - last > 1:
            middle = (last + none) // 2
            found = self._find(stream, RecordId(middle, 0))
            last, none = (last, middle) if found is None else (max(found.ms, middle), max(none, found.ms + 1))
        return last

    def at_timestamp(self, stream: str, timestamp: int) -> ReadPosition:
        at = self.first(stream)
        for page in self._pages(stream, at, ALL):
            earlier = bisect_left(page.timestamps, timestamp)
            if earlier < len(page.bodies):
                return ReadPosition(at.seq_num + earlier, f"{page.timestamps[earlier]}-{page.seqs[earlier]}")
            at = _behind(at, page)
        return at

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        """See `StreamClient`. If `end.place` is known and the record before `start` is gone, the records between are
        counted first; records trimmed during the read are noticed at the end at the latest."""
        at = start = self._placed(stream, start)
        bound = self._id(end.place) if end.place else None
        if bound is not None and at.seq_num < end.seq_num and not self._is_whole(stream, start):
            self._check_range(stream, start, end)
        for page in self._pages(stream, at, end.seq_num - at.seq_num, end):
            if bound is not None and RecordId(page.timestamps[-1], page.seqs[-1]) >= bound:
                self._check_range(stream, start, end)
                raise self._gone(stream, start, at)  # maybe the stream was deleted and created again
            following_mark = _behind(at, page)
            numbers = range(at.seq_num, following_mark.seq_num)
            at = following_mark
            yield ReadResult(Columns(numbers, page.timestamps, page.bodies), at)
        if at.seq_num < end.seq_num:
            if bound is not None:
                self._check_range(stream, start, end, None if at == start else at)
            message = f"{self._endpoint}: stream {stream} ends {end.seq_num - at.seq_num} records before {end}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, message, tail=at)

    def appender(self, stream: str) -> Appender:
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(
            FailureCode.NOT_IMPLEMENTED,
            f"{self._endpoint}: S3P has no conditional appends, so stream {stream} could be given records twice",
        )

    def numbered_appender(self, stream: str, writer: UUID) -> NumberedAppender:  # noqa: ARG002 - there are none
        """See `StreamClient`: NOT_IMPLEMENTED."""
        raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._endpoint}: S3P has no writers, as for stream {stream}")

    def create(self, stream: str, *, endless: bool = False) -> bool:  # noqa: ARG002 - they all are
        """See `StreamClient`. The request is retried if its answer is lost; it returns False then even if the first
        attempt created the stream."""
        try:
            self._pool.call(lambda connection: connection.call(Create(_name(stream))))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True

    def delete(self, stream: str) -> None:
        try:
            self._pool.call(lambda connection: connection.call(Delete(_name(stream))))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise

    def trim(self, stream: str, first: ReadPosition) -> None:
        command = TrimRecords(_name(stream), self._id(self._placed(stream, first).place))
        self._pool.call(lambda connection: connection.call(command))

    def close(self) -> None:
        self._pool.close()

    # ---- internals -----------------------------------------------------------------------------------------------

    def _find(self, stream: str, start: RecordId) -> RecordId | None:
        """Return the identifier of the first record at or after `start`, or None."""
        found = self._pool.call(lambda connection: connection.read(ReadRecords(_name(stream), 1, 0, start)))
        first = RecordId(found.timestamps[0], found.seqs[0]) if found.bodies else None
        if first is not None and first < start:
            raise lost(self._endpoint, f"asked for records from {start} on it gives {first}")
        return first

    def _count(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        at = self._placed(stream, start)
        for page in self._pages(stream, at, count):
            at = _behind(at, page)
        return at

    def _pages(
        self, stream: str, start: ReadPosition, count: int, end: ReadPosition | None = None
    ) -> Iterator[Records]:
        """Yield pages of records. Raises RANGE_NOT_SATISFIABLE if records are gone."""
        try:
            yield from Walk(self._pool, self._endpoint, _name(stream)).pages(self._id(start.place), count)
        except Trimmed as trimmed:
            if end is not None and end.place:
                self._check_range(stream, start, end)
            raise self._gone(stream, start, ReadPosition(start.seq_num + trimmed.walked, str(trimmed.first))) from None

    def _is_whole(self, stream: str, start: ReadPosition) -> bool:
        """Return whether it is certain that nothing was trimmed after `start`; see `s3p.walk`."""
        place = self._id(start.place)
        before = RecordId(place.ms, place.seq - 1) if place.seq else place
        return self._find(stream, before) in (before, place)

    def _check_range(
        self, stream: str, start: ReadPosition, end: ReadPosition, tail: ReadPosition | None = None
    ) -> None:
        """Raise RANGE_NOT_SATISFIABLE if the number of records between the marks has changed. `tail`: the end of the
        stream as seen by a read from `start` on."""
        first, left = self._left(stream, self._id(start.place), self._id(end.place))
        expected = end.seq_num - start.seq_num
        if left != expected:
            message = f"{self._endpoint}: stream {stream} has {left} records from {start} to {end}, not {expected}"
            found = {"first": ReadPosition(max(end.seq_num - left, start.seq_num), str(first))}
            details = found if tail is None else {**found, "tail": tail}
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, f"{message}: it was trimmed, or created again", **details)

    def _left(self, stream: str, start: RecordId, end: RecordId) -> tuple[RecordId, int]:
        """Return the first record from `start` on and the number of records before `end`; (`end`, 0) if there are
        none."""
        while (first := self._find(stream, start)) is not None and first < end:
            left = 0
            try:
                for page in Walk(self._pool, self._endpoint, _name(stream)).pages(first):
                    ids = list(map(RecordId, page.timestamps, page.seqs))
                    left += bisect_left(ids, end)
                    if ids[-1] >= end:
                        break
                return first, left
            except Trimmed as trimmed:
                start = trimmed.first
        return end, 0

    def _gone(self, stream: str, start: ReadPosition, first: ReadPosition) -> OperationFailed:
        message = f"{self._endpoint}: records of stream {stream} from {start.place} on are gone, {first.place} is first"
        return fail(FailureCode.RANGE_NOT_SATISFIABLE, message, first=first)

    def _placed(self, stream: str, mark: ReadPosition) -> ReadPosition:
        return mark if mark.place else self._count(stream, self.first(stream), mark.seq_num)

    def _id(self, place: str) -> RecordId:
        found = RecordId.parse(place.encode("utf-8", "replace"))
        if found is None:
            raise fail(FailureCode.INVALID, f"{self._endpoint}: {place!r:.80} is no identifier ms-seq")
        return found


def _name(stream: str) -> bytes:
    return stream.encode("utf-8", "surrogateescape")


def _behind(at: ReadPosition, page: Records) -> ReadPosition:
    return ReadPosition(at.seq_num + len(page.bodies), str(following(RecordId(page.timestamps[-1], page.seqs[-1]))))
