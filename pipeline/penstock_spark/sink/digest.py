"""Rows of one stream, and a digest of all of them so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from typing import Final

from penstock.model.records import Headers

__all__ = ["RowDigest", "RowPiece"]

_BYTES: Final = 12
"""Length of a digest in bytes. It protects from accidents, not from deliberate collisions."""


@dataclass(slots=True)
class RowPiece:
    """Consecutive rows of one stream, column by column. `headers` has entries only for rows that have any; `timestamps`
    is None if the frame has no such column."""

    bodies: list[bytes]
    headers: Mapping[int, Headers] = field(default_factory=dict)
    timestamps: list[int | None] | None = None

    def part(self, start: int, stop: int) -> RowPiece:
        """Return the rows from index `start` up to `stop`."""
        some = self.headers
        headers = {index - start: some[index] for index in some if start <= index < stop} if some else {}
        timestamps = None if self.timestamps is None else self.timestamps[start:stop]
        return RowPiece(self.bodies[start:stop], headers, timestamps)


class RowDigest:
    """A digest of added rows, which does not depend on how they were divided into pieces. Each column has a digest of
    its own, so that a piece costs a few calls, whatever the number of its rows."""

    __slots__ = ("_bodies", "_headers", "_others", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._bodies = blake2b(digest_size=_BYTES)
        self._headers = blake2b(digest_size=_BYTES)
        self._others = (blake2b(digest_size=_BYTES), blake2b(digest_size=_BYTES))

    def copy(self) -> RowDigest:
        """Return an independent copy."""
        other = RowDigest()
        other.rows = self.rows
        other._bodies, other._headers = self._bodies.copy(), self._headers.copy()
        other._others = (self._others[0].copy(), self._others[1].copy())
        return other

    def add(self, piece: RowPiece) -> None:
        """Add the rows of a piece."""
        sizes, times = self._others
        self._bodies.update(b"".join(piece.bodies))
        sizes.update(_numbers(list(map(len, piece.bodies))))
        if piece.timestamps is not None:
            times.update(_numbers([-1 if timestamp is None else timestamp for timestamp in piece.timestamps]))
        for index in sorted(piece.headers):
            record_headers = piece.headers[index]
            lengths = [length for name, value in record_headers for length in (len(name), len(value))]
            self._headers.update(_numbers([self.rows + index, len(record_headers), *lengths]))
            for name, value in record_headers:
                self._headers.update(name + value)
        self.rows += len(piece.bodies)

    def text(self) -> str:
        """Return the digest of the rows so far."""
        whole = blake2b(digest_size=_BYTES)
        for part in (self._bodies, *self._others, self._headers):
            whole.update(part.digest())
        return whole.hexdigest()


def _numbers(numbers: Sequence[int]) -> bytes:
    return pack(f"<{len(numbers)}q", *numbers)
