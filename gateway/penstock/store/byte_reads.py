"""Reads of bytes: from memory at the tail, else from the file; and what a stream is as bytes."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

import trio

from penstock.store.byte_rows import Place, read_rows
from penstock.store.heads import Stream
from penstock.store.positions import first_offset
from penstock.store.reads import Reads
from penstock.store.registry import unknown_stream
from penstock_codecs.byte_operations import BytesRead, GetSegmentInfo, ReadBytes, SegmentInfo
from penstock_codecs.byte_rendering import Cut, Refused, Rendered, cut
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import MIB

__all__ = ["ByteReads"]

MOST_BYTES: Final = 8 * MIB
"""Most bytes of one read, whatever was asked for. Fronts ask for less: 2 MiB, as the real server gives at most (segment
fact sheet, 1.1), unless they are configured otherwise."""
REMAINDER_BYTES: Final = 16 * MIB
"""How much is kept of rows that reads ended in. Without that, somebody who reads a row of 1 MiB by pieces of 256 KiB
would have it fetched and rendered four times."""
MOST_REMAINDERS: Final = 64


class Remainders:
    """What is left of the rows that the latest reads from the file ended in, for whoever reads on."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._kept: deque[tuple[int, Rendered]] = deque()

    def find(self, stream: int, offset: int) -> Rendered | None:
        """What begins at this offset or holds it."""
        for owner, rest in reversed(self._kept):
            if owner == stream and rest.first_offset <= offset < rest.end_offset:
                return rest
        return None

    def keep(self, stream: int, rest: Rendered) -> None:
        """Somebody may ask for this next."""
        self._kept.append((stream, rest))
        self._used += len(rest.data)
        while self._used > self._capacity or len(self._kept) > MOST_REMAINDERS:
            _, oldest = self._kept.popleft()
            self._used -= len(oldest.data)


class ByteReads:
    """Carries out the operations that look at bytes."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._remainders = Remainders(REMAINDER_BYTES)

    async def info(self, operation: GetSegmentInfo) -> SegmentInfo:
        """See `GetSegmentInfo`."""
        stream = await self._reads.find_stream(operation.stream, create_if_missing=False)
        with self._reads.holding(stream):
            start = await first_offset(self._reads.reader, stream)
        head = stream.durable
        return SegmentInfo(start, head.next_offset, head.sealed, head.last_modified)

    async def read(self, operation: ReadBytes) -> BytesRead:
        """See `ReadBytes`; never more than `MOST_BYTES`."""
        if operation.offset < 0 or operation.max_bytes < 1:
            raise fail(FailureCode.INVALID, f"cannot read {operation.max_bytes} bytes at offset {operation.offset}")
        stream = await self._reads.find_stream(operation.stream, create_if_missing=False)
        with self._reads.holding(stream):
            await trio.lowlevel.checkpoint()
            return await self._read(stream, operation)

    async def _read(self, stream: Stream, operation: ReadBytes) -> BytesRead:
        offset = operation.offset
        deadline = trio.current_time() + operation.wait
        while True:
            await self._check(stream, offset)
            found = await self._cut(stream, operation)
            head = stream.durable
            if found.data:
                return BytesRead(offset, found.data, found.end_offset >= head.next_offset, False, found.dropped)
            if found.refused is not None:
                raise _refusal(stream, found.refused)
            if offset < head.next_offset:  # it was appended meanwhile
                continue
            if head.sealed:
                if offset > head.next_offset:
                    raise fail(FailureCode.INVALID, f"offset {offset} is beyond the end, {head.next_offset}")
                return BytesRead(offset, b"", at_tail=True, end_of_segment=True, dropped=found.dropped)
            if operation.wait <= 0 or not await _parked(stream, deadline):
                return BytesRead(offset, b"", at_tail=True, end_of_segment=False, dropped={})

    async def _check(self, stream: Stream, offset: int) -> None:
        start = await first_offset(self._reads.reader, stream)
        if not stream.durably_alive:
            raise unknown_stream(stream.ref)
        if offset < start:
            raise fail(FailureCode.OFFSET_TRUNCATED, f"{stream.ref} is kept from offset {start} on", offset=start)

    async def _cut(self, stream: Stream, operation: ReadBytes) -> Cut:
        """What there is for a read just now. At the tail that may be records without bytes."""
        offset, head = operation.offset, stream.durable
        if offset > head.next_offset:
            return Cut()
        if offset == head.next_offset and not (operation.refuse or head.sealed):
            return Cut()
        max_bytes = min(operation.max_bytes, MOST_BYTES)
        pieces = await self._pieces(stream, offset, max_bytes)
        if offset < head.next_offset and not (pieces and pieces[0].first_offset <= offset < pieces[-1].end_offset):
            await self._reads.hear(stream)
            await self._check(stream, offset)  # it was truncated meanwhile
            raise fail(FailureCode.STORAGE, f"bytes at offset {offset} of {stream.ref} are missing from the store")
        if not pieces:
            return Cut()
        found = cut(pieces, offset, max_bytes, operation.refuse, stream.durable.trim_point)
        self._keep_rest(stream, pieces[-1], found.end_offset)
        return found

    async def _pieces(self, stream: Stream, offset: int, max_bytes: int) -> list[Rendered]:
        """The bytes from `offset` on, `max_bytes` or a little more, or less where there is much to do for them."""
        rest = None
        pieces = stream.recent.bytes_at(offset, max_bytes)
        if pieces is None and (rest := self._remainders.find(stream.id, offset)) is not None:
            at = rest.end_offset
            if at >= min(offset + max_bytes, stream.durable.next_offset):
                return [rest]
            pieces = stream.recent.bytes_at(at, offset + max_bytes - at)
        if pieces is None:
            at = offset if rest is None else rest.end_offset
            pieces = await self._from_file(stream, at, offset + max_bytes - at)
        return pieces if rest is None else [rest, *pieces]

    async def _from_file(self, stream: Stream, offset: int, max_bytes: int) -> list[Rendered]:
        pieces: list[Rendered] = []
        behind, end = Place(offset, -1), stream.durable.next_seq
        while True:
            some, after = await self._reads.reader.run(
                partial(read_rows, stream=stream.id, after=behind, max_bytes=max_bytes, end=end)
            )
            pieces += some
            if after == behind or after.offset > offset:
                return pieces
            behind = after

    def _keep_rest(self, stream: Stream, last: Rendered, end: int) -> None:
        """Keep what the file gave in excess; what is in memory anyway need not be kept.

        Where the read ended between two pieces, there may be records without bytes, in others than the last one.
        """
        cut_in = last.first_offset < end < last.end_offset
        if cut_in and stream.recent.bytes_at(end, 1) is None and self._remainders.find(stream.id, end) is None:
            self._remainders.keep(stream.id, last.rest(end))


async def _parked(stream: Stream, deadline: float) -> bool:
    """Wait until something happened to a stream; False at the deadline."""
    with trio.CancelScope(deadline=deadline) as scope:
        await stream.followers.park()
    return not scope.cancelled_caught


def _refusal(stream: Stream, refused: Refused) -> OperationFailed:
    seq_num, feature, end = refused
    message = f"record {seq_num} of stream {stream.ref} {feature.value}, which segment clients cannot be given"
    return fail(FailureCode.NOT_REPRESENTABLE, f"{message}; bytes go on at offset {end}", seq_num=seq_num)
