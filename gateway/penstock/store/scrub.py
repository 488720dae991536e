"""Scrubbing: each stored payload is compared with its checksum, without a gateway or beside a running one.

Rows are walked stream by stream, in short read transactions, which delay no checkpoint for long. A gateway that runs
may delete a row and punch a hole in its file meanwhile, so what does not match is looked up again before it is
reported. Payloads of gateways before schema version 8 have no checksum: these are decoded instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.core.errors import CannotStart
from penstock.model.failures import OperationFailed
from penstock.model.limits import MIB
from penstock.store.batches import batches_within
from penstock.store.lock import is_locked
from penstock.store.payload_files import UnreadablePayload
from penstock.store.reader import row_from_sql
from penstock.store.schema import FILE_NAME, ReaderConnection, connect_reader, require_current
from penstock.store.u64 import from_sql, to_sql

__all__ = ["Damage", "Scrubbed", "scrub"]

_ROWS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 16 * MIB
_STREAMS: Final = """
SELECT s.id, b.name, s.name, s.trim_point FROM streams s JOIN basins b ON b.id = s.basin
WHERE s.deleted_at IS NULL AND b.deleted_at IS NULL ORDER BY b.name, s.name
"""
_ROWS: Final = """
SELECT last_seq, count, metered, first_ts, first_id_seq, layout, encoding,
  payload, file, file_offset, file_bytes, checksum, first_seq, first_offset, end_offset
FROM batches INDEXED BY batches_by_seq WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT ?
"""
_IS_LEFT: Final = """
SELECT 1 FROM batches r JOIN streams s ON s.id = r.stream JOIN basins b ON b.id = s.basin
WHERE r.stream = ? AND r.last_seq = ? AND r.last_seq >= s.trim_point AND s.deleted_at IS NULL AND b.deleted_at IS NULL
"""


class Damage(NamedTuple):
    """Stored records that cannot be read, or the database itself (`stream` is then None)."""

    stream: str | None
    first_seq_num: int
    last_seq_num: int
    reason: str


class Scrubbed(NamedTuple):
    """Counts of a scrub: streams, payloads and their bytes, and how many of these have no checksum. `has_structure`:
    SQLite has examined its structure, too, which it does while no gateway uses the store."""

    streams: int
    payloads: int
    size: int
    unsealed: int
    has_structure: bool


class _Row(NamedTuple):
    """A row of `batches` without its payload, of `size` bytes. `is_sealed`: it has a checksum."""

    first: int
    last: int
    records: int
    first_offset: int
    end_offset: int
    size: int
    is_sealed: bool


def scrub(directory: Path) -> Iterator[Damage | Scrubbed]:
    """Yield the damage in the store in `directory`, and at last the counts.

    Raises CannotStart if there is no store, or one of another version; sqlite3.Error if SQLite cannot read it.
    """
    path = directory / FILE_NAME
    if not path.exists():
        raise CannotStart(f"there is no store in {directory}: {FILE_NAME} is missing")
    with contextlib.closing(connect_reader(directory)) as db:
        require_current(db, path)
        has_structure = not is_locked(directory)
        if has_structure:
            for [report] in db.execute("PRAGMA integrity_check"):
                if report != "ok":
                    yield Damage(None, 0, 0, report)
        streams = payloads = size = unsealed = 0
        for stream, basin, name, trim_point in db.execute(_STREAMS).fetchall():
            streams += 1
            for row, reason in _walk(db, stream, from_sql(trim_point)):
                payloads += 1
                size += row.size
                unsealed += not row.is_sealed
                if reason is not None:
                    yield Damage(f"{basin}/{name}", row.first, row.last, reason)
    yield Scrubbed(streams, payloads, size, unsealed, has_structure)


def _walk(db: ReaderConnection, stream: int, start: int) -> Iterator[tuple[_Row, str | None]]:
    """Yield the rows of a stream from a sequence number on, and what is wrong with each, or None."""
    before: _Row | None = None
    while True:
        checked: list[tuple[_Row, str | None]] = []
        size = 0
        db.execute("BEGIN")
        try:
            for columns in db.execute(_ROWS, (stream, to_sql(start), _ROWS_AT_ONCE)):
                row = _row(columns)
                reason = _gap(before, row) or _fault(db, stream, columns[:12])
                checked.append((row, reason))
                before, start = row, row.last + 1
                size += row.size
                if size >= _BYTES_AT_ONCE:
                    break
        finally:
            db.execute("ROLLBACK")
        if not checked:
            return
        for row, reason in checked:
            if reason is None or db.execute(_IS_LEFT, (stream, to_sql(row.last))).fetchone() is not None:
                yield row, reason


def _row(columns: tuple[Any, ...]) -> _Row:
    last, count, *_ = columns
    payload, file, _, file_bytes, checksum, first, first_offset, end_offset = columns[7:]
    size = len(payload) if file is None else file_bytes
    return _Row(from_sql(first), from_sql(last), count, first_offset, end_offset, size, checksum is not None)


def _gap(before: _Row | None, row: _Row) -> str | None:
    """Return why a row cannot follow the one before it; None if it can."""
    if row.last - row.first + 1 != row.records:
        return f"its row counts {row.records} records"
    if before is not None and row.first != before.last + 1:
        return f"the row before it ends with record {before.last}"
    if before is not None and row.first_offset != before.end_offset:
        return f"the row before it ends at offset {before.end_offset}, and this one begins at {row.first_offset}"
    return None


def _fault(db: ReaderConnection, stream: int, columns: tuple[Any, ...]) -> str | None:
    """Return why the payload of a row cannot be read; None if it can."""
    try:
        row = row_from_sql(db, stream, columns)
        if columns[-1] is None:
            count = sum(len(batch.columns.bodies) for batch in batches_within(row))
            if count != row.records:
                return f"{count} records are stored instead of {row.records}"
    except OperationFailed as error:
        cause = error.__cause__
        return cause.reason if isinstance(cause, UnreadablePayload) else error.failure.message
    return None
