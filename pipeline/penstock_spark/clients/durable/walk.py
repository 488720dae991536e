"""Walk through a stream of Durable Streams record by record.

Offsets are opaque, and a server tells one at the end of each answer, which may be within a record. So the place of a
record is the number of records between it and an offset at which one begins: `N,OFFSET`. The offset `-1` is the
beginning of the content that is left. Its place has a digest of the first record, `N:DIGEST,-1`, by which a client
notices that the beginning was removed.

Offsets are ordered as text. A server that sends one before the offset that it was asked for has another stream now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock_codecs.durable import BEGINNING, ContentReader, PositionAnswer, TakenRecords, content_of
from penstock_codecs.failures import FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock_codecs.limits import MAX_BATCH_RECORDS, MIB
from penstock_codecs.model import Columns
from penstock_spark.clients.base import ReadPosition, ReadResult
from penstock_spark.clients.durable.connection import DurableConnection
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import Pool

__all__ = ["ALL", "START", "BeginningLost", "DurableWalk"]

ALL: Final = sys.maxsize
"""A count without limit."""
_PLACE: Final = re.compile(r"([0-9]{1,16})(?::([0-9a-f]{12}))?,([!-~]{1,256})")
_PAGE_BYTES: Final = 1 * MIB


class BeginningLost(Exception):
    """The offset of a place is gone, or the first record at the beginning is another one."""


class _Place(NamedTuple):
    """The place of a record: `skip` records behind the one that begins at `offset`. `first`: the digest of the
    stream's first record, "" if it is not known."""

    offset: str
    skip: int = 0
    first: str = ""

    def __str__(self) -> str:
        return f"{self.skip}:{self.first},{self.offset}" if self.first else f"{self.skip},{self.offset}"


START: Final = ReadPosition(0, str(_Place(BEGINNING)))
"""The beginning of any stream."""


class DurableWalk:
    """A walk through one stream. It reconnects after a broken connection."""

    def __init__(self, pool: Pool[DurableConnection], endpoint: Endpoint, stream: str) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._stream = stream
        self.offset = ""
        """The server's offset behind the last answer that was read to its end."""

    def pages(self, start: ReadPosition, wanted: int = ALL) -> Iterator[ReadResult]:
        """Yield at most `wanted` records from `start` on, or up to the tail; no page is empty. Raises OperationFailed:
        STREAM_NOT_FOUND, RANGE_NOT_SATISFIABLE if the stream ends before `start`, NOT_REPRESENTABLE for content without
        boundaries of records; BeginningLost."""
        patience = self._pool.patience()
        at = start
        while at.seq_num - start.seq_num < wanted:
            try:
                with self._pool.use() as connection:
                    for page in self._pages_on(connection, at, wanted - (at.seq_num - start.seq_num)):
                        patience.progress()
                        at = page.next
                        yield page
                    return
            except OperationFailed as error:
                patience.wait(error)

    def _pages_on(self, connection: DurableConnection, start: ReadPosition, wanted: int) -> Iterator[ReadResult]:
        """Yield pages over one connection. Each is held until it is known whether the answer ends behind it."""
        place = self._parse(start.place)
        offset, skip, first = place.offset, place.skip, place.first
        place = place._replace(skip=0)
        number = start.seq_num
        reader: ContentReader | None = None
        pending: ReadResult | None = None
        caught_up = False
        while not caught_up:
            response = self._ask(connection, offset)
            self._check_order(offset, response)
            reader = reader or self._reader(response.content_type)
            offset, caught_up = response.next_offset, response.up_to_date
            ended = False
            while not ended:
                ended = not self._receive(connection, reader)
                while (taken := self._take(reader, skip or wanted or 1)).bodies:
                    if place.offset == BEGINNING and not place.skip and first and _digest(taken.bodies[0]) != first:
                        raise BeginningLost
                    if pending is not None:
                        yield pending
                        pending = None
                    count = len(taken.bodies)
                    if not skip and not wanted:
                        return  # the next record, which shows that the answer does not end here
                    place = place._replace(skip=place.skip + count)
                    if skip:
                        skip -= count
                        continue
                    columns = Columns(range(number, number + count), (), taken.bodies, taken.headers)
                    number, wanted = number + count, wanted - count
                    pending = ReadResult(columns, ReadPosition(number, str(place)))
            self.offset = offset
            if not reader.buffered:
                place = _Place(offset)
                if pending is not None:
                    pending = pending._replace(next=ReadPosition(number, str(place)))
            if pending is not None:
                yield pending
                pending = None
            if not wanted:
                return
        if skip:
            reason = f"{self._endpoint}: stream {self._stream} ends {skip} records before {start.place}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, reason)

    def first_place(self) -> ReadPosition:
        """Return the place of the first record, or of the tail if there is none."""
        place = str(_Place(BEGINNING))
        for page in self.pages(START, 1):
            place = str(_Place(BEGINNING, 0, _digest(page.columns.bodies[0])))
        return ReadPosition(0, place)

    # ---- internals -----------------------------------------------------------------------------------------------

    def _ask(self, connection: DurableConnection, offset: str) -> PositionAnswer:
        try:
            return connection.read(self._stream, offset)
        except OperationFailed as error:
            code = error.failure.code
            if code is FailureCode.OFFSET_TRUNCATED:
                connection.head(self._stream)  # raises STREAM_NOT_FOUND if it was deleted, and is kept for its forks
                raise BeginningLost from None
            if code is FailureCode.INVALID and offset != BEGINNING:
                self._check_order(offset, connection.head(self._stream))  # some refuse offsets behind the tail
            raise

    def _check_order(self, offset: str, response: PositionAnswer) -> None:
        """Raise RANGE_NOT_SATISFIABLE if an answer's offset is before the one that was asked for."""
        if offset != BEGINNING and response.next_offset < offset:
            reason = f"{self._endpoint}: stream {self._stream} ends at {response.next_offset}, before offset {offset}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, reason)

    def _reader(self, content_type: str | None) -> ContentReader:
        content = None if content_type is None else content_of(content_type)
        if content is None:
            reason = f"stream {self._stream} has content type {content_type}: bytes without boundaries of records"
            raise fail(
                FailureCode.NOT_REPRESENTABLE,
                f"{self._endpoint}: {reason}; Spark reads streams of JSON, and those of records (docs/pipeline.md)",
            )
        return content.reader()

    def _receive(self, connection: DurableConnection, reader: ContentReader) -> bool:
        """Give the reader more of an answer. Returns False at its end."""
        piece = connection.receive()
        try:
            if piece:
                reader.receive(piece)
            else:
                reader.end_response()
        except RemoteProtocolError as error:
            raise lost(self._endpoint, f"stream {self._stream}: {error.failure.message}") from None
        return bool(piece)

    def _take(self, reader: ContentReader, most: int) -> TakenRecords:
        try:
            return reader.take(min(most, MAX_BATCH_RECORDS), _PAGE_BYTES)
        except RemoteProtocolError as error:
            raise lost(self._endpoint, f"stream {self._stream}: {error.failure.message}") from None

    def _parse(self, text: str) -> _Place:
        match = _PLACE.fullmatch(text)
        if match is None:
            raise fail(FailureCode.INVALID, f"{self._endpoint}: {text!r:.80} is no place N,OFFSET")
        return _Place(match[3], int(match[1]), match[2] or "")


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=6).hexdigest()
