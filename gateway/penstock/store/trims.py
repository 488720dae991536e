"""Trimming records and bytes: trim points move at once, the rows below are deleted in the background (`sweeper`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from penstock.model.byte_operations import Truncate
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import FromRecordId, FromSeqNum, FromTimestamp, Trim
from penstock.model.records import StreamPosition, StreamRef
from penstock.store.changes import HeadChange, head_statement
from penstock.store.committer import Committer
from penstock.store.heads import StoredStream
from penstock.store.positions import find_byte, find_position, first_offset
from penstock.store.reader import ReaderThreads
from penstock.store.registry import Registry, unknown_stream
from penstock.store.settings import Clock

__all__ = ["Trims"]


class Trims:
    """The operations that move trim points."""

    def __init__(
        self, registry: Registry, committer: Committer, reader: ReaderThreads, clock: Clock, on_trim: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._committer = committer
        self._reader = reader
        self._clock = clock
        self._on_trim = on_trim

    async def trim(self, operation: Trim) -> StreamPosition:
        """Carry out `Trim` and return the first position kept. On return, no reader sees the trimmed records."""
        with await self._held(operation.stream) as stream:
            await self._settle(self.move(stream, await self._seq_num(stream, operation.start)))
            first = await find_position(self._reader, stream, FromSeqNum(stream.durable.trim_point))
        return StreamPosition(first.seq_num, first.timestamp)

    async def truncate(self, operation: Truncate) -> int:
        """Carry out `Truncate` and return the first offset kept. On return, no reader sees the truncated bytes."""
        offset = operation.offset
        if offset < 0:
            raise fail(FailureCode.INVALID, f"a stream cannot be truncated at {offset}")
        with await self._held(operation.stream) as stream:
            if offset > stream.durable.next_offset:
                await self._committer.settle(None)  # after this, all earlier appends are durable
            end = stream.durable.next_offset
            if offset > end:
                raise fail(FailureCode.INVALID, f"offset {offset} is beyond the end, {end}")
            if offset <= await first_offset(self._reader, stream):
                await self._committer.settle(None)
            else:
                await self._settle(self.move(stream, await self._behind(stream, offset), offset))
            return await first_offset(self._reader, stream)

    async def _behind(self, stream: StoredStream, offset: int) -> int:
        """Return the number of the first record that has bytes at or after `offset`."""
        head = stream.durable
        seq_num = head.next_seq if offset >= head.next_offset else await find_byte(self._reader, stream, offset)
        if not stream.alive:
            raise unknown_stream(stream.ref)
        return seq_num

    async def _held(self, ref: StreamRef) -> AbstractContextManager[StoredStream]:
        """Return a context manager that holds the stream.

        Raises OperationFailed once all decisions that this depends on are durable.
        """
        stream = self._registry.stream(ref)
        if stream is None:
            await self._committer.settle(unknown_stream(ref).failure)
            raise AssertionError("unreachable")
        return stream.held()

    async def _seq_num(self, stream: StoredStream, start: FromSeqNum | FromRecordId | FromTimestamp) -> int:
        if isinstance(start, FromSeqNum):
            return start.seq_num
        seq_num = (await find_position(self._reader, stream, start)).seq_num
        if not stream.alive:
            raise unknown_stream(stream.ref)
        return seq_num

    async def _settle(self, change: HeadChange[None] | None) -> None:
        if change is None:
            await self._committer.settle(None)
        else:
            await change.ticket.wait()

    def move(self, stream: StoredStream, seq_num: int, offset: int = 0) -> HeadChange[None] | None:
        """Decide to remove the records before `seq_num`, at most up to the tail, and the bytes before `offset`.

        Returns the change, or None if they are gone already.
        """
        head = stream.head
        now = self._clock()
        trim_point = max(min(seq_num, head.next_seq), head.trim_point)
        truncated_at = max(offset, head.truncated_at)
        if (trim_point, truncated_at) == (head.trim_point, head.truncated_at):
            return None
        stream.head = head._replace(trim_point=trim_point, truncated_at=truncated_at)
        if truncated_at > head.truncated_at:
            stream.head = stream.head._replace(last_modified=now)
        change = HeadChange(self._registry, stream, [head_statement(stream, stream.head, now)], None, self._on_trim)
        self._committer.add(change)
        return change
