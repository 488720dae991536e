"""Interpretation of the gaps between two sequences: records lost, doubled, reordered, altered or added."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

import msgspec

from penstock.tools.comparing.alignment import Gap, Same
from penstock.tools.comparing.record_table import ComparedStream, RecordRow, RecordTable

__all__ = ["MOST_REMEMBERED", "DiffKind", "RecordDifference", "differences"]

MOST_REMEMBERED: Final = 100_000
"""Records without a partner that are remembered to find those that only moved. Above it a record that moved is reported
as lost and added. About 50 MiB."""


class DiffKind(Enum):
    """The kind of a difference."""

    LOST = "lost"
    """Only A has the record."""
    DOUBLED = "doubled"
    """B has the record more often than A."""
    REORDERED = "reordered"
    """Both have the record, in different places."""
    ALTERED = "altered"
    """B has another record in its place."""
    ADDED = "added"
    """Only B has the record."""
    TRIMMED = "trimmed"
    """Only A has the record, and B's stream begins behind it: B had as many records that it no longer keeps."""


class RecordDifference(msgspec.Struct, frozen=True):
    """One difference; `a` or `b` is None if that side has no such record. `fields`: those that differ in an altered
    record."""

    kind: DiffKind
    a: RecordRow | None
    b: RecordRow | None
    fields: tuple[str, ...] = ()


def differences(
    aligned: Iterable[Same | Gap], table: RecordTable, a: ComparedStream, b: ComparedStream
) -> Iterator[RecordDifference]:
    """Yield the differences of aligned sequences. Records that moved are known only at the end, so the order is not
    that of the streams; sort by `RecordRow.ordinal`."""
    alone = _Alone()
    for aligned_part in aligned:
        if isinstance(aligned_part, Gap):
            yield from alone.add(aligned_part, b.first)
    yield from alone.moved()
    yield from _told(alone, table, a, b)


class _Alone:
    """Records without a partner, by gap."""

    def __init__(self) -> None:
        self._gaps: list[Gap] = []
        self._size = 0

    def add(self, gap: Gap, first: int) -> Iterator[RecordDifference]:
        if self._size + len(gap.a) + len(gap.b) > MOST_REMEMBERED:
            yield from _trimmed(gap, first)
            yield from _altered(gap)
            yield from (RecordDifference(DiffKind.LOST, row, None) for row in gap.a)
            yield from (RecordDifference(DiffKind.ADDED, None, row) for row in gap.b)
            return
        self._size += len(gap.a) + len(gap.b)
        self._gaps.append(gap)

    def moved(self) -> Iterator[RecordDifference]:
        """Remove and yield records that both sides have, in different places."""
        elsewhere: dict[bytes, list[RecordRow]] = {}
        for gap in reversed(self._gaps):
            for row in reversed(gap.b):
                elsewhere.setdefault(row.digest, []).append(row)
        gone: set[int] = set()
        for gap in self._gaps:
            for row in gap.a:
                if partners := elsewhere.get(row.digest):
                    partner = partners.pop()
                    gone |= {row.arrival, partner.arrival}
                    yield RecordDifference(DiffKind.REORDERED, row, partner)
        for gap in self._gaps:
            gap.a = [row for row in gap.a if row.arrival not in gone]
            gap.b = [row for row in gap.b if row.arrival not in gone]

    def gaps(self) -> Iterator[Gap]:
        """Yield the gaps without the records that moved."""
        yield from self._gaps


def _told(alone: _Alone, table: RecordTable, a: ComparedStream, b: ComparedStream) -> Iterator[RecordDifference]:
    told: Counter[bytes] = Counter()
    for gap in alone.gaps():
        # Find copies first: they must not pair with lost records as alterations.
        copies: list[RecordRow] = []
        others: list[RecordRow] = []
        for row in gap.b:
            (copies if _is_copy(row, table, a, b, told) else others).append(row)
        gap.b = others
        yield from (RecordDifference(DiffKind.DOUBLED, None, row) for row in copies)
        yield from _trimmed(gap, b.first)
        yield from _altered(gap)
        yield from (RecordDifference(DiffKind.LOST, row, None) for row in gap.a)
        yield from (RecordDifference(DiffKind.ADDED, None, row) for row in gap.b)


def _trimmed(gap: Gap, first: int) -> Iterator[RecordDifference]:
    """Yield the records of A at its beginning for which B has none, up to B's first number, and remove them."""
    count = 0
    while count < len(gap.a) - len(gap.b) and gap.a[count].ordinal == count < first:
        count += 1
    yield from (RecordDifference(DiffKind.TRIMMED, row, None) for row in gap.a[:count])
    del gap.a[:count]


def _is_copy(row: RecordRow, table: RecordTable, a: ComparedStream, b: ComparedStream, told: Counter[bytes]) -> bool:
    in_a = table.how_often(a, row.digest)
    surplus = table.how_often(b, row.digest) - in_a
    if in_a and told[row.digest] < surplus:
        told[row.digest] += 1
        return True
    return False


def _rest(first: RecordRow, second: RecordRow) -> tuple[str, ...]:
    """Return the optional fields that differ."""
    ours, theirs = (
        literal_eval(row.digest[len(row.body) + len(row.headers) :].decode() or "[]") for row in (first, second)
    )
    return tuple(name for (name, value_a), (_, value_b) in zip(ours, theirs, strict=True) if value_a != value_b)


def _altered(gap: Gap) -> Iterator[RecordDifference]:
    """Yield pairs of records in each other's place as alterations, and remove them from the gap."""
    for first, second in zip(gap.a, gap.b, strict=False):
        parts = {"body": first.body == second.body, "headers": first.headers == second.headers}
        fields = tuple(name for name, same in parts.items() if not same) + _rest(first, second)
        yield RecordDifference(DiffKind.ALTERED, first, second, fields)
    paired = min(len(gap.a), len(gap.b))
    del gap.a[:paired], gap.b[:paired]
