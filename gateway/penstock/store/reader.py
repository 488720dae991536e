"""Reads from the file: a few connections, each used by one thread at a time.

The rows of a batch are chosen from the index alone and only then fetched, so that no payload is read in vain. Each read
is one short transaction, which never delays a checkpoint for long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from penstock.store.batches import BatchRow, batch_of_rows
from penstock.store.registry import could_not_read
from penstock.store.schema import connect_reader
from penstock.store.u64 import from_sql, to_sql
from penstock_codecs.byte_layout import Layout
from penstock_codecs.limits import MIB, S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS
from penstock_codecs.model import U64_MAX, RecordBatch, RecordId

__all__ = ["READ_BYTES", "ReaderThreads", "read_batches", "row_from_sql"]

T = TypeVar("T")

READ_BYTES: Final = 4 * MIB
"""Metered bytes after which a read in a thread takes up no further batch."""

_CHOOSE: Final = """
SELECT last_seq, count, metered FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT ?
"""
_FETCH: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, payload FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq BETWEEN ? AND ? ORDER BY last_seq
"""


class ReaderThreads:
    """Runs functions that take a connection in threads, at most `threads` at once."""

    def __init__(self, directory: Path, threads: int) -> None:
        self._idle = [connect_reader(directory) for _ in range(threads)]
        self._limiter = trio.CapacityLimiter(threads)

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function(connection)` in a thread and one read transaction. Raises OperationFailed(STORAGE)."""
        try:
            return await trio.to_thread.run_sync(self._in_transaction, function, limiter=self._limiter)
        except sqlite3.Error as error:
            raise could_not_read(error) from error

    def _in_transaction(self, function: Callable[[sqlite3.Connection], T]) -> T:
        db = self._idle.pop()  # never empty: the limiter allows no more threads than connections
        try:
            db.execute("BEGIN")
            try:
                return function(db)
            finally:
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


def row_from_sql(row: tuple[Any, ...]) -> BatchRow:
    """Convert columns last_seq, count, metered, first_ts, first_id_seq, layout, payload of table `batches`."""
    last_seq, count, metered, first_ts, first_id_seq, layout, payload = row
    first_id = RecordId(from_sql(first_ts), from_sql(first_id_seq))
    return BatchRow(from_sql(last_seq), count, metered, first_id, Layout(layout), payload)


def read_batches(
    stream: int, span: range, max_records: int, max_bytes: int, most: int, db: sqlite3.Connection
) -> list[RecordBatch]:
    """Return the stored records from the beginning of `span` on, as up to `most` consecutive batches of whole rows.

    A batch has as many rows as its limits and those of the read (`max_records`, `max_bytes`) allow, but at least one.
    No batch begins after READ_BYTES. A row that begins before `span` is cut, and alone in its batch; rows that begin
    after it are left out, since they are not published yet. If rows were purged meanwhile, the first batch begins
    later.
    """
    most_records, most_bytes = min(max_records, S2_MAX_BATCH_RECORDS), min(max_bytes, S2_MAX_BATCH_BYTES)
    chosen: list[list[int]] = []  # the last numbers of each batch's rows
    records = size = all_records = all_bytes = 0
    limit = max(min(max_records, most * S2_MAX_BATCH_RECORDS), 1)
    for last_seq, count, metered in db.execute(_CHOOSE, (stream, to_sql(span.start), limit)):
        last = from_sql(last_seq)
        first = last - count + 1
        if first >= span.stop:
            break
        records += count
        size += metered
        if not chosen or records > most_records or size > most_bytes:
            if len(chosen) == most or all_records >= max_records or all_bytes >= min(max_bytes, READ_BYTES):
                break
            chosen.append([])
            records, size = count, metered
        chosen[-1].append(last)
        all_records += count
        all_bytes += metered
        if first < span.start:
            records = U64_MAX  # alone in its batch
    if not chosen:
        return []
    rows = map(row_from_sql, db.execute(_FETCH, (stream, to_sql(chosen[0][0]), to_sql(chosen[-1][-1]))))
    batches = [batch_of_rows(list(islice(rows, len(some)))) for some in chosen]
    batches[0] = batches[0].part(max(span.start - batches[0].first_seq_num, 0), batches[0].count)
    return batches
