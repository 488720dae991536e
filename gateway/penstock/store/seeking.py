"""Finding a row by byte offset or identifier with the only index that rows have, that of their numbers.

Offsets and identifiers increase along a stream as numbers do, so the row is found by interpolation between rows whose
numbers are known. Each probe is one look-up in the index, about 4 us; evenly filled streams need 4 or 5. Every further
index would make each append write one page more.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, Literal, NamedTuple

from penstock.store.u64 import from_sql, to_sql

__all__ = ["Mark", "first_reaching"]

Mark = Literal["id", "offset"]
"""The key of a search: the identifier of a row's last record, as (ms, seq), or a row's end offset, as (bytes, 0)."""

INTERPOLATIONS: Final = 4
"""Number of interpolations after which every second probe bisects, so that no stream takes more than 2 * 64 probes."""

_COLUMNS: Final = "SELECT last_seq, count, last_ts, last_id_seq, end_offset FROM batches INDEXED BY batches_by_seq"
_FROM: Final = f"{_COLUMNS} WHERE stream = ? AND last_seq >= ? ORDER BY last_seq LIMIT 1"
_NEWEST: Final = f"{_COLUMNS} WHERE stream = ? ORDER BY last_seq DESC LIMIT 1"


class _Probe(NamedTuple):
    """The numbers of a row's first and last records, and its mark."""

    first: int
    last: int
    mark: tuple[int, int]


def first_reaching(db: sqlite3.Connection, stream: int, mark: Mark, wanted: tuple[int, int]) -> int | None:
    """Return the last number of the first row whose mark is `wanted` or greater; None if no row reaches it.

    Must be called within a read transaction.
    """
    high = _probe(db.execute(_NEWEST, (stream,)), mark)
    if high is None or high.mark < wanted:
        return None
    low = _probe(db.execute(_FROM, (stream, 0)), mark)
    assert low is not None, "the stream has a newest row"
    if low.mark >= wanted:
        return low.last
    steps = 0
    while low.last + 1 < high.first:
        probe = _probe(db.execute(_FROM, (stream, to_sql(_between(low, high, wanted[0], steps)))), mark)
        assert probe is not None, "the row above it is there"
        steps += 1
        if probe.mark < wanted:
            low = probe
        else:
            high = probe
    return high.last


def _between(low: _Probe, high: _Probe, wanted: int, steps: int) -> int:
    """Return a number between two rows at which to probe next."""
    first, last = low.last + 1, high.first - 1
    width = high.mark[0] - low.mark[0]
    if not width or (steps >= INTERPOLATIONS and steps % 2):
        return (first + last) // 2
    return min(first + (wanted - low.mark[0]) * (last - low.last) // width, last)


def _probe(rows: sqlite3.Cursor, mark: Mark) -> _Probe | None:
    row: tuple[Any, ...] | None = rows.fetchone()
    if row is None:
        return None
    last_seq, count, last_ts, last_id_seq, end_offset = row
    last = from_sql(last_seq)
    mark_value = (from_sql(last_ts), from_sql(last_id_seq)) if mark == "id" else (end_offset, 0)
    return _Probe(last - count + 1, last, mark_value)
