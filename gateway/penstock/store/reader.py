"""Reads from the file: a few connections, each used by one thread at a time.

Each read is one short transaction, which never delays a checkpoint for long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from penstock.store.batches import BatchRow, batch_of_payloads, batch_of_rows
from penstock.store.payload_files import Place
from penstock.store.registry import could_not_read
from penstock.store.schema import ReaderConnection, connect_reader
from penstock.store.u64 import from_sql, to_sql
from penstock_codecs.byte_layout import Layout
from penstock_codecs.limits import MIB, S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS
from penstock_codecs.model import JoinedBatch, RecordBatch, RecordId
from penstock_codecs.s2.protobuf import S2_RECORDS

__all__ = ["READ_BYTES", "ReaderThreads", "read_batches", "row_from_sql"]

T = TypeVar("T")

READ_BYTES: Final = 4 * MIB
"""Metered bytes after which a read in a thread takes up no further batch."""

_ROWS: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding, payload, file, file_offset, file_bytes
FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT ?
"""
_LAYOUT: Final = 5
"""Place of the layout in such a row, before that of the encoding."""
_ENCODING: Final = 6
_PAYLOAD: Final = 7
"""Place of the payload, before those of the columns with its place in a file."""
_EXACT: Final = int(Layout.RAW | Layout.SENT)


class ReaderThreads:
    """Runs functions that take a connection in threads, at most `threads` at once."""

    def __init__(self, directory: Path, threads: int) -> None:
        self._idle = [connect_reader(directory) for _ in range(threads)]
        self._limiter = trio.CapacityLimiter(threads)
        self._running: dict[int, trio.Event] = {}
        self._number = 0

    async def run(self, function: Callable[[ReaderConnection], T]) -> T:
        """Run `function(connection)` in a thread and one read transaction. Raises OperationFailed(STORAGE)."""
        self._number += 1
        number = self._number
        self._running[number] = trio.Event()
        try:
            return await trio.to_thread.run_sync(self._in_transaction, function, limiter=self._limiter)
        except (sqlite3.Error, OSError) as error:
            raise could_not_read(error) from error
        finally:
            self._running.pop(number).set()

    async def passed(self) -> None:
        """Wait until all transactions that run now have ended: later ones do not see rows that are gone by now."""
        for ended in list(self._running.values()):
            await ended.wait()

    def _in_transaction(self, function: Callable[[ReaderConnection], T]) -> T:
        db = self._idle.pop()  # never empty: the limiter allows no more threads than connections
        try:
            db.execute("BEGIN")
            try:
                return function(db)
            finally:
                if db.in_transaction:  # SQLite ends it itself after an error of the disk
                    db.execute("ROLLBACK")
        finally:
            self._idle.append(db)

    def close(self) -> None:
        """Close the connections; nothing may be running."""
        for db in self._idle:
            db.close()

    async def batches(self, stream: int, span: range, max_records: int, max_bytes: int, most: int) -> list[RecordBatch]:
        """Run `read_batches` in a thread."""
        return await self.run(partial(read_batches, stream, span, max_records, max_bytes, most))


def row_from_sql(db: ReaderConnection, row: tuple[Any, ...]) -> BatchRow:
    """Convert columns of table `batches`, from last_seq to file_bytes as in `_ROWS`, with the payload.

    Raises OSError, and OperationFailed(STORAGE) if it is missing.
    """
    last_seq, count, metered, first_ts, first_id_seq, layout, encoding, *stored = row
    first_id = RecordId(from_sql(first_ts), from_sql(first_id_seq))
    payload = db.payload(*stored)
    return BatchRow(from_sql(last_seq), count, metered, first_id, Layout(layout), payload, encoding or S2_RECORDS)


def read_batches(
    stream: int, span: range, max_records: int, max_bytes: int, most: int, db: ReaderConnection
) -> list[RecordBatch]:
    """Return the stored records from the beginning of `span` on, as up to `most` consecutive batches of whole rows.

    A batch has as many rows as its limits and those of the read (`max_records`, `max_bytes`) allow, but at least one.
    It ends before a row that would not fit if it were like the one before it, so that hardly a payload is read in vain,
    and before one of another encoding.
    No batch begins after READ_BYTES. A row that begins before `span` is cut, and alone in its batch; rows that begin
    after it are left out, since they are not published yet. If rows were purged meanwhile, the first batch begins
    later.
    """
    limit = max(min(max_records, most * S2_MAX_BATCH_RECORDS), 1)
    rows = db.execute(_ROWS, (stream, to_sql(span.start), limit))
    batches: list[RecordBatch] = []
    records = size = 0
    for batch in _batches(db, rows, span, min(max_records, S2_MAX_BATCH_RECORDS), min(max_bytes, S2_MAX_BATCH_BYTES)):
        batches.append(batch)
        records += batch.count
        size += batch.metered
        if len(batches) == most or records >= max_records or size >= min(max_bytes, READ_BYTES):
            break
    if batches:
        batches[0] = batches[0].part(max(span.start - batches[0].first_seq_num, 0), batches[0].count)
    return batches


def _batches(
    db: ReaderConnection, found: Iterable[tuple[Any, ...]], span: range, most_records: int, most_bytes: int
) -> Iterator[RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    records = size = 0
    for row in found:
        last_seq, count, metered = row[:3]
        first = from_sql(last_seq) - count + 1
        if first >= span.stop:
            break
        full = records + count > most_records or size + metered > most_bytes
        if rows and (full or row[_ENCODING] != rows[0][_ENCODING]):
            yield _batch(db, rows, records, size)
            rows, records, size = [], 0, 0
        rows.append(row)
        records += count
        size += metered
        if first < span.start or records + count > most_records or size + metered > most_bytes:
            yield _batch(db, rows, records, size)
            rows, records, size = [], 0, 0
    if rows:
        yield _batch(db, rows, records, size)


def _batch(db: ReaderConnection, rows: list[tuple[Any, ...]], records: int, metered: int) -> RecordBatch:
    """Return adjacent rows as one batch. Objects for the rows are made only if some hold bytes: 1 us a row."""
    if any(row[_LAYOUT] & _EXACT for row in rows):
        return batch_of_rows([row_from_sql(db, row) for row in rows])
    last_seq, count, _, first_ts, first_id_seq, _, encoding, *_ = rows[0]
    first, first_id = from_sql(last_seq) - count + 1, RecordId(from_sql(first_ts), from_sql(first_id_seq))
    joined = [] if encoding is None else [_joined(row) for row in rows]
    payloads = _payloads(db, rows)
    return batch_of_payloads(payloads, encoding or S2_RECORDS, first, records, metered, first_id, joined=joined)


def _joined(row: tuple[Any, ...]) -> JoinedBatch:
    """Describe a row in a codec's own encoding, in which its readers end behind any of the batches that came, and go on
    there. Without this all rows that were joined would be decoded, and those from there on encoded again."""
    _, count, metered, first_ts, first_id_seq, *_ = row
    size = row[-1] if _is_in_file(row) else len(row[_PAYLOAD])
    return JoinedBatch(count, metered, size, RecordId(from_sql(first_ts), from_sql(first_id_seq)))


def _payloads(db: ReaderConnection, rows: list[tuple[Any, ...]]) -> list[bytes]:
    """Return the payloads of adjacent rows, in pieces: what lies together in a file is read together."""
    pieces: list[bytes] = []
    for in_file, some in groupby(rows, _is_in_file):
        if in_file:
            pieces += db.payloads.read([Place(*row[_PAYLOAD + 1 :]) for row in some])
        else:
            pieces += [row[_PAYLOAD] for row in some]
    return pieces


def _is_in_file(row: tuple[Any, ...]) -> bool:
    return row[_PAYLOAD + 1] is not None
