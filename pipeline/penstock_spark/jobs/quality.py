"""Job `quality`: find missing, doubled, disordered and late records of each stream.

Records are compared in the order of their positions: sequence numbers, otherwise S3P's identifiers or byte offsets. In
captures each exchange that delivered records is checked by itself, since clients may begin anywhere and read again, and
the order in which records passed is checked per connection, since concurrent appends of several clients race. Records
without a position (unacknowledged appends) are left out.

`session_silences` finds read sessions in which the server fell silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock.capture.plugin import plugins
from penstock_spark.jobs.schemas import QUALITY, shaped
from penstock_spark.jobs.views import EXCHANGE, identifier, is_seen
from penstock_spark.schemas import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["EXAMPLES", "HEARTBEAT_MS", "quality", "session_silences"]

HEARTBEAT_MS: Final = 15_000
"""Maximum time in ms between messages of an S2 server to a waiting reader (S2 fact sheet, 2.4)."""
_ALLOWANCE: Final = 4 / 3
"""Intervals of heartbeats after which a silence counts: clients give a server up after 20 s."""
EXAMPLES: Final = 10
"""Maximum number of gaps shown per stream."""
_GROUP: Final = ("stream", "action", "side")
_SUMS: Final = ("records", "readers", "gaps", "missing", "duplicates", "altered_duplicates", "disorder", "times_back")
_POSITION: Final = "struct<seq_num: bigint, id: struct<ms: bigint, seq: bigint>, offset: bigint>"


def session_silences(messages: DataFrame, heartbeat_ms: int = HEARTBEAT_MS) -> DataFrame:
    """Return `interval_ms`, `silences` and `heartbeats_missed` by `stream`, `action` (`delivered`) and `side`.

    A session counts from its first heartbeat (`CapturePlugin.heartbeats`): before it the reader catches up, at its own
    pace. It counts up to the last message of the exchange: a gap in the recording is not a silence.
    """
    beats = {layer: kind for plugin in plugins().values() for layer, kind in plugin.heartbeats.items()}
    told = fn.col("layer").isin(*beats) & (fn.col("sender") == "server")
    beat = told & fn.col("kind").isin(*beats.values())
    order = Window.partitionBy(*EXCHANGE).orderBy("end", "offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    known = messages.where(fn.col("exchange").isNotNull() & fn.col("layer").isNotNull()).withColumns(
        {
            "since": fn.max(fn.when(told, fn.col("end"))).over(before),
            "follows": fn.max(beat).over(before),
            "last": fn.lead("end").over(order).isNull(),
        }
    )
    # Messages that are not about the stream (as HTTP/2's) count only as the end of the exchange.
    elapsed = fn.when(told | fn.col("last"), (fn.unix_micros("end") - fn.unix_micros("since")) / 1000)
    silent = fn.col("follows") & (elapsed > heartbeat_ms * _ALLOWANCE)
    exchanges = known.groupBy("side", *EXCHANGE).agg(
        fn.max("stream").alias("stream"),
        fn.max(beat).alias("followed"),
        fn.count(fn.when(silent, 1)).alias("silences"),
        fn.sum(fn.when(silent, fn.ceil(elapsed / heartbeat_ms) - 1)).alias("missed"),
    )
    return (
        exchanges.where(fn.col("followed") & fn.col("stream").isNotNull())
        .groupBy("stream", fn.lit("delivered").alias("action"), "side")
        .agg(
            fn.lit(heartbeat_ms).cast("bigint").alias("interval_ms"),
            fn.sum("silences").alias("silences"),
            fn.coalesce(fn.sum("missed"), fn.lit(0)).alias("heartbeats_missed"),
        )
    )


def quality(
    records: DataFrame,
    messages: DataFrame | None = None,
    *,
    interval_ms: int | None = None,
    factor: float = 3.0,
    heartbeat_ms: int = HEARTBEAT_MS,
) -> DataFrame:
    """Return a row for each stream (`QUALITY`); for captures one for each stream, action and side. Reads `records`
    once.

    `records`: of the source, or of captures. `interval_ms`: expected time between records of a stream; None: the median
    of the times between them, and then silences do not affect the verdict, since records may come in bursts. A silence
    is longer than `factor` times the interval. `messages`: of the same captures; then the heartbeats of read sessions
    are used instead (`session_silences`). Raises ValueError for missing columns and numbers out of bounds.
    """
    if missing := {column.name for column in RECORDS} - set(records.columns):
        raise ValueError(f"a table of records needs the columns {', '.join(sorted(missing))}")
    if (interval_ms is not None and interval_ms < 1) or factor < 1 or heartbeat_ms < 1:
        raise ValueError("an interval must be at least 1 ms, and a silence at least 1 interval")
    table = _judged(_neighbours(_placed(records)), interval_ms, factor)
    expected = fn.lit(interval_ms is not None)
    if messages is not None:
        sessions = session_silences(messages, heartbeat_ms)
        expected = fn.lit(True)
        own = ("interval_ms", "silences", "heartbeats_missed")
        table = table.drop(*own).join(sessions, list(_GROUP), "full_outer")
        table = table.withColumns({name: fn.coalesce(name, fn.lit(0)) for name in ("records", "readers")})
    table = table.withColumn("verdict", _verdict(expected))
    named = {name: fn.nullif(fn.col(name), fn.lit("")) for name in ("action", "side")}
    return shaped(table.withColumns(named).orderBy(*_GROUP), QUALITY)


def _verdict(expected: Column) -> Column:
    def some(*names: str) -> Column:
        return fn.greatest(fn.lit(0), *(fn.coalesce(name, fn.lit(0)) for name in names)) > 0

    # Numbers missing between acknowledged appends belong to appends over another protocol or gateway.
    lost = (fn.col("action") != "appended") & some("gaps")
    return (
        fn.when(lost | some("duplicates", "times_back"), "bad")
        .when(some("disorder") | (expected & some("silences")), "doubtful")
        .otherwise("good")
    )


def _placed(records: DataFrame) -> DataFrame:
    """Return records that have a position, with `position`, `hash` of the content, `reader` and `late`."""
    seen = is_seen(records)
    present = set(records.columns)
    optional = {"record_id": "string", "offset": "bigint"}
    table = records.withColumns(
        {name: fn.lit(None).cast(kind) for name, kind in optional.items() if name not in present}
    )
    position = fn.struct("seq_num", identifier().alias("id"), "offset").cast(_POSITION)
    table = table.withColumn("position", position).where(
        fn.coalesce("seq_num", "offset").isNotNull() | fn.col("position.id").isNotNull()
    )
    table = table.withColumn("hash", fn.xxhash64("body", "headers"))
    if not seen:
        empty = {name: fn.lit("") for name in ("action", "side")}
        alone = {"reader": fn.lit(0), "sent": fn.lit(None).cast("timestamp"), "late": fn.lit(None).cast("boolean")}
        return table.withColumns(empty | alone)
    table = table.where(fn.col("acknowledged") | (fn.col("action") == "delivered"))
    delivered = fn.col("action") == "delivered"
    turn = Window.partitionBy(
        *_GROUP, *EXCHANGE[:-1], fn.when(delivered, fn.col("exchange")).alias("exchange")
    ).orderBy("sent", "position")
    before = fn.max("position").over(turn.rowsBetween(Window.unboundedPreceding, -1))
    late = fn.coalesce(fn.col("position") < before, fn.lit(False))
    return table.withColumns({"late": late, "reader": fn.when(delivered, fn.struct(*EXCHANGE))})


def _neighbours(placed: DataFrame) -> DataFrame:
    """Compare each record with the one before it in its stream; return columns to be summed."""
    readers = Window.partitionBy(*_GROUP, "reader")
    order = readers.orderBy("position", "sent", "timestamp", "hash")
    table = placed.withColumns({f"last_{name}": fn.lag(name).over(order) for name in ("position", "timestamp", "hash")})
    again = fn.coalesce(fn.col("position") == fn.col("last_position"), fn.lit(False))
    step = fn.col("seq_num") - fn.col("last_position.seq_num")
    elapsed = (fn.unix_micros("timestamp") - fn.unix_micros("last_timestamp")) / 1000
    table = table.withColumns(
        {
            "readers": fn.col("last_position").isNull(),
            "gaps": step > 1,
            "missing": fn.greatest(step - 1, fn.lit(0)),
            "duplicates": again,
            "altered_duplicates": again & (fn.col("hash") != fn.col("last_hash")),
            "disorder": fn.col("late"),
            "times_back": (elapsed < 0) & ~again,
            "elapsed_ms": fn.when(~again, elapsed.cast("bigint")),
        }
    )
    number = fn.sum(fn.col("gaps").cast("int")).over(order)
    around = fn.struct(fn.col("last_position.seq_num").alias("after"), fn.col("seq_num").alias("before"))
    return table.withColumn("gap", fn.when(fn.col("gaps") & (number <= EXAMPLES), around))


def _judged(neighbours: DataFrame, interval_ms: int | None, factor: float) -> DataFrame:
    """Sum up, first by the time between two records: it has few different values, so that the median is exact and all
    of it takes one pass."""
    sums = {name: fn.lit(1) if name == "records" else fn.col(name).cast("bigint") for name in _SUMS}
    extremes = (fn.min("seq_num").alias("first_seq_num"), fn.max("seq_num").alias("last_seq_num"))
    spread = neighbours.groupBy(*_GROUP, "elapsed_ms").agg(
        *(fn.sum(value).alias(name) for name, value in sums.items()), *extremes, fn.collect_list("gap").alias("gap")
    )
    positive = fn.col("elapsed_ms") >= 0
    if interval_ms is None:
        middle = fn.percentile(fn.when(positive, fn.col("elapsed_ms")), 0.5, fn.col("records"))
        interval = fn.round(middle.over(Window.partitionBy(*_GROUP))).cast("bigint")
    else:
        interval = fn.lit(interval_ms).cast("bigint")
    spread = spread.withColumn("interval_ms", fn.nullif(interval, fn.lit(0).cast("bigint")))
    silent = fn.col("elapsed_ms") > factor * fn.col("interval_ms")
    missed = (fn.ceil(fn.col("elapsed_ms") / fn.col("interval_ms")) - 1) * fn.col("records")
    counted = fn.count(fn.when(positive, 1)) > 0
    numbered = fn.max("last_seq_num").isNotNull()
    return spread.groupBy(*_GROUP).agg(
        *(fn.sum(name).alias(name) for name in _SUMS if name not in ("gaps", "missing")),
        *(fn.when(numbered, fn.coalesce(fn.sum(name), fn.lit(0))).alias(name) for name in ("gaps", "missing")),
        fn.min("first_seq_num").alias("first_seq_num"),
        fn.max("last_seq_num").alias("last_seq_num"),
        fn.slice(fn.array_sort(fn.flatten(fn.collect_list("gap"))), 1, EXAMPLES).alias("gap_examples"),
        fn.max(fn.when(~positive, -fn.col("elapsed_ms"))).alias("most_back_ms"),
        fn.max("interval_ms").alias("interval_ms"),
        fn.when(counted, fn.coalesce(fn.sum(fn.when(silent, fn.col("records"))), fn.lit(0))).alias("silences"),
        fn.when(counted, fn.coalesce(fn.sum(fn.when(silent, missed)), fn.lit(0))).alias("heartbeats_missed"),
        fn.max(fn.when(positive, fn.col("elapsed_ms"))).alias("longest_silence_ms"),
    )
