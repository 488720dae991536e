"""Where each record stands in its stream, and a stream's records as one digest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.contents import content_digest
from penstock_spark.jobs.views import identifier, position_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SAMPLE_BYTES", "Extent", "digested", "extents", "ordered", "stream_digests"]

SAMPLE_BYTES: Final = 64
"""So much of a body is kept, for people."""
_BLOCK: Final = 1024
"""Records whose digests are put together at once; a task holds so many of one stream."""


class Extent(NamedTuple):
    """What is known of one side's stream. `order`: what its records are ordered by; `base`: the first sequence number
    where these have no holes, so that a record's place is known without sorting; else None."""

    records: int
    order: str
    base: int | None


def digested(records: DataFrame, also: Sequence[str]) -> DataFrame:
    """What of the records (`records_of`) is needed to compare them, without whole bodies."""
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


def extents(table: DataFrame) -> dict[str, Extent]:
    """Of each stream. One pass; a row for each stream comes to the driver."""
    facts = table.groupBy("stream").agg(
        fn.count("*").alias("records"),
        *(fn.count(kind).alias(kind) for kind in ("seq_num", "id", "offset")),
        fn.min("seq_num").alias("first"),
        fn.max("seq_num").alias("last"),
    )
    found = {}
    for row in facts.collect():
        order = next((kind for kind in ("seq_num", "id", "offset") if row[kind] == row.records), "arrival")
        dense = order == "seq_num" and row.last - row.first + 1 == row.records
        found[row.stream] = Extent(row.records, order, row.first if dense else None)
    return found


def ordered(table: DataFrame, extents: dict[str, Extent]) -> DataFrame:
    """With `ordinal`, the place in the stream from 0. Only streams without dense numbers are sorted for it."""
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


def stream_digests(table: DataFrame) -> dict[str, str]:
    """SHA-256 (hex) over the digests of each stream's records in their order. A row for each stream comes to the
    driver. First blocks, so that no task has more than these of a stream at once."""
    blocks = table.groupBy("stream", fn.expr(f"ordinal div {_BLOCK}").alias("block")).agg(
        fn.collect_list(fn.struct("ordinal", "digest")).alias("parts")
    )
    blocks = blocks.select("stream", "block", _together("parts", lambda part: fn.hex(part["digest"])).alias("digest"))
    streams = blocks.groupBy("stream").agg(fn.collect_list(fn.struct("block", "digest")).alias("parts"))
    found = streams.select("stream", _together("parts", lambda part: part["digest"]).alias("digest"))
    return {row.stream: row.digest for row in found.collect()}


def _together(name: str, text: Callable[[Column], Column]) -> Column:
    """All of them have the same length, so that nothing need stand between."""
    return fn.sha2(fn.array_join(fn.transform(fn.array_sort(name), text), ""), 256)
