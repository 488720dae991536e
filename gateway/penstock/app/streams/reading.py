"""Reads the records of a stream, and goes on at its tail if asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from penstock.app.streams.positions import is_before
from penstock.core.back import Back, Following, ReadSession
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromSeqNum, FromTailOffset, FromTimestamp, Read, Start
from penstock.model.records import RecordBatch, StreamRef

__all__ = ["ReadSettings", "batches_of"]

_FOLLOW_SECONDS: Final = 60.0
"""Seconds that one read waits at the tail; then the next one begins."""


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream to read: from `start` up to `end`, at most `count` records; None: no such bound. `follow`:
    wait for more at the tail."""

    start: Start
    end: FromSeqNum | FromTimestamp | None = None
    count: int | None = None
    follow: bool = False


async def batches_of(back: Back, stream: StreamRef, settings: ReadSettings) -> AsyncGenerator[RecordBatch, None]:
    """Yield the records; none if the stream ends at the start. Raises OperationFailed."""
    start, left = settings.start, settings.count
    until = settings.end.timestamp if isinstance(settings.end, FromTimestamp) else None
    while left is None or left > 0:
        wait = _FOLLOW_SECONDS if settings.follow else 0.0
        read = Read(stream, start, count=left, until=until, wait=wait, create_if_missing=False)
        async with _opened(back, read) as session:
            while session is not None and (event := await session.next()) is not None:
                if isinstance(event, Following):
                    if not settings.follow:
                        return
                    start = FromSeqNum(event.tail.seq_num)
                    continue
                wanted = event.count
                if settings.end is not None:
                    wanted = sum(is_before(record, settings.end) for record in event.records())
                if wanted:
                    yield event.part(0, wanted)
                if wanted < event.count:
                    return
                start = FromSeqNum(event.next_seq_num)
                left = None if left is None else left - event.count
        if not settings.follow:
            return


@asynccontextmanager
async def _opened(back: Back, read: Read) -> AsyncIterator[ReadSession | None]:
    """Open a read; None if it begins at the tail, which servers refuse if the read has a bound and does not wait."""
    async with AsyncExitStack() as stack:
        try:
            session = await stack.enter_async_context(back.read_session(read))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE or not _at_tail(read, error):
                raise
            session = None
        yield session


def _at_tail(read: Read, error: OperationFailed) -> bool:
    tail = error.failure.details.get("tail")
    at_its_end = isinstance(read.start, FromTimestamp | FromTailOffset)
    return at_its_end or (isinstance(tail, dict) and read.start == FromSeqNum(tail["seq_num"]))
