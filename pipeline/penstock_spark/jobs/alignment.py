"""Align two sequences incrementally, in bounded memory, to find the records without a partner.

Where the two differ, the fewest records to skip until they agree again are searched for (Myers' algorithm); if those
are too many, the nearest place from which both continue alike. So one lost record is one difference, and not one for
each record after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["SURE", "WINDOW", "Aligner", "Alone"]

WINDOW: Final = 250_000
"""Maximum number of records of each side to look ahead. Twice as many are held, about 200 bytes each."""
SURE: Final = 16
"""Consecutive records that must agree for the two to be in step again: among small records many are alike by chance."""
_NEAR: Final = 256
_MOST_EDITS: Final = 48
_FARTHER: Final = (2_048, 32_768)

Row = TypeVar("Row")
Pairs = list[tuple[int, int]]


class Alone(NamedTuple, Generic[Row]):
    """A record that only one side has in this place. Records with the same `gap` are not separated by an agreement."""

    right: bool
    row: Row
    gap: int


class Aligner(Generic[Row]):
    """Takes both sequences piece by piece with `put`; `take` returns the results that are certain by then."""

    def __init__(self, window: int = WINDOW) -> None:
        self._held: tuple[deque[tuple[bytes, Row]], deque[tuple[bytes, Row]]] = (deque(), deque())
        self._sizes = [*(size for size in (_NEAR, *_FARTHER) if size < window), window]
        self._step = 0
        self._gap = 0

    def put(self, right: bool, digest: bytes, row: Row) -> None:
        """Add the next record of one side."""
        self._held[right].append((digest, row))

    def take(self, *, final: bool = False) -> Iterator[Alone[Row]]:
        """Yield the records that are known to have no partner. `final`: no more come, so that nothing is held back."""
        left, right = self._held
        while left and right:
            if left[0][0] == right[0][0]:
                self._level()
                continue
            size, most = self._sizes[self._step], 2 * self._sizes[-1]
            if not final and min(len(left), len(right)) < size and max(len(left), len(right)) < most:
                return
            a, b = (list(islice((digest for digest, _ in held), size)) for held in self._held)
            ends = final and size >= max(len(left), len(right))
            pairs = _resynchronize(a, b, near=self._step == 0, ends=ends)
            if pairs is None and self._step + 1 < len(self._sizes) and not ends:
                self._step += 1
                continue
            yield from self._emit(_in_order(a, b) if pairs is None else pairs, None if pairs else (len(a), len(b)))
        for side in (False, True):
            held = self._held[side]
            while held and (final or len(held) > 2 * self._sizes[-1]):
                yield Alone(side, held.popleft()[1], self._gap)

    def _level(self) -> None:
        left, right = self._held
        while left and right and left[0][0] == right[0][0]:
            left.popleft()
            right.popleft()
        self._gap += 1
        self._step = 0

    def _emit(self, pairs: Pairs, upto: tuple[int, int] | None) -> Iterator[Alone[Row]]:
        """Yield the records before and between the pairs, and after them up to the places `upto`."""
        done = [0, 0]
        for pair in pairs:
            if pair != tuple(done):
                yield from self._drop(pair[0] - done[0], pair[1] - done[1])
                self._gap += 1
            self._held[0].popleft()
            self._held[1].popleft()
            done = [pair[0] + 1, pair[1] + 1]
        if pairs:
            self._gap += 1
        if upto is not None:
            yield from self._drop(upto[0] - done[0], upto[1] - done[1])
        self._step = 0

    def _drop(self, left: int, right: int) -> Iterator[Alone[Row]]:
        for side, many in ((False, left), (True, right)):
            for _ in range(many):
                yield Alone(side, self._held[side].popleft()[1], self._gap)


def _resynchronize(a: Sequence[bytes], b: Sequence[bytes], *, near: bool, ends: bool) -> Pairs | None:
    """Return pairs of equal records up to a place from which both continue alike; None if there is no such place."""
    if near or ends:
        pairs = _fewest_edits(a[:_NEAR], b[:_NEAR], ends and max(len(a), len(b)) <= _NEAR)
        if pairs is not None:
            return pairs
    place = _nearest(a, b)
    if place is None:
        return None
    return [*_in_order(a[: place[0]], b[: place[1]]), place]


def _fewest_edits(a: Sequence[bytes], b: Sequence[bytes], ends: bool) -> Pairs | None:
    """Run Myers' algorithm until one path has `SURE` consecutive agreements, or (`ends`) both are at their ends."""
    reached = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(_MOST_EDITS + 1):
        trace.append(dict(reached))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reached.get(k - 1, -1) < reached.get(k + 1, -1))
            x = reached[k + 1] if down else reached[k - 1] + 1
            begun = x
            if x > len(a) or x - k > len(b):
                reached[k] = x
                continue
            while x < len(a) and x - k < len(b) and x - begun < SURE and a[x] == b[x - k]:
                x += 1
            reached[k] = x
            if x - begun == SURE or (ends and x == len(a) and x - k == len(b)):
                return _walked(trace, edits, k, x)
    return None


def _walked(trace: list[dict[int, int]], edits: int, k: int, x: int) -> Pairs:
    """Return the pairs on the path to this place, from its beginning."""
    pairs: Pairs = []
    for turn in range(edits, -1, -1):
        before = trace[turn]
        down = k == -turn or (k != turn and before.get(k - 1, -1) < before.get(k + 1, -1))
        start = before[k + 1] if down else before[k - 1] + 1
        while x > start:
            x -= 1
            pairs.append((x, x - k))
        if turn:
            k, x = (k + 1, start) if down else (k - 1, start - 1)
    return pairs[::-1]


def _nearest(a: Sequence[bytes], b: Sequence[bytes]) -> tuple[int, int] | None:
    """Return the places from which both continue alike for `SURE` records, with the fewest skipped; None if there are
    none."""
    places: dict[int, int] = {}
    for there in range(len(b) - SURE + 1):
        places.setdefault(hash(tuple(b[there : there + SURE])), there)
    best, least = None, len(a) + len(b) + 1
    for at in range(len(a) - SURE + 1):
        if at >= least:
            break
        match = places.get(hash(tuple(a[at : at + SURE])))
        if match is not None and at + match < least and a[at : at + SURE] == b[match : match + SURE]:
            best, least = (at, match), at + match
    return best


def _in_order(a: Sequence[bytes], b: Sequence[bytes]) -> Pairs:
    """Return the longest common subsequence of the records that each side has once."""
    places = _once(b)
    pairs = [(at, places[digest]) for digest, at in _once(a).items() if digest in places]
    ends: list[int] = []  # the least place in `b` at which a run of each length can end,
    last: list[int] = []  # the last pair of that run,
    before: list[int] = []  # and for each pair the one before it in its run
    for number, (_, there) in enumerate(pairs):
        length = bisect_left(ends, there)
        ends[length : length + 1] = [there]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    run: Pairs = []
    number = last[-1] if last else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _once(digests: Sequence[bytes]) -> dict[bytes, int]:
    times = Counter(digests)
    return {digest: at for at, digest in enumerate(digests) if times[digest] == 1}
