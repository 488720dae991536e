"""Byte operations that depend on offsets: reads, the state of a stream, locating a byte, and truncation."""

from __future__ import annotations

import math
from typing import Final

import trio
from msgspec.structs import replace

from penstock.backends.byte_view.offsets import RecordOffset
from penstock.backends.byte_view.streams import ByteStream, ByteStreams, OffsetCounter, ReadWindow, ReadWindows
from penstock.core.back import Back
from penstock.model.byte_operations import BytesRead, ByteStreamInfo, GetByteStreamInfo, ReadBytes, Truncate
from penstock.model.byte_rendering import RefusedRecord, RenderedSlice, render_slice
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import Capability, FromByteOffset, FromSeqNum, Locate, Located, Trim

__all__ = ["ByteViewReads"]

MOST_BYTES: Final = 8 * MIB
"""Most bytes that one read returns, as with the embedded store."""


class ByteViewReads:
    """Carries out reads, information requests, truncations and locates for all streams of one back."""

    def __init__(self, records: Back, streams: ByteStreams, counter: OffsetCounter, windows: ReadWindows) -> None:
        self._records = records
        self._streams = streams
        self._counter = counter
        self._windows = windows

    async def read(self, operation: ReadBytes) -> BytesRead:
        """Carry out `ReadBytes`."""
        if operation.offset < 0 or operation.max_bytes < 1:
            raise fail(FailureCode.INVALID, f"cannot read {operation.max_bytes} bytes at offset {operation.offset}")
        stream = await self._streams.for_reads(operation.stream)
        with stream.used():
            return await self._read(stream, operation)

    async def _read(self, stream: ByteStream, operation: ReadBytes) -> BytesRead:
        offset, deadline = operation.offset, trio.current_time() + operation.wait
        max_bytes = min(operation.max_bytes, MOST_BYTES)
        while True:
            stream.check(offset)
            window = await self._windows.find(stream, offset)
            with window.reading(offset, max_bytes):
                while window.serves(offset):
                    caught_up = _caught_up(stream, window)
                    if caught_up or window.end - offset >= max_bytes:
                        bytes_read = _given(stream, window, operation, max_bytes, caught_up)
                        if bytes_read is not None:
                            return bytes_read
                    with trio.CancelScope(deadline=deadline if caught_up else math.inf):
                        await stream.changed.park()
                    if caught_up and trio.current_time() >= deadline:
                        return BytesRead(offset, b"", True, False, {}, stream.row.incarnation)
                    if window.failure is None:
                        stream.check(offset)
            if window.failure is not None:
                raise OperationFailed(window.failure)

    async def info(self, operation: GetByteStreamInfo) -> ByteStreamInfo:
        """Carry out `GetByteStreamInfo`."""
        stream = await self._streams.for_reads(operation.stream)
        with stream.used():
            tail = await self._counter.catch_up(stream)
            await self._counter.find_first(stream, tail)
            row = stream.row
            modified = max(row.last_modified, tail.timestamp if row.sealed_at is None else 0)
            sealed = row.sealed_at is not None
            return ByteStreamInfo(stream.start_offset, _end(stream), sealed, modified, row.incarnation)

    async def truncate(self, operation: Truncate, now: int) -> int:
        """Carry out `Truncate` and return the first offset that is kept. `now` is the time of day in ms."""
        offset = operation.offset
        if offset < 0:
            raise fail(FailureCode.INVALID, f"a stream cannot be truncated at {offset}")
        stream = await self._streams.find(operation.stream)
        with stream.used():
            tail = await self._counter.catch_up(stream)
            await self._counter.find_first(stream, tail)
            if offset > (end := _end(stream)):
                raise fail(FailureCode.INVALID, f"offset {offset} is beyond the end, {end}")
            if offset > stream.start_offset:
                place = await self._counter.ending_behind(stream, offset)
                await stream.offsets.save()  # trimmed records cannot be counted again
                await stream.writers.rest()
                await stream.save(start_offset=offset, last_modified=now)
                await self._trim(stream, place)
            return stream.start_offset

    async def _trim(self, stream: ByteStream, place: RecordOffset) -> None:
        if Capability.TRIM in self._records.capabilities:
            await self._records.perform(Trim(stream.ref, FromSeqNum(place.seq_num)))
            stream.first = max(stream.first, place)

    async def locate(self, operation: Locate) -> Located:
        """Carry out `Locate`, also by an offset. The result has an offset if the stream had a byte operation before."""
        if isinstance(operation.start, FromByteOffset):
            stream = await self._streams.find(operation.stream)
            with stream.used():
                return await self._locate_offset(stream, operation.start.offset)
        located = await self._records.perform(operation)
        known = await self._streams.known(operation.stream)
        if known is None:
            return located
        with known.used():
            place = await self._counter.place_of(known, located.seq_num, RecordOffset(0, 0))
            await known.offsets.save()  # clients may use this offset after the records before it are trimmed
        return replace(located, offset=place.offset)

    async def _locate_offset(self, stream: ByteStream, offset: int) -> Located:
        tail = await self._counter.catch_up(stream)
        await self._counter.find_first(stream, tail)
        place = await self._counter.beginning_at(stream, offset)
        located = await self._records.perform(Locate(stream.ref, FromSeqNum(place.seq_num)))
        return replace(located, offset=place.offset)


def _given(
    stream: ByteStream, window: ReadWindow, operation: ReadBytes, max_bytes: int, caught_up: bool
) -> BytesRead | None:
    """Return the result of a read from what the window has, or None if the read must wait. Raises OperationFailed."""
    offset = operation.offset
    bytes_read = _cut(stream, window, operation, max_bytes)
    if bytes_read.data:
        at_tail = caught_up and bytes_read.end_offset >= _end(stream)
        return BytesRead(offset, bytes_read.data, at_tail, False, bytes_read.dropped, stream.row.incarnation)
    if bytes_read.refused is not None:
        raise _refusal(stream, bytes_read.refused)
    sealed_at = stream.row.sealed_at
    if sealed_at is None:
        return None
    if offset > sealed_at:
        raise fail(FailureCode.INVALID, f"offset {offset} is beyond the end, {sealed_at}")
    return BytesRead(offset, b"", True, True, bytes_read.dropped, stream.row.incarnation)


def _caught_up(stream: ByteStream, window: ReadWindow) -> bool:
    return window.following and window.end >= stream.offsets.end.offset


def _end(stream: ByteStream) -> int:
    """Return the known end of the stream. Bytes appended behind the seal are not part of it: the back does not know of
    the seal, so other clients of it may append there."""
    sealed_at = stream.row.sealed_at
    return stream.offsets.end.offset if sealed_at is None else sealed_at


def _cut(stream: ByteStream, window: ReadWindow, operation: ReadBytes, max_bytes: int) -> RenderedSlice:
    offset = operation.offset
    end = min(window.end, _end(stream))
    if offset > end or (offset == end and not (operation.refuse or stream.row.sealed_at is not None)):
        return RenderedSlice()
    pieces = [piece for piece in window.pieces() if piece.end_offset >= offset]
    if not pieces:
        return RenderedSlice()
    return render_slice(pieces, offset, min(max_bytes, end - offset), operation.refuse, stream.first.seq_num)


def _refusal(stream: ByteStream, refused: RefusedRecord) -> OperationFailed:
    seq_num, feature, end = refused
    message = f"record {seq_num} of stream {stream.ref} {feature.value}, which cannot be delivered as bytes"
    return fail(FailureCode.NOT_REPRESENTABLE, f"{message}; the next bytes are at offset {end}", seq_num=seq_num)
