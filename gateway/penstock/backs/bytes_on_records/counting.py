"""Counting the bytes of what others appended: from where the index ends to the tail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.backs.base import Back, Following, ReadSession
from penstock.backs.bytes_on_records.intents import Found
from penstock.backs.bytes_on_records.offsets import Place
from penstock.backs.bytes_on_records.streams import Stream
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition, StreamRef
from penstock_codecs.operations import CheckTail, FromSeqNum, Read

__all__ = ["Batches", "Counter", "Replaced"]


class Replaced(Exception):
    """The stream at the back is another one: it ends before what was counted of it."""

    def __init__(self, stream: StreamRef) -> None:
        super().__init__(f"{stream} was replaced")
        self.stream = stream


class Batches:
    """Records of a read, up to one of them."""

    def __init__(self, session: ReadSession | None, stop: int) -> None:
        self._session = session
        self._stop = stop

    async def next(self) -> RecordBatch | None:
        """The next batch; None at the end."""
        if self._session is None:
            return None
        while isinstance(batch := await self._session.next(), Following):
            pass
        if batch is None or batch.first_seq_num >= self._stop:
            return None
        return batch.part(0, min(batch.count, self._stop - batch.first_seq_num))


class Counter:
    """Keeps the offsets of streams up with their records."""

    def __init__(self, records: Back) -> None:
        self._records = records

    async def catch_up(self, stream: Stream, to: int | None = None) -> StreamPosition:
        """Count everything before record `to`, or up to the tail, which is the result.

        Raises Replaced, and OperationFailed as reading does.
        """
        stream.check()
        tail = await self._records.perform(CheckTail(stream.ref, create_if_missing=False))
        if tail.seq_num < stream.offsets.end.seq_num:
            raise Replaced(stream.ref)
        stop = tail.seq_num if to is None else min(to, tail.seq_num)
        if stream.offsets.end.seq_num < stop:
            async with stream.counting:
                await self._count(stream, stop)
        return tail

    async def count_durably(self, stream: Stream) -> None:
        """Count all that there is, durably: some of it is about to go. Raises Replaced, and OperationFailed."""
        with stream.used():
            await self.catch_up(stream)
            await stream.offsets.save()
            await stream.writers.rest()

    async def _count(self, stream: Stream, stop: int) -> None:
        while (start := stream.offsets.end).seq_num < stop:
            async with self.batches(stream, start.seq_num, stop) as batches:
                while (batch := await batches.next()) is not None:
                    self.take(stream, batch)
                    if stream.offsets.must_save:
                        await stream.offsets.save()
            if stream.offsets.end == start:  # all of them went before they were counted
                stream.offsets.advance(Place(stop, start.offset))

    def take(self, stream: Stream, batch: RecordBatch) -> None:
        """Count records that follow what is counted; those that are counted already change nothing.

        Records before them that were not counted are gone: they never had bytes.
        """
        end = stream.offsets.end
        if batch.next_seq_num <= end.seq_num:
            return
        if batch.first_seq_num < end.seq_num:
            batch = batch.part(end.seq_num - batch.first_seq_num, batch.count)
        elif batch.first_seq_num > end.seq_num:
            stream.first = max(stream.first, Place(batch.first_seq_num, end.offset))
        stream.offsets.advance(Place(batch.next_seq_num, end.offset + stream.length_of(batch)))

    @asynccontextmanager
    async def batches(self, stream: Stream, start: int, stop: int) -> AsyncIterator[Batches]:
        """The records from `start` up to `stop` that are there."""
        if start >= stop:
            yield Batches(None, stop)
            return
        read = Read(stream.ref, FromSeqNum(start), count=stop - start, wait=0.0, create_if_missing=False)
        async with AsyncExitStack() as stack:
            session = None
            try:
                session = await stack.enter_async_context(self._records.read_session(read))
            except OperationFailed as error:
                if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                    raise
            yield Batches(session, stop)

    async def find_first(self, stream: Stream, tail: StreamPosition) -> Place:
        """The first record that is kept; the tail where there is none. All up to the tail is counted."""
        async with self.batches(stream, stream.first.seq_num, tail.seq_num) as batches:
            batch = await batches.next()
            first = tail.seq_num if batch is None else batch.first_seq_num
        if first > stream.first.seq_num:
            stream.first = await self.first_at(stream, first)
        return stream.first

    async def first_at(self, stream: Stream, seq_num: int) -> Place:
        """Where the bytes of a record begin that is the first one kept: what is before it cannot be counted any more,
        so what is behind it is counted, up to the next mark. If it went meanwhile, the first one that is kept now."""
        behind = stream.offsets.after_seq_num(seq_num)
        first, offset = behind
        async with self.batches(stream, seq_num, behind.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                first = min(first, batch.first_seq_num)
                offset -= stream.length_of(batch)
        return Place(first, max(offset, 0))

    async def place_of(self, stream: Stream, seq_num: int, known: Place) -> Place:
        """Where a record begins that is there, or will be next. `known`: some place before it."""
        if stream.offsets.end.seq_num < seq_num:
            await self.catch_up(stream, seq_num)
        at = max(known, stream.offsets.before_seq_num(seq_num))
        async with self.batches(stream, at.seq_num, seq_num) as batches:
            while (batch := await batches.next()) is not None:
                if batch.first_seq_num > at.seq_num:  # what is before it was trimmed
                    at = await self.first_at(stream, batch.first_seq_num)
                at = Place(batch.next_seq_num, at.offset + stream.length_of(batch))
        if at.seq_num < seq_num:
            at = await self.first_at(stream, seq_num)
        return Place(seq_num, at.offset)

    async def bytes_of(self, stream: Stream, found: Found) -> bytes:
        """The bytes of these records, or the last ones of them, from the offset on that is given."""
        pieces = []
        async with self.batches(stream, found.start.seq_num, found.end.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                pieces.append(stream.render(batch, 0).data)
        return b"".join(pieces)[-(found.end_offset - found.offset) :]

    async def ending_behind(self, stream: Stream, offset: int) -> Place:
        """The first record whose bytes end behind this offset, or the end of what is counted."""
        return await self._first_where(stream, offset, lambda _, stop: stop > offset)

    async def beginning_at(self, stream: Stream, offset: int) -> Place:
        """The first record whose bytes begin at this offset or behind it, or the end of what is counted."""
        return await self._first_where(stream, offset, lambda start, _: start >= offset)

    async def _first_where(self, stream: Stream, offset: int, holds: Callable[[int, int], bool]) -> Place:
        at, end = stream.offsets.before_offset(offset), stream.offsets.end
        async with self.batches(stream, at.seq_num, end.seq_num) as batches:
            while (batch := await batches.next()) is not None:
                if batch.first_seq_num > at.seq_num:
                    at = await self.first_at(stream, batch.first_seq_num)
                for start, stop, seq_num in stream.spans(batch, at.offset):
                    if holds(start, stop):
                        return Place(seq_num, start)
                    at = Place(seq_num + 1, stop)
        return end
