"""Entries of a ledger: one JSON object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

import msgspec

from penstock_spark.sink.failures import SinkFailed

__all__ = [
    "BatchCommitted",
    "LedgerEntry",
    "LedgerOpened",
    "PartitionsStored",
    "RowTally",
    "StreamsTouched",
    "committed",
    "decode_entry",
    "touched",
]

_MOST_PER_ENTRY: Final = 500
"""Maximum number of streams or partitions in one record: with the longest names they fill a third of the largest
record."""

K = TypeVar("K")
V = TypeVar("V")


class RowTally(msgspec.Struct, frozen=True, array_like=True):
    """The number of rows of a partition, and a digest of them and their streams."""

    rows: int
    digest: str


class LedgerEntry(msgspec.Struct, tag_field="is", kw_only=True):
    """A record of a ledger. `query`: the streaming query that the sink belongs to; "" for batch jobs."""

    query: str


class LedgerOpened(LedgerEntry, tag="opened"):
    """The driver of a one-off job created the ledger."""


class StreamsTouched(LedgerEntry, tag="touched"):
    """A partition of a batch is about to append to streams; their current ends."""

    batch: int
    partition: int
    streams: dict[str, int]


class PartitionsStored(LedgerEntry, tag="stored"):
    """The tallies of partitions of a batch; valid once the batch is committed."""

    batch: int
    partitions: dict[int, RowTally]


class BatchCommitted(LedgerEntry, tag="committed"):
    """All rows of a batch are stored."""

    batch: int


_AnyEntry = LedgerOpened | StreamsTouched | PartitionsStored | BatchCommitted
_DECODER: Final[msgspec.json.Decoder[_AnyEntry]] = msgspec.json.Decoder(_AnyEntry)


def decode_entry(body: bytes, where: str) -> LedgerOpened | StreamsTouched | PartitionsStored | BatchCommitted:
    """Decode the body of a record. Raises SinkFailed, naming `where`, for anything but an entry."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise SinkFailed(
            f"{where} is not an entry of a sink's ledger ({wrong}): does another program write to it?"
        ) from None


def touched(query: str, batch: int, partition: int, streams: Mapping[str, int]) -> Iterator[StreamsTouched]:
    """Yield entries for any number of streams."""
    for some in _parts(streams.items()):
        yield StreamsTouched(query=query, batch=batch, partition=partition, streams=some)


def committed(
    query: str, batch: int, partitions: Mapping[int, RowTally]
) -> Iterator[PartitionsStored | BatchCommitted]:
    """Yield entries for any number of partitions, and then the one that commits the batch."""
    for some in _parts(partitions.items()):
        yield PartitionsStored(query=query, batch=batch, partitions=some)
    yield BatchCommitted(query=query, batch=batch)


def _parts(items: Iterable[tuple[K, V]]) -> Iterator[dict[K, V]]:
    rest = iter(items)
    while part := dict(islice(rest, _MOST_PER_ENTRY)):
        yield part
