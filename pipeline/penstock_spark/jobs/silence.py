"""Read sessions in which the server fell silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.views import EXCHANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HEARTBEAT_MS", "session_silences"]

HEARTBEAT_MS: Final = 15_000
"""An S2 server says something at least so often to a reader that waits (S2 fact sheet, 2.4)."""
_ALLOWANCE: Final = 4 / 3
"""A silence is longer than so many heartbeats' time: clients give a server up after 20 s."""


def session_silences(messages: DataFrame, heartbeat_ms: int = HEARTBEAT_MS) -> DataFrame:
    """For each `stream`, `action` (`delivered`) and `side`: `interval_ms`, `silences`, `heartbeats_missed`.

    Counted from a session's first heartbeat on (S2S `heartbeat`, SSE `ping`): before it the reader catches up, and the
    reader's own pace counts. Up to the last message of the exchange: what was not recorded is no silence.
    """
    told = fn.col("layer").isin("s2s", "sse") & (fn.col("sender") == "server")
    beat = told & fn.col("kind").isin("heartbeat", "ping")
    order = Window.partitionBy(*EXCHANGE).orderBy("end", "offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    known = messages.where(fn.col("exchange").isNotNull() & fn.col("layer").isNotNull()).withColumns(
        {
            "since": fn.max(fn.when(told, fn.col("end"))).over(before),
            "follows": fn.max(beat).over(before),
            "last": fn.lead("end").over(order).isNull(),
        }
    )
    # Messages that say nothing of the stream (as HTTP/2's) count only where the exchange ends with one.
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
