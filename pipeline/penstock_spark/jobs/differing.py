"""Classify records without a partner: lost, added, doubled, reordered, altered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.alignment import Aligner, Alone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["alone_by_content", "alone_by_position", "differences_of"]

_EMITTED: Final = 4_096
"""Rows per batch returned to Spark."""
_SHOWN: Final = ("ordinal", "seq_num", "position", "timestamp", "digest", "size", "sample")
_NEEDED: Final = (*_SHOWN, "body_hash", "headers_hash")
_GAP: Final = pa.field("gap", pa.int64())

Place = tuple[pa.RecordBatch, int]


def alone_by_content(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the records of both sides without a partner, in one table with `right` (boolean) and `gap`.

    Both tables have `total`, the number of records of a stream, so that the two are read in step even if one is much
    shorter. Each stream is one task, which reads it sorted and holds a window of it.
    """
    columns = ("stream", *_NEEDED)
    both = [
        side.select(*columns, fn.lit(is_right).alias("right"), (fn.col("ordinal") / fn.col("total")).alias("at"))
        for is_right, side in ((False, left), (True, right))
    ]
    table = both[0].unionByName(both[1])
    table = table.repartition("stream").sortWithinPartitions("stream", "at", "right", "ordinal", "digest")
    fields = ", ".join(f"`{name}` {kind}" for name, kind in table.dtypes)
    return table.mapInArrow(_aligned, f"{fields}, gap bigint").drop("at")


def _aligned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records without a partner. Runs in a task, on rows sorted by stream."""
    aligner: Aligner[Place] = Aligner()
    current: str | None = None
    for batch in batches:
        alone: list[Alone[Place]] = []
        streams, sides, digests = (batch.column(name).to_pylist() for name in ("stream", "right", "digest"))
        for at, (stream, right, digest) in enumerate(zip(streams, sides, digests, strict=True)):
            if stream != current:
                alone += aligner.take(final=True)
                aligner, current = Aligner(), stream
            aligner.put(right, digest, (batch, at))
        alone += aligner.take()
        yield from _batches(alone)
    yield from _batches(list(aligner.take(final=True)))


def _batches(alone: Sequence[Alone[Place]]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(alone), _EMITTED):
        places: dict[int, tuple[pa.RecordBatch, list[int], list[int]]] = {}
        for alone_row in alone[start : start + _EMITTED]:
            batch, at = alone_row.row
            _, rows, gaps = places.setdefault(id(batch), (batch, [], []))
            rows.append(at)
            gaps.append(alone_row.gap)
        for batch, rows, gaps in places.values():
            taken = batch.take(pa.array(rows))
            yield pa.RecordBatch.from_arrays(
                [*taken.columns, pa.array(gaps, _GAP.type)], schema=batch.schema.append(_GAP)
            )


def alone_by_position(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the records without an equal one at the same sequence number, as `alone_by_content`."""
    key = ["stream", "seq_num", "again", "digest"]
    again = fn.row_number().over(Window.partitionBy("stream", "seq_num").orderBy("ordinal", "digest"))
    first, second = (side.select("stream", *_NEEDED).withColumn("again", again) for side in (left, right))
    alone = [
        table.join(other_table.select(*key), key, "left_anti").withColumn("right", fn.lit(is_right))
        for is_right, table, other_table in ((False, first, second), (True, second, first))
    ]
    return alone[0].unionByName(alone[1]).withColumn("gap", fn.col("seq_num")).drop("again")


def differences_of(alone: DataFrame, left: DataFrame, *, also: Sequence[str]) -> DataFrame:
    """Return the records without a partner as differences, with the columns of `DIFFERENCES`.

    Records without a partner on both sides were reordered. Of the others, those of the right that equal a record of the
    left are doubled; the rest in the same gap replace each other. `left`: all records of the left.
    """
    record = fn.struct(*_NEEDED, "gap")
    sides = [
        fn.max(fn.when(fn.col("right") == right, record)).alias(name) for name, right in (("a", False), ("b", True))
    ]
    copy = fn.row_number().over(Window.partitionBy("stream", "right", "digest").orderBy("ordinal"))
    matched = alone.withColumn("copy", copy).groupBy("stream", "digest", "copy").agg(*sides)
    moved = fn.col("a").isNotNull() & fn.col("b").isNotNull()
    come = matched.where("a IS NULL").select("stream", "digest").distinct()
    known = (
        left.select("stream", "digest").join(come, ["stream", "digest"]).distinct().withColumn("known", fn.lit(True))
    )
    rest = matched.where(~moved).join(known, ["stream", "digest"], "left")
    doubled = fn.col("known") & fn.col("b").isNotNull()
    alone = (
        rest.where(~fn.coalesce(doubled, fn.lit(False)))
        .withColumn("right", fn.col("b").isNotNull())
        .withColumn("record", fn.coalesce("a", "b"))
        .select("stream", "right", "record.*")
    )
    place = fn.row_number().over(Window.partitionBy("stream", "gap", "right").orderBy("ordinal"))
    placed = alone.withColumn("place", place).groupBy("stream", "gap", "place").agg(*sides)
    kind = fn.when(fn.col("b").isNull(), "lost").when(fn.col("a").isNull(), "added").otherwise("altered")
    return (
        _shown(matched.where(moved), fn.lit("reordered"), also)
        .unionByName(_shown(rest.where(doubled), fn.lit("doubled"), also))
        .unionByName(_shown(placed, kind, also))
    )


def _shown(table: DataFrame, kind: Column, also: Sequence[str]) -> DataFrame:
    columns: list[Any] = ["stream", kind.alias("kind"), _fields(also).alias("fields")]
    for name, prefix in (("a", "left"), ("b", "right")):
        for field in _SHOWN:
            value = fn.col(name)[field]
            shown = fn.translate(fn.hex(value), "ABCDEF", "abcdef") if field == "digest" else value
            columns.append(shown.alias(f"{prefix}_{field}"))
    return table.select(*columns)


def _fields(also: Sequence[str]) -> Column:
    """Return the names of the fields in which an altered record differs."""
    compared = {"body": "body_hash", "headers": "headers_hash"} | {name: name for name in also}
    left, right = fn.col("a"), fn.col("b")
    names = [fn.when(~left[column].eqNullSafe(right[column]), fn.lit(field)) for field, column in compared.items()]
    return fn.when(
        left.isNotNull() & right.isNotNull() & (left["digest"] != right["digest"]), fn.array_compact(fn.array(*names))
    )
