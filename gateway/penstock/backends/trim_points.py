"""Trims that cut through the records of one ms, stored so that the identifiers of the remaining records stay the same.

Identifiers count from the first record of a ms. The server cannot say which that was once it is trimmed, and the
gateway's memory does not survive a restart; so the trim is stored before it is made. Trims that this gateway does not
see (retention, other clients of the server, sessions that are passed through) are not stored: then the first remaining
record has place 0 if its place is no longer in memory.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.core.back import Back
from penstock.model.records import StreamRef
from penstock.tables.byte_table import ByteTable

__all__ = ["TrimPoint", "TrimPoints"]

_CUT: Final = struct.Struct(">QQQ")


class TrimPoint(NamedTuple):
    """A trim within one ms.

    The first record stamped `timestamp` was number `first`; those before number `kept` were trimmed.
    """

    timestamp: int
    first: int
    kept: int


class TrimPoints:
    """Last cut of each stream. `state` keeps them, None: nothing does; `name` is the back's."""

    def __init__(self, state: Back | None = None, name: str = "") -> None:
        self._table = None if state is None else ByteTable(state, f"#cuts/{name}")

    async def first(self, stream: StreamRef, timestamp: int, seq_num: int) -> int:
        """Return the number of the first record ever stamped `timestamp`.

        `seq_num` is the first that the server still has.
        """
        if self._table is None or not seq_num:
            return seq_num
        [value] = await self._table.get(_key(stream))
        if value is None:
            return seq_num
        cut = TrimPoint(*_CUT.unpack(value))
        # A stream whose records begin before the cut is another one of the same name.
        return cut.first if cut.timestamp == timestamp and cut.first <= seq_num and cut.kept <= seq_num else seq_num

    async def keep(self, stream: StreamRef, cut: TrimPoint) -> None:
        """Store a cut durably."""
        if self._table is not None:
            await self._table.put((_key(stream), _CUT.pack(*cut)))

    async def forget(self, stream: StreamRef) -> None:
        """Remove the cut of a deleted stream."""
        if self._table is not None:
            await self._table.remove(_key(stream))


def _key(stream: StreamRef) -> bytes:
    return str(stream).encode("utf-8", "surrogateescape")
