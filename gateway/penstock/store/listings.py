"""Listing basins and streams, in the byte order of their names."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any, Final

from penstock.store.reader import ReaderThreads
from penstock.store.registry import unknown_basin
from penstock_codecs.operations import ListBasins, ListStreams, Page
from penstock_codecs.streams import BasinInfo, Cipher, StreamInfo

__all__ = ["list_basins", "list_streams"]

_BASINS: Final = """
SELECT name, created_at FROM basins
WHERE deleted_at IS NULL AND name NOT GLOB '_*' AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""
_BASIN: Final = "SELECT id FROM basins WHERE name = ? AND deleted_at IS NULL"
_STREAMS: Final = """
SELECT name, created_at, cipher FROM streams
WHERE basin = ? AND deleted_at IS NULL AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""


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
