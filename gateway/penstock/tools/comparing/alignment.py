"""Alignment of two sequences: records that both have, in order, and the gaps where they differ.

Works on streams in bounded memory: where the two differ, the nearest place where they agree again is searched within a
window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from penstock.tools.comparing.record_table import RecordRow

__all__ = ["WINDOW", "Gap", "Same", "align_contents", "align_positions"]

WINDOW: Final = 10_000
"""Records of each side to look ahead: the most that may have moved or been lost together. About 5 MiB."""
_SURE: Final = 3
"""Records in a row that must agree for the two to count as aligned again: one record may equal another by chance."""
_SMALL: Final = (64, 1024)
_CANDIDATES: Final = 8
"""Equal records of the other side that are tried."""
_PENALTY: Final = 16
"""Distance added to an agreement of single records."""


class Same(msgspec.Struct):
    """A record that both sides have at this place."""

    a: RecordRow
    b: RecordRow


class Gap(msgspec.Struct):
    """The records between two agreements that only A has, and those that only B has."""

    a: list[RecordRow] = msgspec.field(default_factory=list)
    b: list[RecordRow] = msgspec.field(default_factory=list)


def align_contents(a: Iterable[RecordRow], b: Iterable[RecordRow], window: int = WINDOW) -> Iterator[Same | Gap]:
    """Align by the contents of records, whatever their positions."""
    left, right = _Ahead(a), _Ahead(b)
    gap = Gap()
    while left.fill(1) and right.fill(1):
        if left.rows[0].digest == right.rows[0].digest:
            yield from _refined(gap)
            gap = Gap()
            yield Same(left.rows.popleft(), right.rows.popleft())
            continue
        skip_a, skip_b = _next_agreement(left, right, window)
        gap.a += (left.rows.popleft() for _ in range(skip_a))
        gap.b += (right.rows.popleft() for _ in range(skip_b))
        if len(gap.a) + len(gap.b) > 2 * window:
            yield from _refined(gap)
            gap = Gap()
    yield from _rest(gap, left, right, window)


def _rest(gap: Gap, left: _Ahead, right: _Ahead, window: int) -> Iterator[Same | Gap]:
    """Yield the rest, when one side has come to its end."""
    while left.fill(window) or right.fill(window):
        gap.a += left.rows
        gap.b += right.rows
        left.rows.clear()
        right.rows.clear()
        yield from _refined(gap)
        gap = Gap()
    yield from _refined(gap)


def _refined(gap: Gap) -> Iterator[Same | Gap]:
    """Split a gap at the records that both sides of it have in the same order: the longest run of records that occur
    once on each side."""
    places = _once(gap.b)
    pairs = [(at, places[digest]) for digest, at in _once(gap.a).items() if digest in places]
    done_a = done_b = 0
    for at, there in _rising(pairs):
        if at > done_a or there > done_b:
            yield Gap(gap.a[done_a:at], gap.b[done_b:there])
        yield Same(gap.a[at], gap.b[there])
        done_a, done_b = at + 1, there + 1
    if len(gap.a) > done_a or len(gap.b) > done_b:
        yield Gap(gap.a[done_a:], gap.b[done_b:])


def _once(rows: list[RecordRow]) -> dict[bytes, int]:
    """Return the places of records that occur once, in order."""
    times = Counter(row.digest for row in rows)
    return {row.digest: at for at, row in enumerate(rows) if times[row.digest] == 1}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of the pairs, sorted by their first, that also rises in the second."""
    ends: list[int] = []  # the least second value with which a run of each length can end,
    last: list[int] = []  # the pair with that value,
    before: list[int] = []  # and for each pair its predecessor in the run
    for number, (_, there) in enumerate(pairs):
        length = bisect_left(ends, there)
        ends[length : length + 1] = [there]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    run: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def align_positions(a: Iterable[RecordRow], b: Iterable[RecordRow], *, counted: bool = False) -> Iterator[Same | Gap]:
    """Align by position, or with `counted` by place in the sequence. A position that only one side has is a gap, and so
    is one with different records."""
    left, right = _Ahead(a), _Ahead(b)
    while left.fill(1) and right.fill(1):
        first, second = left.rows[0], right.rows[0]
        at, there = (first.position, first.again), (second.position, second.again)
        if counted:
            at = there
        if at < there:
            yield Gap([left.rows.popleft()])
        elif there < at:
            yield Gap([], [right.rows.popleft()])
        else:
            pair = left.rows.popleft(), right.rows.popleft()
            yield Same(*pair) if first.digest == second.digest else Gap([pair[0]], [pair[1]])
    yield from _rest(Gap(), left, right, WINDOW)


class _Ahead:
    """The next rows of one side."""

    def __init__(self, rows: Iterable[RecordRow]) -> None:
        self._more = iter(rows)
        self.rows: deque[RecordRow] = deque()

    def fill(self, size: int) -> bool:
        """Buffer `size` rows, if there are as many. Return whether there are any."""
        while len(self.rows) < size and (row := next(self._more, None)) is not None:
            self.rows.append(row)
        return bool(self.rows)


def _next_agreement(left: _Ahead, right: _Ahead, window: int) -> tuple[int, int]:
    """Return how many rows of each side to skip until they agree.

    Small windows are tried first, as most differences are of a few records: searching the whole window for each would
    cost 10 ms.
    """
    for size in (*(size for size in _SMALL if size < window), window):
        left.fill(size)
        right.fill(size)
        skip, sure = _nearest(list(islice(left.rows, size)), list(islice(right.rows, size)))
        if sure:
            break
    return skip


def _nearest(a: list[RecordRow], b: list[RecordRow]) -> tuple[tuple[int, int], bool]:
    """Return the smallest skip after which the two agree, everything if they never do, and whether the agreement is
    certain."""
    places: dict[bytes, list[int]] = {}
    for at, row in enumerate(b):
        places.setdefault(row.digest, []).append(at)
    best, sure = (len(a), len(b)), False
    least = sum(best) + _PENALTY
    for at, row in enumerate(a):
        if at >= least:
            break
        for there in places.get(row.digest, ())[:_CANDIDATES]:
            here_sure = _sure(a, at, b, there)
            cost = at + there + (0 if here_sure else _PENALTY)
            if cost < least:
                best, least, sure = (at, there), cost, here_sure
    return best, sure


def _sure(a: list[RecordRow], at: int, b: list[RecordRow], there: int) -> bool:
    """Return whether the two agree for _SURE records from there on, or to their ends."""
    ahead = zip(a[at : at + _SURE], b[there : there + _SURE], strict=False)
    return all(first.digest == second.digest for first, second in ahead)
