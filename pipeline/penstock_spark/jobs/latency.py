"""Job `latency`: times from a request to its response, and from a record's append to its delivery.

All times are by one recorder's clock. On the side `front` they are the times that clients waited for the gateway, on
the side `back` those that the gateway waited for a server.

Percentiles are computed for any number of values, with the same results on one core as on a cluster: values are counted
in buckets whose bounds are at most 1/128 apart. Unlike sketches, counts do not depend on the order of merging, and any
table is reduced to some thousand rows per group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.contents import content_digest
from penstock_spark.jobs.schemas import LATENCY, shaped
from penstock_spark.jobs.usage import CUT
from penstock_spark.jobs.views import short_name
from penstock_spark.schemas import Column as Described

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "BY",
    "LATEST_US",
    "PERCENTILES",
    "LatencyGrouping",
    "answers",
    "deliveries",
    "latencies",
    "latency",
    "percentiles",
]

PERCENTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
"""The usual percentiles, as columns."""
_EXACT_BITS: Final = 8
"""Values of up to this many bits are exact; of greater ones only the leading bits count."""
BY: Final = ("route", "protocol", "stream")
"""Columns to group latencies by."""
LATEST_US: Final = 19_880_899_200_000_000
"""The year 2600. Damaged and made-up captures have times up to the year 294246, which no plot can show; one of them
would leave a single window for all real times."""
_HERE: Final = ("file", "run", "side")
_CONNECTION: Final = (*_HERE, "conversation")
_PLACE: Final = (*_HERE, "stream", "kind", "position")
_CONTENT: Final = (*_HERE, "short", "content")
_MEASURED: Final = ("side", *BY, "at", "took_us")


def percentiles(
    table: DataFrame, groups: Sequence[str], value: str, points: Mapping[str, float] = PERCENTILES
) -> DataFrame:
    """Return `count`, the percentiles, and `max_us` of each group. `value`: a column of integers from 0; nulls are
    ignored. A percentile is the upper bound of its bucket, but at most the greatest value."""
    number = fn.col(value)
    shift = fn.greatest(fn.length(fn.bin(number)) - _EXACT_BITS, fn.lit(0))
    upper = fn.call_function("shiftleft", fn.call_function("shiftright", number, shift) + 1, shift) - 1
    counts = (
        table.where(number.isNotNull())
        .groupBy(*groups, upper.alias("upper"))
        .agg(fn.count("*").alias("count"), fn.max(number).alias("most"))
    )
    whole = Window.partitionBy(*groups)
    counts = counts.withColumns(
        {"reached": fn.sum("count").over(whole.orderBy("upper")), "total": fn.sum("count").over(whole)}
    )
    values = {
        name: fn.min(fn.when(fn.col("reached") >= fn.col("total") * point, fn.col("upper")))
        for name, point in points.items()
    }
    most = fn.max("most")
    return counts.groupBy(*groups).agg(
        fn.sum("count").alias("count"),
        *(fn.least(value, most).alias(name) for name, value in values.items()),
        most.alias("max_us"),
    )


class LatencyGrouping(NamedTuple):
    """A grouping of latencies: names of `BY`, and the length of time windows in seconds; None: no windows."""

    by: Sequence[str] = BY
    every_s: int | None = None


def latency(
    messages: DataFrame, records: DataFrame, *, by: Sequence[str] = BY, every_s: int | None = None
) -> DataFrame:
    """Return percentiles (`LATENCY`) of both kinds, grouped by side, the columns `by`, and windows of `every_s` seconds
    (None: no windows). `messages`, `records`: of the same captures. Raises ValueError for an unknown name in `by`."""
    return latencies(messages, records, [LatencyGrouping(by, every_s)]).drop(CUT)


def latencies(messages: DataFrame, records: DataFrame, cuts: Sequence[LatencyGrouping]) -> DataFrame:
    """Return `latency` for several groupings, in one pass over the tables; column `cut` is the index of the grouping.

    Times after the year 2600, which damaged captures have, are in no window.
    """
    if unknown := sorted({name for cut in cuts for name in cut.by} - set(BY)):
        raise ValueError(f"latency cannot be grouped by {unknown[0]!r}; expected one of {', '.join(BY)}")
    if any(cut.every_s is not None and cut.every_s < 1 for cut in cuts):
        raise ValueError("a time window must be at least 1 second")
    both = (
        answers(messages)
        .withColumn("kind", fn.lit("answer"))
        .unionByName(deliveries(messages, records).withColumn("kind", fn.lit("delivery")))
    )
    rows = fn.array_compact(fn.array(*(_row(at, cut) for at, cut in enumerate(cuts))))
    both = both.withColumn("group", fn.explode(rows)).select("kind", "side", "took_us", "group.*")
    groups = [CUT, "kind", "side", *BY, "start"]
    table = percentiles(both, groups, "took_us").orderBy(*groups)
    return shaped(table, (Described(CUT, "int", "which"), *LATENCY))


def _row(at: int, cut: LatencyGrouping) -> Column:
    """Return the group of a measurement in a grouping; null if it is in none."""
    names = ((fn.col(name) if name in cut.by else fn.lit(None).cast("string")).alias(name) for name in BY)
    seconds = cut.every_s
    # The start of its window, from whole seconds: `window` cannot be nested in another expression.
    start = fn.lit(None) if seconds is None else fn.floor(fn.unix_seconds("at") / seconds) * seconds
    row = fn.struct(fn.lit(at).alias(CUT), *names, fn.timestamp_seconds(start.cast("bigint")).alias("start"))
    return row if seconds is None else fn.when(fn.unix_micros("at") < LATEST_US, row)


def answers(messages: DataFrame) -> DataFrame:
    """Return the time to the response of each answered request: `side`, `route`, `protocol`, `stream`, `at`, `took_us`.

    It is measured from the last byte of the request to the last byte of its first response; if the response names no
    stream, the request's is used. Reads that wait for records by design count as well.
    """
    exchange_window = Window.partitionBy(*_CONNECTION, "exchange")
    about = fn.when(fn.col("exchange").isNotNull(), fn.max("stream").over(exchange_window))
    return (
        messages.withColumn("about", about)
        .where("answers_us IS NOT NULL")
        .withColumns(
            {"stream": fn.coalesce("stream", "about"), "at": fn.col("end"), "took_us": _whole(fn.col("answers_us"))}
        )
        .select(*_MEASURED)
    )


def deliveries(messages: DataFrame, records: DataFrame) -> DataFrame:
    """Return the time of each record from its append (complete) to its delivery on each connection that waited for it,
    with the columns of `answers`.

    A connection waited if it had requested the stream before the record was appended; only the first delivery of a
    record on it counts. Appends and deliveries are joined by position in the stream. If the protocols have no position
    in common, they are joined by content, for records that were appended once, in streams with the same last part of
    their names. `at`: the time of the append.
    """
    appended = _known(records.where("action = 'appended' AND acknowledged"))
    delivered = _known(records.where("action = 'delivered'"))
    again = Window.partitionBy(*_CONNECTION, "stream", "kind", "position", "content").orderBy("sent")
    first = delivered.withColumn("again", fn.row_number().over(again)).where("again = 1")
    at = fn.min("sent").alias("at")
    same_place = first.join(appended.where("kind <> ''").groupBy(*_PLACE).agg(at), list(_PLACE))
    once = appended.groupBy(*_CONTENT).agg(at, fn.count("*").alias("times"), fn.max("kind").alias("other"))
    same_content = (
        first.join(once.where("times = 1").drop("times"), list(_CONTENT)).where("kind <> other").drop("other")
    )
    reads = messages.where(fn.col("stream").isNotNull() & (fn.col("sender") == "client") & _reads())
    reads = reads.withColumn("run", fn.coalesce("run", fn.lit("")))
    since = reads.groupBy(*_CONNECTION, "stream").agg(fn.min("start").alias("since"))
    took = fn.unix_micros("sent") - fn.unix_micros("at")
    return (
        same_place.unionByName(same_content)
        .join(since, [*_CONNECTION, "stream"])
        .where((fn.col("since") <= fn.col("at")) & (took >= 0))
        .withColumn("took_us", took)
        .select(*_MEASURED)
    )


def _reads() -> Column:
    """Return whether a client's message requests records: HTTP `GET`, S3P `READ`, segments `ReadSegment`."""
    return fn.col("kind").rlike(r"(?i)\A(?:get\z|read)")  # `lower` costs more (`tables.stream_dir`)


def _known(records: DataFrame) -> DataFrame:
    """Return records with their position as text, its kind, their content digest, and the part of the stream's name
    that all protocols share."""
    kinds = {"seq_num": fn.col("seq_num"), "id": fn.col("record_id"), "offset": fn.col("offset")}
    kind = fn.coalesce(*(fn.when(value.isNotNull(), fn.lit(name)) for name, value in kinds.items()), fn.lit(""))
    position = fn.coalesce(*(value.cast("string") for value in kinds.values()), fn.lit(""))
    return records.withColumns(
        {
            "run": fn.coalesce("run", fn.lit("")),
            "kind": kind,
            "position": position,
            "content": content_digest(),
            "short": short_name(),
        }
    ).select(*_CONNECTION, "route", "protocol", "stream", "short", "kind", "position", "content", "sent")


def _whole(value: Column) -> Column:
    return fn.greatest(fn.round(value).cast("bigint"), fn.lit(0).cast("bigint"))
