"""Trims that cut through the records of one ms: what the identifiers of those that are left are counted from.

The server does not tell any more once the first of that ms is gone, and what is only remembered goes with a restart.
So before such a trim it is written down. Trims that this gateway does not see (retention, other clients of the server,
sessions that are passed through) are not: then the first that is left has place 0, where nobody remembers.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.backs.base import Back
from penstock.backs.bytes_on_records.tables import Table
from penstock_codecs.model import StreamRef

__all__ = ["Cut", "Cuts"]

_CUT: Final = struct.Struct(">QQQ")


class Cut(NamedTuple):
    """Of the records stamped `timestamp` the first was number `first`; those before number `kept` were trimmed."""

    timestamp: int
    first: int
    kept: int


class Cuts:
    """The last cut of each stream. `state`: the embedded store; None: nothing is kept. `name`: the back's."""

    def __init__(self, state: Back | None = None, name: str = "") -> None:
        self._table = None if state is None else Table(state, f"#cuts/{name}")

    async def first(self, stream: StreamRef, timestamp: int, found: int) -> int:
        """The number of the first record that was ever stamped so, where the server says that `found` is."""
        if self._table is None or not found:
            return found
        [value] = await self._table.get(_key(stream))
        if value is None:
            return found
        cut = Cut(*_CUT.unpack(value))
        # One that begins before the cut is another stream of the same name.
        return cut.first if cut.timestamp == timestamp and cut.first <= found and cut.kept <= found else found

    async def keep(self, stream: StreamRef, cut: Cut) -> None:
        """Write it down, durably."""
        if self._table is not None:
            await self._table.put((_key(stream), _CUT.pack(*cut)))

    async def forget(self, stream: StreamRef) -> None:
        """The stream was deleted."""
        if self._table is not None:
            await self._table.remove(_key(stream))


def _key(stream: StreamRef) -> bytes:
    return str(stream).encode("utf-8", "surrogateescape")
