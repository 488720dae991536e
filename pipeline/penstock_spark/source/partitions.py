"""Ranges of streams as Spark's partitions.

A partition costs Spark some 50 ms, so there are as few as keep all cores busy, and small streams share one. A stream
that can be read in ranges is cut into even ones; in each partition, and from one to the next, a stream's records keep
their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from penstock_spark.clients.base import Mark

__all__ = ["Range", "Ranges", "plan"]

RECORDS_PER_PARTITION: Final = 250_000
"""At least so many records are read by one task, unless an option says else: about a second's work."""
MOST_PARTITIONS: Final = 64
"""From so many partitions on, they become larger instead. Where the plan is made, nobody knows how many cores there
are: this is enough for sixteen, and `min_partitions` asks for more."""


class Range(NamedTuple):
    """The records of a stream from `start` up to `end`, without it."""

    stream: str
    start: Mark
    end: Mark

    @property
    def records(self) -> int:
        """How many records."""
        return max(0, self.end.seq_num - self.start.seq_num)


class Ranges(InputPartition):
    """What one task reads, one range after the other."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def plan(
    ranges: Iterable[Range], *, divisible: bool, records_per_partition: int | None, min_partitions: int
) -> list[Ranges]:
    """Share out ranges. `divisible`: whether sequence numbers are places (`StreamClient.indexed`)."""
    ranges = list(ranges)
    total = sum(one.records for one in ranges)
    size = records_per_partition or max(RECORDS_PER_PARTITION, -(-total // MOST_PARTITIONS))
    size = max(1, min(size, total // min_partitions))
    return [Ranges(tuple(some)) for some in _shared(_pieces(ranges, size if divisible else None), size)]


def _pieces(ranges: Iterable[Range], size: int | None) -> Iterator[Range]:
    for one in ranges:
        count = one.records
        parts = 1 if size is None else max(1, -(-count // size))
        cuts = [one.start, *(Mark(one.start.seq_num + count * part // parts) for part in range(1, parts)), one.end]
        for start, end in pairwise(cuts):
            yield Range(one.stream, start, end)


def _shared(pieces: Iterable[Range], size: int) -> Iterator[list[Range]]:
    """Pieces put together as long as they are not more than `size` records."""
    some: list[Range] = []
    count = 0
    for piece in pieces:
        if some and count + piece.records > size:
            yield some
            some, count = [], 0
        some.append(piece)
        count += piece.records
    if some:
        yield some
