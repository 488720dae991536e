"""Batches of transactions that are not committed yet, in the table of the listener, as they came.

A batch is stored in pieces under the number that it has in its transaction and partition. They are written in order, a
few at a time: a batch whose last piece is missing was not acknowledged. The next attempt gets its number, and may leave
some of its pieces behind its own last one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from penstock.model.limits import KIB, MIB
from penstock.tables.journal import TableJournal
from penstock.tables.struct_table import Prefix, StructTable

__all__ = ["MOST_BATCH", "TransactionBatches"]

MOST_BATCH: Final = 64 * MIB
"""Most bytes of a pending batch once it is decompressed: the most that `max_batch_bytes` allows, which may change."""

_PIECE: Final = 512 * KIB
"""Most bytes of a piece: it is stored as Base64, in a value of at most about 1 MiB."""
_FIRST: Final = ".0000"
"""The end of the name of a first piece."""
_AT_ONCE: Final = 8
"""Pieces that are read at once."""


class _Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Part of a batch. `more`: further parts follow."""

    data: bytes
    more: bool = False


class TransactionBatches:
    """The batches of all transactions of a listener. A transaction is named by its producer's id and its serial."""

    def __init__(self, table: StructTable, journal: TableJournal) -> None:
        self._table = table
        self._journal = journal

    async def add(self, transaction: str, topic: str, partition: int, number: int, batch: bytes) -> None:
        """Store the batch with this number, durably. Raises OperationFailed: LIMIT_EXCEEDED if the table has no room
        for it."""
        prefix = _prefix(transaction, f"{topic}\0{partition}/")
        starts = range(0, len(batch), _PIECE)
        await self._journal.change(
            {
                prefix.key(f"{number:010d}.{start // _PIECE:04d}"): _Piece(
                    batch[start : start + _PIECE], more=start + _PIECE < len(batch)
                )
                for start in starts
            }
        ).durable()

    async def each(self, transaction: str, topic: str, partition: int) -> AsyncGenerator[bytes, None]:
        """Yield the batches of a partition, in order. Raises OperationFailed."""
        prefix = _prefix(transaction, f"{topic}\0{partition}/")
        parts: list[bytes] | None = None
        after, more = "", True
        while more:
            pieces, more = await self._table.page(prefix, after, _AT_ONCE)
            for name, piece in pieces:
                if name.endswith(_FIRST):
                    parts = []
                if parts is None:
                    continue  # left by an attempt that failed
                parts.append(piece.data)
                if not piece.more:
                    yield b"".join(parts)
                    parts = None
            after = pieces[-1][0] if pieces else after

    async def forget(self, transaction: str) -> None:
        """Remove all batches of a transaction. Raises OperationFailed."""
        prefix, more = _prefix(transaction), True
        while more:
            pieces, more = await self._table.page(prefix, count=_AT_ONCE)
            await self._table.discard(*[prefix.key(name) for name, _ in pieces])


def _prefix(transaction: str, place: str = "") -> Prefix[_Piece]:
    return Prefix(f"pending/{transaction}/{place}", _Piece)
