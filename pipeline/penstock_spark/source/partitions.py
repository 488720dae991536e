"""Divide ranges of streams into Spark's partitions.

A partition costs Spark 0.17 s of processor time, so there are as few as keep all cores busy. Small streams share one,
each counted as `STREAM_RECORDS` more than it has, since it is requested by itself. A large stream is cut into even
ranges; within each partition, and from one to the next, a stream's records keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

__all__ = ["Range", "Ranges", "plan_partitions"]

RECORDS_PER_PARTITION: Final = 1_000_000
"""Minimum number of records per task, unless an option sets another: some seconds' work."""
STREAM_RECORDS: Final = 50_000
"""Records that are read in the time that it takes to begin with a stream."""
MOST_PARTITIONS: Final = 64
"""Number of partitions beyond which they become larger instead. The planner does not know the number of cores: this is
enough for sixteen, and `min_partitions` asks for more."""


class Range(NamedTuple):
    """The records of a stream from `start` up to but not including `end`."""

    stream: str
    start: int
    end: int

    @property
    def records(self) -> int:
        """Number of records in the range."""
        return max(0, self.end - self.start)


class Ranges(InputPartition):
    """The ranges that one task reads, one after another."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def plan_partitions(ranges: Iterable[Range], *, records_per_partition: int | None, min_partitions: int) -> list[Ranges]:
    """Divide ranges into partitions."""
    ranges = list(ranges)
    records = sum(stream_range.records for stream_range in ranges)
    extra = 0 if records_per_partition else STREAM_RECORDS
    size = records_per_partition or max(RECORDS_PER_PARTITION, -(-(records + extra * len(ranges)) // MOST_PARTITIONS))
    if min_partitions > 1 and records // min_partitions < size:
        size, extra = max(1, records // min_partitions), 0
    return [Ranges(tuple(some)) for some in _shared(_pieces(ranges, size), size, extra)]


def _pieces(ranges: Iterable[Range], size: int) -> Iterator[Range]:
    for stream_range in ranges:
        count = stream_range.records
        parts = max(1, -(-count // size))
        cuts = [stream_range.start + count * part // parts for part in range(parts)] + [stream_range.end]
        for start, end in pairwise(cuts):
            yield Range(stream_range.stream, start, end)


def _shared(pieces: Iterable[Range], size: int, extra: int) -> Iterator[list[Range]]:
    """Group pieces into lists of at most `size` records, each piece counted as `extra` more."""
    some: list[Range] = []
    count = 0
    for piece in pieces:
        if some and count + piece.records + extra > size:
            yield some
            some, count = [], 0
        some.append(piece)
        count += piece.records + extra
    if some:
        yield some
