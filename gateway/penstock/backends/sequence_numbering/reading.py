"""Read sessions: catching up by reads of their own, following with a shared reader (S2 fact sheet 5.4, S3P 8.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from penstock.backends.sequence_numbering.following import StreamFollower
from penstock.backends.sequence_numbering.history import ScanStart, cursor_in, cursor_to, read
from penstock.backends.sequence_numbering.numbered import NumberedRecords
from penstock.backends.sequence_numbering.prefetch import Fetch, Prefetcher
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.core.back import Following, ReadSession
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Read
from penstock.model.records import U64_MAX, RecordBatch, RecordId, StreamPosition

__all__ = ["IndexedReadSession", "read_session"]


@asynccontextmanager
async def read_session(
    stream: IndexedStream, follower: StreamFollower, ahead: Prefetcher, read: Read
) -> AsyncIterator[IndexedReadSession]:
    """Open a read session; see `Back.read_session`."""
    if isinstance(read.start, FromTimestamp) and read.until is not None and read.start.timestamp >= read.until:
        raise fail(FailureCode.INVALID, "start `timestamp` exceeds or equal to `until`")
    session = IndexedReadSession(stream, follower, ahead, read, *await _start(stream, read))
    try:
        yield session
    finally:
        session.close()


async def _start(stream: IndexedStream, read: Read) -> tuple[ScanStart, RecordId | None]:
    """Return the cursor at which a read starts, and the least identifier of its records if that lies in the future."""
    start = read.start
    if isinstance(start, FromTailOffset):
        await stream.catch_up()
        start = FromSeqNum(max(stream.end.seq_num - start.offset, 0))
    if isinstance(start, FromByteOffset) and not stream.native.has_byte_offsets:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"the server of stream {stream.ref} has no byte offsets")
    cursor = await cursor_to(stream, start)
    end = stream.end
    if isinstance(start, FromRecordId):
        beyond = cursor.at.seq_num >= end.seq_num and start.record_id > end.record_id
        return cursor, start.record_id if beyond else None
    if cursor.at.seq_num < end.seq_num or (isinstance(start, FromSeqNum) and start.seq_num < end.seq_num):
        return cursor, None
    match start:
        case FromSeqNum(seq_num):
            past = seq_num > end.seq_num
        case FromByteOffset(offset):
            past = offset > end.offset
        case FromTimestamp(timestamp):
            past = timestamp > end.timestamp
    if not read.exhausted and ((past and not read.clamp) or not read.may_follow):
        raise fail(
            FailureCode.RANGE_NOT_SATISFIABLE,
            f"the read starts at or after the tail {end.seq_num}",
            tail={"seq_num": end.seq_num, "timestamp": end.timestamp},
        )
    return cursor, None


class IndexedReadSession(ReadSession):
    """A read session over numbered records; see `penstock.core.back.ReadSession`."""

    def __init__(
        self,
        stream: IndexedStream,
        follower: StreamFollower,
        ahead: Prefetcher,
        read: Read,
        cursor: ScanStart,
        least_id: RecordId | None,
    ) -> None:
        self._stream = stream
        self._follower = follower
        self._ahead = ahead
        self._cursor = cursor
        self._least_id = least_id
        self._until = read.until
        self._wait = read.wait
        self._waits = read.wait is None or read.wait > 0 if not read.bounded else bool(read.wait)
        self._count = U64_MAX if read.count is None else read.count
        self._bytes = U64_MAX if read.max_bytes is None else read.max_bytes
        self._deadline: float | None = None
        self._following = False
        self._begun = False
        self._ended = False
        self._current: tuple[NumberedRecords, RecordBatch, int] | None = None  # with the index of the next record in it
        self._fetch: Fetch | None = None

    @property
    def _position(self) -> int:
        if self._current is not None:
            numbered, _, index = self._current
            return numbered.first + index
        return max(self._cursor.at.seq_num, self._stream.index.first.seq_num)

    def behind(self) -> bool:
        wanted = not self._ended and self._count and self._bytes
        return bool(wanted) and self._position < self._stream.end.seq_num

    def tail(self) -> StreamPosition:
        return self._stream.tail

    def close(self) -> None:
        """End the session: stop following and drop a read ahead."""
        self._ended = True
        self._leave()
        if self._fetch is not None:
            self._fetch.give_up()

    def _leave(self) -> None:
        if self._following:
            self._following = False
            self._follower.leave()

    async def next(self) -> RecordBatch | Following | None:
        await trio.lowlevel.checkpoint()
        while not self._ended:
            self._stream.check()
            if not (self._count and self._bytes):
                break
            if self._current is None:
                await (self._stream.patiently(self._find_more) if self._begun else self._find_more())
                self._begun = True
            if self._current is not None:
                batch = self._deliver()
                if batch is not None:
                    return batch
            elif self._position < self._stream.end.seq_num and not self._following:
                continue
            elif not self._waits:
                break
            elif not self._following:
                self._following = True
                self._follower.join(self._cursor.at)
                self._arm()
                return Following(self._stream.tail)
            elif not await self._more():
                break
        self._ended = True
        self._leave()
        return None

    # ---- records -------------------------------------------------------------------------------------------------

    async def _find_more(self) -> None:
        """Set `_current` to the next records, unless the session is at the tail."""
        stream = self._stream
        position = self._position
        held = stream.recent.holding(position)
        if held is None and position >= stream.end.seq_num and not self._following:
            await stream.catch_up(FromSeqNum(position))
            held = stream.recent.holding(position)
        if held is not None:
            self._take(*held)
            return
        if self._following:
            if position >= min(self._follower.position, stream.end.seq_num):
                return
            self._leave()  # the session fell behind the follower
        if position < stream.end.seq_num:
            numbered = await self._read()
            if len(numbered):
                at_end = numbered.first + len(numbered) >= stream.end.seq_num
                self._take(numbered, numbered.batch(stream.tail if at_end else None))
            else:
                self._cursor = ScanStart(stream.end, None)

    async def _read(self) -> NumberedRecords:
        fetch, self._fetch = self._fetch, None
        if fetch is not None and fetch.cursor == self._cursor:
            try:
                numbered = await fetch.wait()
            except trio.Cancelled:
                self._fetch = fetch
                raise
            if len(numbered):
                return numbered  # an empty result may be outdated: records may have come since
        elif fetch is not None:
            fetch.give_up()
        return await read(self._stream, self._cursor, min(self._count, MAX_BATCH_RECORDS))

    def _take(self, numbered: NumberedRecords, batch: RecordBatch) -> None:
        index = max(self._position - numbered.first, 0)
        if self._least_id is not None:
            index = max(index, numbered.first_at(FromRecordId(self._least_id)))
        self._cursor = cursor_in(self._stream, numbered, len(numbered))
        if index < len(numbered):
            self._least_id = None
            self._current = numbered, batch, index
            self._read_ahead(len(numbered) - index)

    def _read_ahead(self, records: int) -> None:
        """Start reading the next batch while `records` records are sent to the client."""
        more = not self._following and self._cursor.at.seq_num < self._stream.end.seq_num
        if more and self._fetch is None and self._count > records:
            most = min(self._count - records, MAX_BATCH_RECORDS)
            self._fetch = self._ahead.fetch(self._stream, self._cursor, most)

    def _deliver(self) -> RecordBatch | None:
        """Return the next part of `_current` within the bounds of the read and of one batch, or None at the end."""
        assert self._current is not None
        numbered, batch, index = self._current
        stop = len(numbered)
        if self._until is not None:
            stop = min(stop, numbered.first_at(FromTimestamp(self._until)))
        self._ended = stop < len(numbered)
        if stop - index > self._count:
            stop, self._ended = index + self._count, True
        part = batch.part(index, stop) if index < stop else None
        if part is not None and part.metered > self._bytes:
            stop, self._ended = index + part.fitting(self._bytes), True
            part = part.part(0, stop - index) if index < stop else None
        if part is None:
            self._ended = True
            return None
        if part.count > MAX_BATCH_RECORDS or part.metered > MAX_BATCH_BYTES:
            self._ended = False
            part = part.part(0, max(min(MAX_BATCH_RECORDS, part.fitting(MAX_BATCH_BYTES)), 1))
        index += part.count
        self._current = (numbered, batch, index) if index < len(numbered) else None
        self._count -= part.count
        self._bytes -= part.metered
        self._deadline = None
        return part

    # ---- the tail ------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._deadline is None and self._wait is not None:
            self._deadline = trio.current_time() + self._wait

    async def _more(self) -> bool:
        """Wait until there may be more records; return False if the wait has expired."""
        self._arm()
        with trio.CancelScope(deadline=float("inf") if self._deadline is None else self._deadline) as scope:
            await self._follower.wait(self._position)
        return not scope.cancelled_caught
