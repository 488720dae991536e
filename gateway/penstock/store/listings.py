"""Listing basins and streams, in the byte order of their names."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.model.operations import ListBasins, ListStreams, Page
from penstock.model.streams import BasinInfo, Cipher, StreamInfo
from penstock.store.reader import ReaderThreads
from penstock.store.registry import unknown_basin
from penstock.store.schema import FILE_NAME, connect_reader

__all__ = ["has_basin", "list_basins", "list_streams", "undivided_with_partitions"]

_BASINS: Final = """
SELECT name, created_at FROM basins
WHERE deleted_at IS NULL AND name NOT GLOB '_*' AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""
_BASIN: Final = "SELECT id FROM basins WHERE name = ? AND deleted_at IS NULL"
_STREAMS: Final = """
SELECT name, created_at, cipher FROM streams
WHERE basin = ? AND deleted_at IS NULL AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""


_UNDIVIDED = """
SELECT name FROM streams AS undivided
WHERE basin = ? AND deleted_at IS NULL AND instr(name, '/') = 0 AND EXISTS (
  SELECT 1 FROM streams
  WHERE basin = undivided.basin AND deleted_at IS NULL
    AND name >= undivided.name || '/0' AND name < undivided.name || '/:'
    AND substr(name, length(undivided.name) + 2) NOT GLOB '*[^0-9]*'
)
ORDER BY name LIMIT ?
"""


def has_basin(directory: Path, basin: str) -> bool:
    """Return whether the store in a directory has a basin. Another process may use the store. Raises sqlite3.Error."""
    if not (directory / FILE_NAME).exists():
        return False
    with closing(connect_reader(directory)) as db:
        return db.execute(_BASIN, (basin,)).fetchone() is not None


def undivided_with_partitions(directory: Path, basin: str, limit: int) -> list[str]:
    """Return the first streams of a basin that exist beside partitions of their name, which only older gateways
    created. Another process may use the store. Raises sqlite3.Error, OSError."""
    with closing(connect_reader(directory)) as db:
        row = db.execute(_BASIN, (basin,)).fetchone()
        return [] if row is None else [name for (name,) in db.execute(_UNDIVIDED, (row[0], limit))]


async def list_basins(reader: ReaderThreads, operation: ListBasins) -> Page[BasinInfo]:
    """Carry out `ListBasins`. Basins whose names begin with `_` are the gateway's own, and not listed."""
    parameters = (operation.prefix, operation.start_after, operation.limit + 1)
    named = await reader.run(partial(_rows, query=_BASINS, parameters=parameters, prefix=operation.prefix))
    items = [BasinInfo(name=name, created_at=created_at) for name, created_at in named[: operation.limit]]
    return Page(items, len(named) > operation.limit)


async def list_streams(reader: ReaderThreads, operation: ListStreams) -> Page[StreamInfo]:
    """Carry out `ListStreams`. Raises BASIN_NOT_FOUND."""
    named = await reader.run(partial(_streams, operation=operation))
    items = [
        StreamInfo(name=name, created_at=created_at, cipher=Cipher(cipher) if cipher else None)
        for name, created_at, cipher in named[: operation.limit]
    ]
    return Page(items, len(named) > operation.limit)


def _streams(db: sqlite3.Connection, operation: ListStreams) -> list[tuple[Any, ...]]:
    basin = db.execute(_BASIN, (operation.basin,)).fetchone()
    if basin is None:
        raise unknown_basin(operation.basin)
    parameters = (basin[0], operation.prefix, operation.start_after, operation.limit + 1)
    return _rows(db, _STREAMS, parameters, operation.prefix)


def _rows(db: sqlite3.Connection, query: str, parameters: tuple[str | int, ...], prefix: str) -> list[tuple[Any, ...]]:
    """Return the rows of the query whose names begin with `prefix`; the query starts at the first possible one."""
    return [row for row in db.execute(query, parameters) if row[0].startswith(prefix)]
