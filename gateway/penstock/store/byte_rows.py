"""Stored rows as bytes: one index look-up, then row after row; rendered in the thread that read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.store.batches import Row, batch_of_rows, broken
from penstock.store.u64 import from_sql, to_sql
from penstock_codecs.byte_layout import Layout
from penstock_codecs.byte_rendering import Rendered, render
from penstock_codecs.failures import OperationFailed
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.model import NO_HEADERS, Columns, RecordBatch, RecordId, metered_size
from penstock_codecs.s2.protobuf import decode_bodies

__all__ = ["Place", "read_rows"]

NO_ID: Final = RecordId(0, 0)
PIECE_BYTES: Final = 64 * KIB
"""Rows are rendered together until there are so many bytes."""
MOST_ROWS: Final = 4096
MOST_RECORDS: Final = 20_000
"""Decoding so many small ones takes about 10 ms, in which nobody else runs."""
MOST_METERED: Final = 8 * MIB
"""Rows whose headers are left out are much larger than their bytes."""

# Of a row that ends at the offset, the last records are wanted if they are without bytes; see `all_have_bytes`.
_ROWS: Final = f"""
SELECT last_seq, count, metered, first_offset, end_offset, layout, payload FROM batches INDEXED BY batches_by_offset
WHERE stream = ?1 AND (end_offset, last_seq) > (?2, ?3)
  AND NOT (end_offset = ?2 AND first_offset < ?2 AND (
    layout & {int(Layout.RAW | Layout.SENT)} != 0 OR (layout = 0 AND end_offset - first_offset = metered)))
ORDER BY end_offset, last_seq LIMIT {MOST_ROWS}
"""


class Place(NamedTuple):
    """Between two rows: the offset at which the one before ends, and the number of its last record."""

    offset: int
    last_seq: int


class _ByteRow(NamedTuple):
    row: Row
    first_offset: int
    end_offset: int


def read_rows(
    db: sqlite3.Connection, stream: int, after: Place, max_bytes: int, end: int
) -> tuple[list[Rendered], Place]:
    """The bytes of the rows behind a place, and the place behind them; `max_bytes` or a little more.

    Rows with records numbered `end` or later are left out, since they are not published yet. Raises
    OperationFailed(STORAGE) for rows that are not what they were.
    """
    rows = list(_chosen(db, stream, after, max_bytes, end))
    pieces = [_rendered(some) for some in _pieces(rows)]
    return pieces, Place(rows[-1].end_offset, rows[-1].row.last_seq) if rows else after


def _chosen(db: sqlite3.Connection, stream: int, after: Place, max_bytes: int, end: int) -> Iterator[_ByteRow]:
    records = size = 0
    last_seq: int | bytes = -1 if after.last_seq < 0 else to_sql(after.last_seq)
    for last, count, metered, first, end_offset, layout, payload in db.execute(_ROWS, (stream, after.offset, last_seq)):
        row = Row(from_sql(last), count, metered, NO_ID, Layout(layout), payload)
        if row.last_seq >= end:
            break
        yield _ByteRow(row, first, end_offset)
        records += 0 if row.layout.tells_all else count
        size += metered
        if end_offset - after.offset >= max_bytes or records >= MOST_RECORDS or size >= MOST_METERED:
            break


def _pieces(rows: list[_ByteRow]) -> Iterator[list[_ByteRow]]:
    """Adjacent rows of one layout, so many as are worth it: what is joined here is copied once more for the reader."""
    piece: list[_ByteRow] = []
    size = 0
    for row in rows:
        if piece and (size >= PIECE_BYTES or row.row.layout != piece[0].row.layout):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += row.row.metered
    if piece:
        yield piece


def _rendered(rows: list[_ByteRow]) -> Rendered:
    """Adjacent rows of one layout: their payloads joined are a payload, whatever they hold."""
    layout, first_offset = rows[0].row.layout, rows[0].first_offset
    if layout.tells_all:
        payloads = [row.payload for row, _, _ in rows]
        found = Rendered(first_offset, payloads[0] if len(payloads) == 1 else b"".join(payloads), ())
    else:
        found = render(_columns(batch_of_rows([row for row, _, _ in rows])), layout, first_offset)
    if found.end_offset != rows[-1].end_offset:
        raise broken(f"it has {len(found.data)} bytes instead of {rows[-1].end_offset - first_offset}")
    return found


def _columns(batch: RecordBatch) -> Columns:
    """Numbers, bodies and headers of a batch. Headers are metered, so their absence shows in the bodies."""
    assert batch.wire is not None
    try:
        bodies = decode_bodies(batch.wire.data)
    except OperationFailed:
        bodies = []
    if metered_size(bodies, NO_HEADERS) != batch.metered:
        return batch.columns
    return Columns(range(batch.first_seq_num, batch.next_seq_num), (), bodies)
