"""Gather the rows of one stream to appends of the largest size that a server accepts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.records import Headers
from penstock_spark.sink.digest import RowDigest, RowPiece
from penstock_spark.sink.failures import SinkFailed

__all__ = ["AppendLimits", "AppendRows", "Cutter"]


class AppendLimits(NamedTuple):
    """Limits of one append: records, and metered bytes (S2 fact sheet, 5.1), which bound a single record, too."""

    most_records: int = MAX_BATCH_RECORDS
    most_bytes: int = MAX_BATCH_BYTES


@dataclass(slots=True)
class AppendRows:
    """The rows of one append: `first` is the number of the first one, `before` the digest of all rows before it."""

    first: int
    rows: RowPiece
    before: RowDigest

    @property
    def end(self) -> int:
        """The number after that of the last row."""
        return self.first + len(self.rows.bodies)

    def digest_at(self, end: int) -> str:
        """Return the digest of all rows up to `end`, which is in this append or at its end."""
        digest = self.before.copy()
        digest.add(self.rows if end == self.end else self.rows.part(0, end - self.first))
        return digest.text()

    def after(self, row: int) -> AppendRows:
        """Return an append of only the rows from `row` on."""
        before = self.before.copy()
        before.add(self.rows.part(0, row - self.first))
        return AppendRows(row, self.rows.part(row - self.first, len(self.rows.bodies)), before)


class Cutter:
    """Gathers rows to appends, each as large as the limits allow."""

    def __init__(self, stream: str, limits: AppendLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._rows = RowPiece([], {}, None)
        self._cut = 0  # number of the first row that is held
        self.digest = RowDigest()
        """Digest of all rows in returned appends."""
        self.waiting = 0
        """Metered bytes of the rows that are held."""

    def add(self, piece: RowPiece) -> list[AppendRows]:
        """Add rows; return the appends that are full. Raises SinkFailed if a row is too large for any."""
        sizes = _sizes(piece.bodies, piece.headers)
        if max(sizes, default=0) > self._limits.most_bytes:
            self._refuse(sizes)
        ends = list(accumulate(sizes))
        full: list[AppendRows] = []
        start, total = 0, len(sizes)
        while True:
            base = ends[start - 1] if start else 0
            fitting = bisect_right(ends, base + self._limits.most_bytes - self.waiting, lo=start)
            stop = min(fitting, start + self._limits.most_records - len(self._rows.bodies))
            if stop > start:
                self._wait(piece if stop - start == total else piece.part(start, stop))
                self.waiting += ends[stop - 1] - base
            if stop >= total:
                return full
            full += self.rest()
            start = stop

    def rest(self) -> list[AppendRows]:
        """Return the rows that are held, as one append or none."""
        if not self._rows.bodies:
            return []
        cut = AppendRows(self._cut, self._rows, self.digest)
        self.digest = self.digest.copy()
        self.digest.add(self._rows)
        self._rows, self.waiting = RowPiece([], {}, None), 0
        self._cut = cut.end
        return [cut]

    def _wait(self, piece: RowPiece) -> None:
        have = self._rows
        if not have.bodies:
            self._rows = piece
            return
        moved = {len(have.bodies) + index: headers for index, headers in piece.headers.items()}
        times = None if have.timestamps is None or piece.timestamps is None else have.timestamps + piece.timestamps
        self._rows = RowPiece(have.bodies + piece.bodies, {**have.headers, **moved}, times)

    def _refuse(self, sizes: list[int]) -> None:
        index = next(index for index, size in enumerate(sizes) if size > self._limits.most_bytes)
        row = self._cut + len(self._rows.bodies) + index
        raise SinkFailed(
            f"{self._stream}: row {row} of this task is {sizes[index]} bytes (metered, with its headers); "
            f"at most {self._limits.most_bytes} can be appended"
        )


def _sizes(bodies: list[bytes], headers: Mapping[int, Headers]) -> list[int]:
    sizes = [8 + len(body) for body in bodies]
    for index, some in headers.items():
        sizes[index] += sum(2 + len(name) + len(value) for name, value in some)
    return sizes
