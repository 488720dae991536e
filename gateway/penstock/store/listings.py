"""Lists of basins and streams, in the byte order of their names."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Final

from penstock.store.reader import Reader
from penstock_codecs.operations import ListBasins, ListStreams, Page
from penstock_codecs.streams import BasinInfo, StreamInfo

__all__ = ["list_basins", "list_streams"]

_BASINS: Final = """
SELECT name, created_at FROM basins
WHERE deleted_at IS NULL AND name NOT GLOB '_*' AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""
_STREAMS: Final = """
SELECT name, created_at FROM streams
WHERE basin = (SELECT id FROM basins WHERE name = ? AND deleted_at IS NULL)
  AND deleted_at IS NULL AND name >= ? AND name > ? ORDER BY name LIMIT ?
"""


async def list_basins(reader: Reader, operation: ListBasins) -> Page[BasinInfo]:
    """See `ListBasins`. A basin whose name begins with `_` is the gateway's own, and not listed."""
    parameters = (operation.prefix, operation.start_after, operation.limit + 1)
    named = await reader.run(partial(_rows, query=_BASINS, parameters=parameters, prefix=operation.prefix))
    items = [BasinInfo(name=name, created_at=created_at) for name, created_at in named[: operation.limit]]
    return Page(items, len(named) > operation.limit)


async def list_streams(reader: Reader, operation: ListStreams) -> Page[StreamInfo]:
    """See `ListStreams`. An unknown basin has no streams (S2 fact sheet, 1.3)."""
    parameters = (operation.basin, operation.prefix, operation.start_after, operation.limit + 1)
    named = await reader.run(partial(_rows, query=_STREAMS, parameters=parameters, prefix=operation.prefix))
    items = [StreamInfo(name=name, created_at=created_at) for name, created_at in named[: operation.limit]]
    return Page(items, len(named) > operation.limit)


def _rows(db: sqlite3.Connection, query: str, parameters: tuple[str | int, ...], prefix: str) -> list[tuple[str, int]]:
    """Names from the query that begin with `prefix`: as they are ordered, those come first."""
    return [row for row in db.execute(query, parameters) if row[0].startswith(prefix)]
