"""The sweeper's queries, run in a reader's thread; each covers a bounded part and returns the start of the next."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.model.limits import KIB, MIB
from penstock.model.records import StreamRef
from penstock.store.committer import Statement
from penstock.store.payload_files import Place
from penstock.store.registry import decode_stream_config
from penstock.store.u64 import from_sql

__all__ = ["DELETE_FILE", "DueTrim", "Purge", "due_streams", "empty_files", "newest_change", "purge_chunk"]

STREAMS_AT_ONCE: Final = 256
ROWS_AT_ONCE: Final = 256
ATTRIBUTES_AT_ONCE: Final = 16_384
"""Most attributes deleted in one purge; measured: these take 3 ms."""
BYTES_AT_ONCE: Final = 4 * MIB
"""Approximate bytes freed by one purge, so that appends never wait long behind it (4 MiB: about 3 ms)."""
BYTES_PER_ROW: Final = 16 * KIB
"""Cost of purging a row besides that of its records, in bytes of records: its entries in two indexes go too."""

_STREAMS: Final = """
SELECT s.id, b.name, s.name, s.config, s.trim_point, s.emptied_at,
  (SELECT r.arrived_at FROM batches r WHERE r.stream = s.id AND r.last_seq >= s.trim_point ORDER BY r.last_seq LIMIT 1)
FROM streams s JOIN basins b ON b.id = s.basin
WHERE s.id > ? AND s.deleted_at IS NULL AND b.deleted_at IS NULL ORDER BY s.id LIMIT ?
"""
_ROWS: Final = """
SELECT last_seq, arrived_at, end_offset FROM batches WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT ?
"""
_END: Final = "SELECT end_offset FROM batches WHERE stream = ? ORDER BY last_seq DESC LIMIT 1"


_NEWEST: Final = """
SELECT max(
  (SELECT coalesce(max(max(created_at, modified_at, emptied_at)), 0) FROM streams),
  coalesce((SELECT arrived_at FROM batches ORDER BY id DESC LIMIT 1), 0)
)
"""
_DELETED: Final = """
SELECT id FROM streams WHERE deleted_at IS NOT NULL
UNION ALL
SELECT s.id FROM basins b CROSS JOIN streams s ON s.basin = b.id WHERE b.deleted_at IS NOT NULL AND s.deleted_at IS NULL
LIMIT ?
"""
_TRIMMED: Final = """
SELECT s.id, s.trim_point FROM streams s
WHERE s.id > ? AND s.trim_point > 0 AND s.deleted_at IS NULL
  AND EXISTS (SELECT 1 FROM batches r WHERE r.stream = s.id AND r.last_seq < s.trim_point)
ORDER BY s.id LIMIT 1
"""
_OLDEST: Final = """
SELECT last_seq, metered FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq < ? ORDER BY last_seq LIMIT ?
"""
_KEEP_TAIL: Final = """
UPDATE streams SET (last_seq, last_ts, last_id_seq, last_offset, modified_at) =
  (SELECT last_seq, last_ts, last_id_seq, end_offset, max(modified_at, arrived_at)
   FROM batches INDEXED BY batches_by_seq WHERE stream = ?1 ORDER BY last_seq DESC LIMIT 1)
WHERE id = ?1 AND EXISTS (SELECT 1 FROM batches WHERE stream = ?1)
"""
_DELETE_ROWS: Final = "DELETE FROM batches WHERE stream = ? AND last_seq <= ?"
_PLACES: Final = """
SELECT file, file_offset, file_bytes FROM batches INDEXED BY batches_by_seq
WHERE stream = ? AND last_seq <= ? AND file IS NOT NULL ORDER BY last_seq
"""
_TAKE: Final = "UPDATE payload_files SET live = live - ? WHERE number = ?"
_EMPTY_FILES: Final = "SELECT number FROM payload_files WHERE live = 0 AND number < ? ORDER BY number"
DELETE_FILE: Final = "DELETE FROM payload_files WHERE number = ?"
_ATTRIBUTES: Final = "SELECT attribute FROM attributes WHERE stream = ? ORDER BY attribute LIMIT 1 OFFSET ?"
_DELETE_ATTRIBUTES: Final = "DELETE FROM attributes WHERE stream = ? AND attribute <= ?"
_LAST_ATTRIBUTE: Final = b"\xff" * 17
"""Sorts after all attributes, which have 16 bytes."""
_DELETE_STREAM: Final = "DELETE FROM streams WHERE id = ?"
_DELETE_BASINS: Final = """
DELETE FROM basins WHERE deleted_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM streams s WHERE s.basin = basins.id AND s.deleted_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM streams s WHERE s.basin = basins.id AND s.deleted_at IS NOT NULL)
"""
_ANY_DELETED_BASIN: Final = "SELECT 1 FROM basins WHERE deleted_at IS NOT NULL LIMIT 1"
_EVERYTHING: Final = b"\xff" * 9
"""Sorts after every number in SQLite (see `u64`)."""


class DueTrim(NamedTuple):
    """A stream to sweep: records before `trim_to` are past its retention, or, if that is None, it is empty for
    long enough."""

    id: int
    ref: StreamRef
    trim_to: int | None


def due_streams(db: sqlite3.Connection, after: int, now: int) -> tuple[list[DueTrim], int | None]:
    """Return the streams to sweep at `now` (ms) among some with ids above `after`, and the next `after` or None."""
    streams = db.execute(_STREAMS, (after, STREAMS_AT_ONCE)).fetchall()
    sweeps = (_due(db, now, *stream) for stream in streams)
    due = [some for some in sweeps if some is not None]
    return due, streams[-1][0] if len(streams) == STREAMS_AT_ONCE else None


def newest_change(db: sqlite3.Connection) -> int:
    """Return the time in ms of the newest change of a stream; 0 if there is none."""
    newest: int = db.execute(_NEWEST).fetchone()[0]
    return newest


def _due(
    db: sqlite3.Connection,
    now: int,
    number: int,
    basin: str,
    name: str,
    encoded: str,
    trim_point: int | bytes,
    emptied_at: int,
    oldest: int | None,
) -> DueTrim | None:
    config = decode_stream_config(encoded)
    ref = StreamRef(basin, name)
    if oldest is None:
        age = config.delete_on_empty_seconds
        return DueTrim(number, ref, None) if age and now - emptied_at >= age * 1000 else None
    assert config.retention is not None
    age, size = config.retention.age_seconds, config.retention_bytes
    oldest_kept = 0 if age is None else now - age * 1000
    if oldest >= oldest_kept and not size:  # nearly always; so rows are examined one by one only if some have expired
        return None
    first_kept = db.execute(_END, (number,)).fetchone()[0] - size if size else 0
    trim_to = None
    for last_seq, arrived_at, end in db.execute(_ROWS, (number, trim_point, ROWS_AT_ONCE)):
        if arrived_at >= oldest_kept and (not size or end > first_kept):
            break
        trim_to = from_sql(last_seq) + 1
    return None if trim_to is None else DueTrim(number, ref, trim_to)


# ---- purging -------------------------------------------------------------------------------------------------


class Purge(NamedTuple):
    """Statements that delete a bounded part of what is to be purged, the places of its payloads in files, and `after`
    for the next call of `purge_chunk`."""

    statements: Sequence[Statement]
    places: Sequence[Place]
    after: int


def purge_chunk(db: sqlite3.Connection, after: int) -> Purge | None:
    """Return the purge of a bounded part of the deleted and trimmed rows, or None if there is nothing left to purge.

    Covers trimmed streams with ids above `after`.
    """
    deleted = [number for (number,) in db.execute(_DELETED, (STREAMS_AT_ONCE,))]
    if deleted:
        return _purge_deleted(db, deleted, after)
    trimmed = db.execute(_TRIMMED, (after,)).fetchone()
    if trimmed is not None:
        number, trim_point = trimmed
        last, _, _ = _oldest_rows(db, number, trim_point)
        statements, places = _deletion(db, number, last)
        return Purge([(_KEEP_TAIL, (number,)), *statements], places, number - 1)
    if db.execute(_ANY_DELETED_BASIN).fetchone() is not None:
        return Purge([(_DELETE_BASINS, ())], (), after)
    return None


def empty_files(db: sqlite3.Connection, before: int) -> list[int]:
    """Return the numbers, less than `before`, of files of payloads in which no payload is left."""
    return [number for (number,) in db.execute(_EMPTY_FILES, (before,))]


def _deletion(db: sqlite3.Connection, stream: int, last: int | bytes | None) -> tuple[list[Statement], list[Place]]:
    """Return statements that delete the rows of a stream up to the number `last`, and the places of their payloads."""
    places = [Place(*place) for place in db.execute(_PLACES, (stream, last))]
    left: Counter[int] = Counter()
    for place in places:
        left[place.file] += place.size
    taken: list[Statement] = [(_TAKE, (size, number)) for number, size in left.items()]
    return [(_DELETE_ROWS, (stream, last)), *taken], places


def _purge_deleted(db: sqlite3.Connection, streams: Sequence[int], after: int) -> Purge:
    statements: list[Statement] = []
    places: list[Place] = []
    total = 0
    for number in streams:
        last, size, is_all = _oldest_rows(db, number, _EVERYTHING)
        if last is not None:
            deletion, freed = _deletion(db, number, last)
            statements += deletion
            places += freed
        if is_all:
            some = db.execute(_ATTRIBUTES, (number, ATTRIBUTES_AT_ONCE)).fetchone()
            statements.append((_DELETE_ATTRIBUTES, (number, _LAST_ATTRIBUTE if some is None else some[0])))
            if some is not None:
                break
            statements.append((_DELETE_STREAM, (number,)))
        total += size
        if total >= BYTES_AT_ONCE:
            break
    return Purge(statements, places, after)


def _oldest_rows(db: sqlite3.Connection, stream: int, below: int | bytes) -> tuple[int | bytes | None, int, bool]:
    """Choose a bounded number of a stream's oldest rows below a sequence number.

    Returns the number of the last one (None if there are none), their cost in bytes, and whether these are all.
    """
    size = 0
    rows = 0
    last: int | bytes | None = None
    for last_seq, metered in db.execute(_OLDEST, (stream, below, ROWS_AT_ONCE)):
        last = last_seq
        rows += 1
        size += metered + BYTES_PER_ROW
        if size >= BYTES_AT_ONCE:
            return last, size, False
    return last, size, rows < ROWS_AT_ONCE
