"""Reads from the file: a few connections, each used by one thread at a time.

Each read is one short transaction, which never delays a checkpoint for long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from traceback import clear_frames
from typing import Any, Final, TypeVar

import structlog
import trio

from penstock.model.byte_layout import Layout
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MIB
from penstock.model.record_encoding import RECORDS
from penstock.model.records import JoinedBatch, RecordBatch, RecordId
from penstock.observe.metrics.families import STORE_DAMAGED_READS
from penstock.store.batches import BatchRow, batch_of_payloads, batch_of_rows, batches_within, is_large
from penstock.store.payload_files import Place, UnreadablePayload, check_payloads
from penstock.store.registry import could_not_read
from penstock.store.schema import ReaderConnection, connect_reader
from penstock.store.u64 import from_sql, to_sql

__all__ = ["READ_BYTES", "ReaderThreads", "read_batches", "row_from_sql", "unreadable"]

log = structlog.get_logger()

T = TypeVar("T")

READ_BYTES: Final = 4 * MIB
"""Metered bytes after which a read in a thread takes up no further batch."""

_ROWS: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding,
  payload, file, file_offset, file_bytes, checksum
FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT ?
"""
_LAYOUT: Final = 5
"""Place of the layout in such a row, before that of the encoding."""
_ENCODING: Final = 6
_PAYLOAD: Final = 7
"""Place of the payload, before those of the columns with its place in a file, and of its checksum."""
_NAME_OF: Final = "SELECT b.name, s.name FROM streams s JOIN basins b ON b.id = s.basin WHERE s.id = ?"
_MOST_LOGGED: Final = 1000
"""Most damaged payloads that are logged, each once."""
_EXACT: Final = int(Layout.RAW | Layout.SENT)


class ReaderThreads:
    """Runs functions that take a connection in threads, at most `threads` at once."""

    def __init__(self, directory: Path, threads: int) -> None:
        self._idle = [connect_reader(directory) for _ in range(threads)]
        self._limiter = trio.CapacityLimiter(threads)
        self._running: dict[int, trio.Event] = {}
        self._number = 0
        self._logged: set[str] = set()

    async def run(self, function: Callable[[ReaderConnection], T]) -> T:
        """Run `function(connection)` in a thread and one read transaction.

        Raises OperationFailed: STORAGE if the file cannot be read, and what the function raises.
        """
        self._number += 1
        number = self._number
        self._running[number] = trio.Event()
        try:
            return await trio.to_thread.run_sync(self._in_transaction, function, limiter=self._limiter)
        except (sqlite3.Error, OSError) as error:
            raise could_not_read(error) from error
        except OperationFailed as error:
            if error.failure.code is FailureCode.DAMAGED:
                self._report(error.failure)
            raise
        finally:
            self._running.pop(number).set()

    def _report(self, failure: Failure) -> None:
        """Count a read of damaged records, and log each damaged payload once."""
        STORE_DAMAGED_READS.child().inc()
        if failure.message not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(failure.message)
            log.error("records_damaged", reason=failure.message)

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
            except Exception as error:
                clear_frames(error.__traceback__)  # a cursor in one would hold on to the log after the rollback
                raise
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


def unreadable(db: ReaderConnection, stream: int, first: int, last: int, error: UnreadablePayload) -> OperationFailed:
    """Return the DAMAGED or STORAGE error for a row with the records from `first` to `last` of a stream."""
    name = db.execute(_NAME_OF, (stream,)).fetchone()
    records = f"record {first}" if first == last else f"records {first} to {last}"
    where = f"{records} of {'a deleted stream' if name is None else '/'.join(name)}"
    if error.code is FailureCode.DAMAGED:
        are = "is" if first == last else "are"
        return fail(error.code, f"{where} {are} damaged ({error.reason}); other records can be read", seq_num=first)
    return fail(error.code, f"the store could not read {where}: {error.reason}")


def row_from_sql(db: ReaderConnection, stream: int, row: tuple[Any, ...]) -> BatchRow:
    """Convert columns of table `batches`, from last_seq to checksum as in `_ROWS`, with the payload.

    Raises OperationFailed(DAMAGED or STORAGE) if that cannot be read.
    """
    try:
        return _row(row, db.payload(*row[_PAYLOAD:]))
    except UnreadablePayload as error:
        last = from_sql(row[0])
        raise unreadable(db, stream, last - row[1] + 1, last, error) from error


def _row(row: tuple[Any, ...], payload: bytes) -> BatchRow:
    last_seq, count, metered, first_ts, first_id_seq, layout, encoding, *_ = row
    first_id = RecordId(from_sql(first_ts), from_sql(first_id_seq))
    return BatchRow(from_sql(last_seq), count, metered, first_id, Layout(layout), payload, encoding or RECORDS)


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

    The last batch ends before a row that cannot be read. Raises OperationFailed(DAMAGED or STORAGE) if the first row is
    one.
    """
    limit = max(min(max_records, most * MAX_BATCH_RECORDS), 1)
    rows = db.execute(_ROWS, (stream, to_sql(span.start), limit))
    batches: list[RecordBatch] = []
    records = size = 0
    most_records, most_bytes = min(max_records, MAX_BATCH_RECORDS), min(max_bytes, MAX_BATCH_BYTES)
    for joined, count, metered in _joined_rows(rows, span, most_records, most_bytes):
        if len(joined) == 1 and is_large(count, metered, joined[0][_LAYOUT]):
            if not batches:  # else it begins the next read
                batches += _within(row_from_sql(db, stream, joined[0]), span.start, max_records, max_bytes, most)
            return batches
        batch, error = _batch(db, stream, joined, count, metered)
        if batch is not None:
            batches.append(batch)
            records += batch.count
            size += batch.metered
        if error is not None and not batches:
            raise error
        if error or len(batches) == most or records >= max_records or size >= min(max_bytes, READ_BYTES):
            break
    if batches:
        batches[0] = batches[0].part(max(span.start - batches[0].first_seq_num, 0), batches[0].count)
    return batches


def _within(row: BatchRow, start: int, max_records: int, max_bytes: int, most: int) -> list[RecordBatch]:
    """Return the records of a row of very many from the number `start` on, in up to `most` batches."""
    batches = []
    records = size = 0
    for batch in batches_within(row, max(start - row.first_seq, 0)):
        batches.append(batch)
        records += batch.count
        size += batch.metered
        if len(batches) == most or records >= max_records or size >= min(max_bytes, READ_BYTES):
            break
    return batches


def _joined_rows(
    found: Iterable[tuple[Any, ...]], span: range, most_records: int, most_bytes: int
) -> Iterator[tuple[list[tuple[Any, ...]], int, int]]:
    """Yield the rows of each batch, their number of records, and their metered bytes."""
    rows: list[tuple[Any, ...]] = []
    records = size = 0
    for row in found:
        last_seq, count, metered = row[:3]
        first = from_sql(last_seq) - count + 1
        if first >= span.stop:
            break
        full = records + count > most_records or size + metered > most_bytes
        if rows and (full or row[_ENCODING] != rows[0][_ENCODING]):
            yield rows, records, size
            rows, records, size = [], 0, 0
        rows.append(row)
        records += count
        size += metered
        if first < span.start or records + count > most_records or size + metered > most_bytes:
            yield rows, records, size
            rows, records, size = [], 0, 0
    if rows:
        yield rows, records, size


def _batch(
    db: ReaderConnection, stream: int, rows: list[tuple[Any, ...]], records: int, metered: int
) -> tuple[RecordBatch | None, OperationFailed | None]:
    """Return adjacent rows as one batch. It ends before a row that cannot be read, whose error is returned, too."""
    try:
        return _batch_of(db, rows, records, metered), None
    except UnreadablePayload as error:
        index = error.index
        if len(rows) > 1 and error.code is FailureCode.STORAGE:  # the disk failed for payloads that are read together
            index = max(index, 1)
        if index:
            intact = rows[:index]
            batch, failed = _batch(db, stream, intact, sum(row[1] for row in intact), sum(row[2] for row in intact))
            if batch is None:
                return None, failed
        else:
            batch = None
        last_seq, count, *_ = rows[index]
        last = from_sql(last_seq)
        return batch, unreadable(db, stream, last - count + 1, last, error)


def _batch_of(db: ReaderConnection, rows: list[tuple[Any, ...]], records: int, metered: int) -> RecordBatch:
    """Return adjacent rows as one batch. Raises UnreadablePayload with the index of a row.

    Objects for the rows are made only if some hold bytes: 1 us a row.
    """
    if any(row[_LAYOUT] & _EXACT for row in rows):
        return batch_of_rows([_row(row, _payloads(db, [row], index)[0]) for index, row in enumerate(rows)])
    last_seq, count, _, first_ts, first_id_seq, _, encoding, *_ = rows[0]
    first, first_id = from_sql(last_seq) - count + 1, RecordId(from_sql(first_ts), from_sql(first_id_seq))
    joined = [] if encoding is None else [_joined(row) for row in rows]
    payloads = _payloads(db, rows)
    return batch_of_payloads(payloads, encoding or RECORDS, first, records, metered, first_id, joined=joined)


def _joined(row: tuple[Any, ...]) -> JoinedBatch:
    """Describe a row in a codec's own encoding, in which its readers end behind any of the batches that came, and go on
    there. Without this all rows that were joined would be decoded, and those from there on encoded again."""
    _, count, metered, first_ts, first_id_seq, *_ = row
    size = row[-2] if _is_in_file(row) else len(row[_PAYLOAD])
    return JoinedBatch(count, metered, size, RecordId(from_sql(first_ts), from_sql(first_id_seq)))


def _payloads(db: ReaderConnection, rows: list[tuple[Any, ...]], index: int = 0) -> list[bytes]:
    """Return the payloads of adjacent rows, in pieces: what lies together in a file is read together.

    Raises UnreadablePayload with the index of a row; `index`: that of the first one.
    """
    pieces: list[bytes] = []
    for in_file, group in groupby(rows, _is_in_file):
        adjacent = list(group)
        checksums = [row[-1] for row in adjacent]
        try:
            if in_file:
                pieces += db.payloads.read([Place(*row[_PAYLOAD + 1 : -1]) for row in adjacent], checksums)
            else:
                payloads = [row[_PAYLOAD] for row in adjacent]
                check_payloads(payloads, checksums)
                pieces += payloads
        except UnreadablePayload as error:
            error.index += index
            raise
        index += len(adjacent)
    return pieces


def _is_in_file(row: tuple[Any, ...]) -> bool:
    return row[_PAYLOAD + 1] is not None
