"""Appends that other gateways may have in flight to a stream, for gateways with the same state.

A gateway that finds records without numbers must not number them before the gateway that appended them: that one knows
their timestamps. So a gateway writes a row to the state before it appends, again after `RENEWED` seconds. As long as a
gateway has read such a row not long ago, it waits for the numbers up to `settle_seconds`.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from penstock.backends.logged_tables import LoggedTables
from penstock.core.back import Back
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock.model.table_operations import TableItem
from penstock.tables.byte_table import ByteTable

__all__ = ["Announcements"]

RENEWED: Final = 2.0
"""Seconds after which a gateway that still appends to a stream writes its row again."""
SWEPT: Final = 60.0
"""Seconds after which a row that was not written again is removed."""


class Announcements:
    """The rows of one back, in the table `#appending/BACK`: a stream, a zero byte and a gateway. `state` has them, if
    it is shared; else there is one gateway, and none is needed."""

    def __init__(self, state: Back, back: str) -> None:
        self._state = state if isinstance(state, LoggedTables) else None
        self._table = ByteTable(state, f"#appending/{back}")
        self._announced: dict[StreamRef, float] = {}  # when this gateway has last written its row
        self._read: dict[TableItem, float] = {}  # when a row of another gateway was first looked at

    async def announce(self, stream: StreamRef) -> None:
        """Let other gateways know of appends that are about to be sent. Raises OperationFailed."""
        if self._state is None:
            return
        now = trio.current_time()
        if now - self._announced.get(stream, -math.inf) >= RENEWED:
            await self._table.put((_prefix(stream) + self._state.gateway.encode(), b""))
            self._announced[stream] = now

    def expected(self, stream: StreamRef, seconds: float) -> bool:
        """Return whether another gateway may have appends in flight that it sent up to `seconds` ago."""
        now, most = trio.current_time(), RENEWED + seconds
        rows = self._rows(_prefix(stream))
        old = 0 if self._state is None else self._state.read_before(most)
        return any(row.version >= old and now - self._read.setdefault(row, now) < most for row in rows)

    def missed(self, stream: StreamRef) -> None:
        """Expect nothing more of other gateways until they announce it again: it did not come."""
        self._read.update(dict.fromkeys(self._rows(_prefix(stream)), -math.inf))

    async def sweep(self) -> None:
        """Remove rows that are not written again, until cancelled."""
        before: frozenset[TableItem] = frozenset()
        while True:
            await trio.sleep(SWEPT)
            rows = frozenset(self._rows(b"", everyone=True))
            try:
                for row in rows & before:
                    await self._table.remove_version(row.key, row.version)
            except OperationFailed:
                continue  # the state is away: try again next time
            before = rows
            now = trio.current_time()
            self._read = {row: seen for row, seen in self._read.items() if row in rows}
            self._announced = {ref: sent for ref, sent in self._announced.items() if now - sent < RENEWED}

    def _rows(self, prefix: bytes, *, everyone: bool = False) -> list[TableItem]:
        """Return the rows of other gateways, or of all, as far as the state was read."""
        if self._state is None:
            return []
        own = b"\0" + self._state.gateway.encode()
        rows = self._state.peek_items(self._table.name, prefix=prefix)
        return [row for row in rows if everyone or not row.key.endswith(own)]


def _prefix(stream: StreamRef) -> bytes:
    return str(stream).encode() + b"\0"
