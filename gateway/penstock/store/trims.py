"""Removing records: the trim point moves at once, the rows below it go in the background (`sweeper`)."""

from __future__ import annotations

from collections.abc import Callable

from penstock.store.changes import HeadChange, head_statement
from penstock.store.committer import Committer
from penstock.store.heads import Stream
from penstock.store.positions import find
from penstock.store.reader import Reader
from penstock.store.registry import Registry, unknown_stream
from penstock.store.settings import Clock
from penstock_codecs.model import StreamPosition
from penstock_codecs.operations import FromRecordId, FromSeqNum, FromTimestamp, Trim

__all__ = ["Trims"]


class Trims:
    """Moves trim points."""

    def __init__(
        self, registry: Registry, committer: Committer, reader: Reader, clock: Clock, on_trim: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._committer = committer
        self._reader = reader
        self._clock = clock
        self._on_trim = on_trim

    async def trim(self, operation: Trim) -> StreamPosition:
        """See `Trim`; the records are gone for every reader when it returns."""
        stream = self._registry.stream(operation.stream)
        if stream is None:
            await self._committer.settle(unknown_stream(operation.stream).failure)
            raise AssertionError("unreachable")
        stream.users += 1
        try:
            await self._move(stream, await self._seq_num(stream, operation.start))
            first = await find(self._reader, stream, FromSeqNum(stream.durable.trim_point))
        finally:
            stream.users -= 1
        return StreamPosition(first.seq_num, first.timestamp)

    async def _seq_num(self, stream: Stream, start: FromSeqNum | FromRecordId | FromTimestamp) -> int:
        if isinstance(start, FromSeqNum):
            return start.seq_num
        seq_num = (await find(self._reader, stream, start)).seq_num
        if not stream.alive:
            raise unknown_stream(stream.ref)
        return seq_num

    async def _move(self, stream: Stream, seq_num: int) -> None:
        change = self.move(stream, seq_num)
        if change is None:
            await self._committer.settle(None)
        else:
            await change.ticket.wait()

    def move(self, stream: Stream, seq_num: int) -> HeadChange[None] | None:
        """Decide that records before `seq_num` go, up to the tail; None where they are gone already."""
        head = stream.head
        trim_point = min(seq_num, head.next_seq)
        if trim_point <= head.trim_point:
            return None
        stream.head = head._replace(trim_point=trim_point)
        statement = head_statement(stream, stream.head, self._clock())
        change = HeadChange(self._registry, stream, [statement], None, self._on_trim)
        self._committer.add(change)
        return change
