"""What stands in a ledger: one JSON object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

import msgspec

from penstock_spark.sink.failures import SinkFailed

__all__ = ["Committed", "Entry", "Opened", "Stored", "Tally", "Touched", "committed", "decode_entry", "touched"]

_MOST_PER_ENTRY: Final = 500
"""Streams or partitions in one record: with the longest names that is a third of what a record may be."""

K = TypeVar("K")
V = TypeVar("V")


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """How many rows a partition had, of how many streams, and their digest."""

    rows: int
    digest: str


class Entry(msgspec.Struct, tag_field="is", kw_only=True):
    """Any record of a ledger. `query`: the streaming query that the sink belongs to; "" for batch jobs."""

    query: str


class Opened(Entry, tag="opened"):
    """The driver of a one-off job made the ledger."""


class Touched(Entry, tag="touched"):
    """A partition of a batch is about to append to streams, which end there now."""

    batch: int
    partition: int
    streams: dict[str, int]


class Stored(Entry, tag="stored"):
    """What partitions of a batch had; counts once the batch is committed."""

    batch: int
    partitions: dict[int, Tally]


class Committed(Entry, tag="committed"):
    """All rows of a batch are stored."""

    batch: int


_AnyEntry = Opened | Touched | Stored | Committed
_DECODER: Final[msgspec.json.Decoder[_AnyEntry]] = msgspec.json.Decoder(_AnyEntry)


def decode_entry(body: bytes, where: str) -> Opened | Touched | Stored | Committed:
    """An entry from a record's body. Raises SinkFailed, naming `where`, for anything else."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise SinkFailed(f"{where} is no entry of a sink's ledger ({wrong}): who else writes there?") from None


def touched(query: str, batch: int, partition: int, streams: Mapping[str, int]) -> Iterator[Touched]:
    """Entries for any number of streams."""
    for some in _parts(streams.items()):
        yield Touched(query=query, batch=batch, partition=partition, streams=some)


def committed(query: str, batch: int, partitions: Mapping[int, Tally]) -> Iterator[Stored | Committed]:
    """Entries for any number of partitions, and that the batch is committed."""
    for some in _parts(partitions.items()):
        yield Stored(query=query, batch=batch, partitions=some)
    yield Committed(query=query, batch=batch)


def _parts(items: Iterable[tuple[K, V]]) -> Iterator[dict[K, V]]:
    rest = iter(items)
    while part := dict(islice(rest, _MOST_PER_ENTRY)):
        yield part
