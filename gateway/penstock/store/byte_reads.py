"""Byte reads and the state of streams as bytes: bytes come from memory at the tail, else from the file.

`read_rows` seeks the first row in the file and reads on row by row; rows are rendered as bytes in the thread that reads
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import trio

from penstock.core.encryption import missing_key
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import BytesRead, ByteStreamInfo, GetByteStreamInfo, ReadBytes
from penstock.model.byte_rendering import RefusedRecord, Rendered, RenderedSlice, render, render_slice
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import KIB, MIB
from penstock.model.record_encoding import RECORDS, decode_bodies
from penstock.model.records import NO_HEADERS, Columns, RecordBatch, RecordId, metered_size
from penstock.store.batches import BatchRow, batch_of_rows, batches_within, broken, is_large
from penstock.store.heads import StoredStream
from penstock.store.payload_files import UnreadablePayload
from penstock.store.positions import first_offset
from penstock.store.reader import unreadable
from penstock.store.reads import StoreReads
from penstock.store.registry import unknown_stream
from penstock.store.schema import ReaderConnection
from penstock.store.seeking import first_reaching
from penstock.store.u64 import from_sql, to_sql

__all__ = ["ByteReads", "RowCursor", "read_rows"]

PIECE_BYTES: Final = 64 * KIB
"""Metered bytes up to which rows are rendered together."""
MOST_ROWS: Final = 4096
MOST_RECORDS: Final = 20_000
"""Most records of one read: decoding so many small ones takes about 10 ms, during which no other task runs."""
MOST_METERED: Final = 8 * MIB
"""Most metered bytes of one read: rows whose headers are left out are much larger than their bytes."""

# A row that ends at the offset is needed only if its last records may be without bytes; see `all_have_bytes`.
_ROWS: Final = f"""
SELECT last_seq, count, metered, first_ts, first_offset, end_offset, layout, encoding, payload,
  file, file_offset, file_bytes, checksum FROM batches
INDEXED BY batches_by_seq
WHERE stream = ?1 AND last_seq >= ?3
  AND NOT (end_offset = ?2 AND first_offset < ?2 AND (
    layout & {int(Layout.RAW | Layout.SENT)} != 0 OR (layout = 0 AND end_offset - first_offset = metered)))
ORDER BY last_seq LIMIT {MOST_ROWS}
"""
MOST_BYTES: Final = 8 * MIB
"""Most bytes that one read returns. Fronts ask for less: 2 MiB, the most that the real server returns (segment fact
sheet, 1.1), unless they are configured otherwise."""
REMAINDER_BYTES: Final = 16 * MIB
"""Bytes kept of rows that reads ended in. Without them, a client that reads a row of 1 MiB in pieces of 256 KiB would
have it fetched and rendered four times."""
MOST_REMAINDERS: Final = 64


class RowCursor(NamedTuple):
    """A place between two rows: the end offset of the row before, and the number of its last record (-1: unknown)."""

    offset: int
    last_seq: int


class _ByteRow(NamedTuple):
    row: BatchRow
    first_offset: int
    end_offset: int


def read_rows(
    db: ReaderConnection, stream: int, after: RowCursor, max_bytes: int, end: int
) -> tuple[list[Rendered], RowCursor]:
    """Return the bytes of the rows after a place, `max_bytes` or a little more, and the place after them.

    Rows with records numbered `end` or later are left out, since they are not published yet, and so are those from the
    first one that cannot be read on. Raises OperationFailed(DAMAGED or STORAGE) if it is the first of all.
    """
    rows = list(_chosen(db, stream, after, max_bytes, end))
    pieces = [rendered for some in _pieces(rows) for rendered in _rendered(some)]
    return pieces, RowCursor(rows[-1].end_offset, rows[-1].row.last_seq) if rows else after


def _chosen(db: ReaderConnection, stream: int, after: RowCursor, max_bytes: int, end: int) -> Iterator[_ByteRow]:
    number = first_reaching(db, stream, "offset", (after.offset, 0)) if after.last_seq < 0 else after.last_seq + 1
    if number is None:
        return
    records = size = 0
    parameters = (stream, after.offset, to_sql(number))
    for last, count, metered, first_ts, first, end_offset, layout, encoding, *stored in db.execute(_ROWS, parameters):
        last_seq = from_sql(last)
        if last_seq >= end:
            break
        try:
            payload = db.payload(*stored)
        except UnreadablePayload as error:
            if size:  # the next read meets it again
                break
            error.reason += f"; the next bytes are at offset {end_offset}"
            raise unreadable(db, stream, last_seq - count + 1, last_seq, error) from error
        first_id = RecordId(from_sql(first_ts), 0)  # the place within the ms is not needed
        row = BatchRow(last_seq, count, metered, first_id, Layout(layout), payload, encoding or RECORDS)
        yield _ByteRow(row, first, end_offset)
        records += 0 if row.layout.is_exact else count
        size += metered
        if end_offset - after.offset >= max_bytes or records >= MOST_RECORDS or size >= MOST_METERED:
            break


def _pieces(rows: list[_ByteRow]) -> Iterator[list[_ByteRow]]:
    """Group adjacent rows of one layout and encoding, up to PIECE_BYTES: joined bytes are copied once more."""
    piece: list[_ByteRow] = []
    size = 0
    for row in rows:
        if piece and (size >= PIECE_BYTES or _is_large(row) or _kind(row) != _kind(piece[0])):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += PIECE_BYTES if _is_large(row) else row.row.metered
    if piece:
        yield piece


def _is_large(row: _ByteRow) -> bool:
    return is_large(row.row.records, row.row.metered, row.row.layout)


def _kind(row: _ByteRow) -> tuple[Layout, str]:
    return row.row.layout, row.row.encoding


def _rendered(rows: list[_ByteRow]) -> list[Rendered]:
    """Render adjacent rows of one layout and encoding: their joined payloads are a payload."""
    layout, first_offset = rows[0].row.layout, rows[0].first_offset
    if layout.is_exact:
        payloads = [row.payload for row, _, _ in rows]
        pieces = [Rendered(first_offset, payloads[0] if len(payloads) == 1 else b"".join(payloads), ())]
    else:
        pieces = []
        at = first_offset
        for batch in batches_within(rows[0].row) if len(rows) == 1 else [batch_of_rows([row for row, _, _ in rows])]:
            pieces.append(render(_columns(batch), layout, at))
            at = pieces[-1].end_offset
    if pieces[-1].end_offset != rows[-1].end_offset:
        size = pieces[-1].end_offset - first_offset
        raise broken(f"it has {size} bytes instead of {rows[-1].end_offset - first_offset}")
    return pieces


def _columns(batch: RecordBatch) -> Columns:
    """Return the columns of a batch, without timestamps if it has no headers.

    Headers are metered, so there are none if the bodies alone have the metered size.
    """
    if batch.wire is None or batch.wire.encoding != RECORDS:
        return batch.columns
    try:
        bodies = decode_bodies(batch.wire.data)
    except OperationFailed:
        bodies = []
    if metered_size(bodies, NO_HEADERS) != batch.metered:
        return batch.columns
    return Columns(range(batch.first_seq_num, batch.next_seq_num), (), bodies)


class Remainders:
    """The remaining bytes of rows that the latest reads from the file ended in, for the reads that follow."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._kept: deque[tuple[int, Rendered]] = deque()

    def find(self, stream: int, offset: int) -> Rendered | None:
        """Return the kept bytes that hold this offset, or None."""
        for owner, rest in reversed(self._kept):
            if owner == stream and rest.first_offset <= offset < rest.end_offset:
                return rest
        return None

    def keep(self, stream: int, rest: Rendered) -> None:
        """Keep the remaining bytes of a row, and drop the oldest ones beyond the bounds."""
        self._kept.append((stream, rest))
        self._used += len(rest.data)
        while self._used > self._capacity or len(self._kept) > MOST_REMAINDERS:
            _, oldest = self._kept.popleft()
            self._used -= len(oldest.data)


class ByteReads:
    """The operations that read bytes."""

    def __init__(self, reads: StoreReads) -> None:
        self._reads = reads
        self._remainders = Remainders(REMAINDER_BYTES)

    async def info(self, operation: GetByteStreamInfo) -> ByteStreamInfo:
        """Carry out `GetByteStreamInfo`."""
        stream = await self._reads.find_stream(operation.stream, create_if_missing=False)
        with stream.held():
            start = await first_offset(self._reads.reader, stream)
        head = stream.durable
        return ByteStreamInfo(start, head.next_offset, head.sealed, head.last_modified, stream.incarnation)

    async def read(self, operation: ReadBytes) -> BytesRead:
        """Carry out `ReadBytes`; the result has at most `MOST_BYTES`."""
        if operation.offset < 0 or operation.max_bytes < 1:
            raise fail(FailureCode.INVALID, f"cannot read {operation.max_bytes} bytes at offset {operation.offset}")
        stream = await self._reads.find_stream(operation.stream, create_if_missing=False)
        if stream.durable.cipher is not None:
            raise missing_key(stream.durable.cipher, stream.ref)
        with stream.held():
            await trio.lowlevel.checkpoint()
            return await self._read(stream, operation)

    async def _read(self, stream: StoredStream, operation: ReadBytes) -> BytesRead:
        offset = operation.offset
        deadline = trio.current_time() + operation.wait
        while True:
            await self._check(stream, offset)
            rendered = await self._cut(stream, operation)
            head = stream.durable
            if rendered.data:
                self._reads.usage.read(stream.basin.name, "unary")
                self._reads.usage.delivered(stream.basin.name, len(rendered.data))
                at_tail = rendered.end_offset >= head.next_offset
                return BytesRead(offset, rendered.data, at_tail, False, rendered.dropped, stream.incarnation)
            if rendered.refused is not None:
                raise _refusal(stream, rendered.refused)
            if offset < head.next_offset:  # bytes were appended meanwhile
                continue
            if head.sealed:
                if offset > head.next_offset:
                    raise fail(FailureCode.INVALID, f"offset {offset} is beyond the end, {head.next_offset}")
                return BytesRead(offset, b"", True, True, rendered.dropped, stream.incarnation)
            if operation.wait <= 0 or not await _parked(stream, deadline):
                return BytesRead(offset, b"", True, False, {}, stream.incarnation)

    async def _check(self, stream: StoredStream, offset: int) -> None:
        start = await first_offset(self._reads.reader, stream)
        if not stream.durably_alive:
            raise unknown_stream(stream.ref)
        if offset < start:
            raise fail(
                FailureCode.OFFSET_TRUNCATED,
                f"stream {stream.ref} was truncated: it begins at offset {start}",
                offset=start,
            )

    async def _cut(self, stream: StoredStream, operation: ReadBytes) -> RenderedSlice:
        """Return the bytes that a read can be given now. At the tail there may be records without bytes."""
        offset, head = operation.offset, stream.durable
        if offset > head.next_offset:
            return RenderedSlice()
        if offset == head.next_offset and not (operation.refuse or head.sealed):
            return RenderedSlice()
        max_bytes = min(operation.max_bytes, MOST_BYTES)
        pieces = await self._pieces(stream, offset, max_bytes)
        if offset < head.next_offset and not (pieces and pieces[0].first_offset <= offset < pieces[-1].end_offset):
            await self._check(stream, offset)  # it may have been truncated meanwhile
            raise fail(FailureCode.STORAGE, f"bytes at offset {offset} of {stream.ref} are missing from the store")
        if not pieces:
            return RenderedSlice()
        rendered = render_slice(pieces, offset, max_bytes, operation.refuse, stream.durable.trim_point)
        self._keep_rest(stream, pieces[-1], rendered.end_offset)
        return rendered

    async def _pieces(self, stream: StoredStream, offset: int, max_bytes: int) -> list[Rendered]:
        """Return the bytes from `offset` on, `max_bytes` or a little more, or less if rendering them takes long."""
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

    async def _from_file(self, stream: StoredStream, offset: int, max_bytes: int) -> list[Rendered]:
        pieces: list[Rendered] = []
        behind, end = RowCursor(offset, -1), stream.durable.next_seq
        while True:
            some, after = await self._reads.reader.run(
                partial(read_rows, stream=stream.id, after=behind, max_bytes=max_bytes, end=end)
            )
            pieces += some
            if after == behind or after.offset > offset:
                return pieces
            behind = after

    def _keep_rest(self, stream: StoredStream, last: Rendered, end: int) -> None:
        """Keep the bytes that the file gave in excess, unless they are in memory anyway.

        Nothing is kept if the read ended between two pieces: then there may be records without bytes in earlier pieces.
        """
        cut_in = last.first_offset < end < last.end_offset
        if cut_in and stream.recent.bytes_at(end, 1) is None and self._remainders.find(stream.id, end) is None:
            self._remainders.keep(stream.id, last.rest(end))


async def _parked(stream: StoredStream, deadline: float) -> bool:
    """Wait until a stream changes; return False at the deadline."""
    with trio.CancelScope(deadline=deadline) as scope:
        await stream.followers.park()
    return not scope.cancelled_caught


def _refusal(stream: StoredStream, refused: RefusedRecord) -> OperationFailed:
    seq_num, feature, end = refused
    message = f"record {seq_num} of stream {stream.ref} {feature.value}, which cannot be delivered as bytes"
    return fail(FailureCode.NOT_REPRESENTABLE, f"{message}; the next bytes are at offset {end}", seq_num=seq_num)
