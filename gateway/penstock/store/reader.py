"""Reads from the file: a few connections, each used by one thread at a time.

The rows of a batch are chosen from the index alone and only then fetched, so that no payload is read in vain. Each read
is one short transaction, which never delays a checkpoint for long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from penstock.store.batches import BatchRow, batch_of_rows
from penstock.store.registry import could_not_read
from penstock.store.schema import connect_reader
from penstock.store.u64 import from_sql, to_sql
from penstock_codecs.byte_layout import Layout
from penstock_codecs.limits import S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS
from penstock_codecs.model import RecordBatch, RecordId

__all__ = ["ReaderThreads", "read_batch", "row_from_sql"]

T = TypeVar("T")

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

    async def batch(self, stream: int, position: int, end: int, max_records: int, max_bytes: int) -> RecordBatch | None:
        """Run `read_batch` in a thread."""
        return await self.run(
            partial(read_batch, stream=stream, position=position, end=end, max_records=max_records, max_bytes=max_bytes)
        )


def row_from_sql(row: tuple[Any, ...]) -> BatchRow:
    """Convert columns last_seq, count, metered, first_ts, first_id_seq, layout, payload of table `batches`."""
    last_seq, count, metered, first_ts, first_id_seq, layout, payload = row
    first_id = RecordId(from_sql(first_ts), from_sql(first_id_seq))
    return BatchRow(from_sql(last_seq), count, metered, first_id, Layout(layout), payload)


def read_batch(
    db: sqlite3.Connection, stream: int, position: int, end: int, max_records: int, max_bytes: int
) -> RecordBatch | None:
    """Return the stored records from `position` on: whole rows, as many as the limits allow, but at least one.

    A row that begins before `position` is cut, and returned alone. Rows that begin at `end` or later are left out,
    since they are not published yet. Returns None if there are no records. If rows were purged meanwhile, the batch
    begins later.
    """
    max_records, max_bytes = min(max_records, S2_MAX_BATCH_RECORDS), min(max_bytes, S2_MAX_BATCH_BYTES)
    chosen: list[int] = []
    records = size = 0
    for last_seq, count, metered in db.execute(_CHOOSE, (stream, to_sql(position), max(max_records, 1))):
        last = from_sql(last_seq)
        first = last - count + 1
        records += count
        size += metered
        if first >= end or (chosen and (records > max_records or size > max_bytes)):
            break
        chosen.append(last)
        if first < position:
            break
    if not chosen:
        return None
    rows = [row_from_sql(row) for row in db.execute(_FETCH, (stream, to_sql(chosen[0]), to_sql(chosen[-1])))]
    batch = batch_of_rows(rows)
    return batch.part(max(position - batch.first_seq_num, 0), batch.count)
