"""Ordinals of records in their streams, and digests of whole streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.contents import content_digest
from penstock_spark.jobs.views import identifier, position_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SAMPLE_BYTES", "Extent", "NumberedSide", "digested", "extents", "number_side"]

SAMPLE_BYTES: Final = 64
"""Bytes of a body that are kept, for people."""
_BLOCK: Final = 1024
"""Records whose digests are combined at once; a task holds this many of one stream."""


class Extent(NamedTuple):
    """Properties of one side's stream. `order`: the column that orders its records. `base`: the first sequence number
    if they are dense, so that ordinals are known without sorting; otherwise None."""

    records: int
    order: str
    base: int | None


def digested(records: DataFrame, also: Sequence[str], ignored_headers: Sequence[bytes] = ()) -> DataFrame:
    """Return what is needed to compare records (`records_of`), without whole bodies. `ignored_headers`: names of
    headers to leave out."""
    for name in ignored_headers:
        records = records.withColumn("headers", _without(name))
    return records.select(
        "stream",
        "seq_num",
        identifier().alias("id"),
        "offset",
        "arrival",
        position_text().alias("position"),
        "timestamp",
        content_digest(also).alias("digest"),
        fn.xxhash64("body").alias("body_hash"),
        fn.xxhash64("headers").alias("headers_hash"),
        fn.octet_length("body").cast("bigint").alias("size"),
        fn.substring("body", 1, SAMPLE_BYTES).alias("sample"),
    )


def _without(name: bytes) -> Column:
    """Return the headers without those of this name; most records have no headers at all."""
    kept = fn.filter("headers", lambda header: ~header["name"].eqNullSafe(fn.lit(name)))
    return fn.when(fn.size("headers") > 0, kept).otherwise(fn.col("headers"))


class NumberedSide(NamedTuple):
    """One side: its records with `ordinal`, the place in the stream from 0; the extents of its streams; and for each
    stream the SHA-256 (hex) over the digests of its records in their order."""

    records: DataFrame
    extents: dict[str, Extent]
    digests: dict[str, str]


def extents(table: DataFrame) -> dict[str, Extent]:
    """Return the extent of each stream. Takes one pass; a row per stream comes to the driver. Numbers count as dense if
    there are as many as from the first to the last: `number_side` detects if some are missing and as many are
    doubled."""
    facts = table.groupBy("stream").agg(
        fn.count("*").alias("records"),
        *(fn.count(kind).alias(kind) for kind in ("seq_num", "id", "offset")),
        fn.min("seq_num").alias("first"),
        fn.max("seq_num").alias("last"),
    )
    by_stream = {}
    for row in facts.collect():
        if row.stream is None:
            raise ValueError(f"{row.records} records have no stream, so they cannot be compared")
        order = next((kind for kind in ("seq_num", "id", "offset") if row[kind] == row.records), "arrival")
        dense = order == "seq_num" and row.last - row.first + 1 == row.records
        by_stream[row.stream] = Extent(row.records, order, row.first if dense else None)
    return by_stream


def number_side(table: DataFrame, known: dict[str, Extent]) -> NumberedSide:
    """Number the records. Only streams without dense sequence numbers are sorted. `known`: their `extents`."""
    records = _ordered(table, known)
    digests, doubled = _stream_digests(records)
    if not doubled:
        return NumberedSide(records, known, digests)
    known = {stream: extent._replace(base=None) if stream in doubled else extent for stream, extent in known.items()}
    records = _ordered(table, known)
    return NumberedSide(records, known, _stream_digests(records)[0])


def _ordered(table: DataFrame, extents: dict[str, Extent]) -> DataFrame:
    spark = table.sparkSession
    rows = [(stream, extent.order, extent.base) for stream, extent in extents.items()]
    known = spark.createDataFrame(rows, "stream string, order string, base bigint")
    table = table.join(fn.broadcast(known), "stream")
    dense = table.where("base IS NOT NULL").withColumn("ordinal", fn.col("seq_num") - fn.col("base"))
    if all(extent.base is not None for extent in extents.values()):
        return dense.drop("order", "base")
    keys = [fn.when(fn.col("order") == kind, fn.col(kind)) for kind in ("seq_num", "id", "offset")]
    window = Window.partitionBy("stream").orderBy(*keys, "arrival", "seq_num", "id", "offset", "digest")
    sorted_ones = table.where("base IS NULL").withColumn("ordinal", fn.row_number().over(window).cast("bigint") - 1)
    return dense.unionByName(sorted_ones).drop("order", "base")


def _stream_digests(table: DataFrame) -> tuple[dict[str, str], set[str]]:
    """Return the digests of streams, and the streams in which two records share an ordinal. A row per stream comes to
    the driver. Blocks are digested first, so that no task holds more than a block of a stream's records at once."""
    blocks = table.groupBy("stream", fn.expr(f"ordinal div {_BLOCK}").alias("block")).agg(
        fn.collect_list(fn.struct("ordinal", "digest")).alias("parts")
    )
    blocks = blocks.select(
        "stream",
        "block",
        _together("parts", lambda part: fn.hex(part["digest"])).alias("digest"),
        (fn.size(fn.array_distinct("parts.ordinal")) < fn.size("parts")).alias("doubled"),
    )
    streams = blocks.groupBy("stream").agg(
        fn.collect_list(fn.struct("block", "digest")).alias("parts"), fn.max("doubled").alias("doubled")
    )
    digests = streams.select("stream", _together("parts", lambda part: part["digest"]).alias("digest"), "doubled")
    rows = digests.collect()
    return {row.stream: row.digest for row in rows}, {row.stream for row in rows if row.doubled}


def _together(name: str, text: Callable[[Column], Column]) -> Column:
    """Return a digest over all parts in order; they have the same length, so no separator is needed."""
    return fn.sha2(fn.array_join(fn.transform(fn.array_sort(name), text), ""), 256)
