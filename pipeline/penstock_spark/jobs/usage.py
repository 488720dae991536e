"""Job `usage`: who used what, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.schemas import GROWTH, THROUGHPUT, USAGE, shaped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BY", "MOST_CODES", "growth", "throughput", "usage"]

BY: Final = ("client", "stream", "protocol")
"""What usage can be told apart by."""
MOST_CODES: Final = 20
"""Error codes of each row; the rest, which a server may make up, are counted together."""
_OTHERS: Final = "(others)"
_CONNECTION: Final = ("file", "run", "conversation")


def usage(connections: DataFrame, messages: DataFrame, records: DataFrame, *, by: Sequence[str] = BY) -> DataFrame:
    """One row (`USAGE`) for each side and what `by` names. All three tables are of the same captures.

    Connections that said nothing are counted too, about no stream. Raises ValueError for what it cannot tell apart.
    """
    if unknown := sorted(set(by) - set(BY)):
        raise ValueError(f"usage cannot be told apart by {unknown[0]!r}; what can: {', '.join(BY)}")
    groups = ["side", *by]
    said, silent, held = (_grouped(table, groups) for table in (messages, connections.where(_is_silent()), records))
    table = _traffic(said, groups)
    for other in (_silent(silent, groups), _held(held, groups), _codes(said, groups)):
        table = table.join(other, groups, "full_outer")
    numbers = ("messages", "bytes", "appended", "delivered", "record_bytes", "errors")
    counted = {name: fn.coalesce(name, fn.lit(0)) for name in numbers}
    counted["connections"] = fn.coalesce("heard", fn.lit(0)) + fn.coalesce("unheard", fn.lit(0))
    table = table.withColumns(counted).withColumns({name: fn.nullif(name, fn.lit("")) for name in groups})
    return shaped(table.orderBy(fn.desc("bytes"), *groups), USAGE)


def throughput(messages: DataFrame, *, every_s: int) -> DataFrame:
    """Messages, bytes and records in each window of `every_s` seconds (`THROUGHPUT`); none where nothing went by."""
    if every_s < 1:
        raise ValueError("a time window has at least 1 second")
    counts = messages.groupBy(fn.window("end", f"{every_s} seconds")["start"].alias("start"), "side", "protocol").agg(
        fn.count(fn.when(fn.col("length") > 0, 1)).alias("messages"),
        fn.sum("length").alias("bytes"),
        fn.sum("records").alias("records"),
    )
    return shaped(counts.orderBy("start", "side", "protocol"), THROUGHPUT)


def growth(streams: DataFrame, *, every_s: int) -> DataFrame:
    """Records and their bytes in each window of `every_s` seconds of the records' own timestamps (`GROWTH`)."""
    protocol = fn.col("protocol") if "protocol" in streams.columns else fn.lit(None)
    counts = streams.groupBy(
        fn.window("timestamp", f"{every_s} seconds")["start"].alias("start"), protocol.alias("protocol")
    ).agg(fn.count("*").alias("records"), fn.sum(_held_bytes()).alias("bytes"))
    return shaped(counts.orderBy("start", "protocol"), GROWTH)


def _grouped(table: DataFrame, groups: Sequence[str]) -> DataFrame:
    """What tells the rows apart, never null, so that tables can be joined by it."""
    own = {"client": fn.coalesce("identity", "client_host")}
    for name in groups:
        value = own.get(name, fn.col(name) if name in table.columns else fn.lit(None).cast("string"))
        table = table.withColumn(f"by_{name}", fn.coalesce(value, fn.lit("")))
    return table.drop(*groups).withColumnsRenamed({f"by_{name}": name for name in groups})


def _traffic(said: DataFrame, groups: Sequence[str]) -> DataFrame:
    carries = fn.col("metered") > 0
    return said.groupBy(*groups).agg(
        fn.count_distinct(fn.struct(*_CONNECTION)).alias("heard"),
        fn.count(fn.when(fn.col("length") > 0, 1)).alias("messages"),
        fn.sum("length").alias("bytes"),
        fn.count(fn.when(_is_error(), 1)).alias("errors"),
        (fn.sum(fn.when(carries, fn.col("metered"))) / fn.sum(fn.when(carries, fn.col("length")))).alias(
            "compression_ratio"
        ),
    )


def _silent(connections: DataFrame, groups: Sequence[str]) -> DataFrame:
    return connections.groupBy(*groups).agg(fn.count("*").alias("unheard"))


def _held(records: DataFrame, groups: Sequence[str]) -> DataFrame:
    appended = (fn.col("action") == "appended") & fn.col("acknowledged")
    delivered = fn.col("action") == "delivered"
    return records.groupBy(*groups).agg(
        fn.count(fn.when(appended, 1)).alias("appended"),
        fn.count(fn.when(delivered, 1)).alias("delivered"),
        fn.sum(fn.when(appended | delivered, _held_bytes())).alias("record_bytes"),
    )


def _held_bytes() -> Column:
    """Of a record: its body and its headers."""
    headers = fn.aggregate(
        "headers",
        fn.lit(0),
        lambda total, header: total + fn.octet_length(header["name"]) + fn.octet_length(header["value"]),
    )
    return fn.octet_length("body") + fn.coalesce(headers, fn.lit(0))


def _codes(said: DataFrame, groups: Sequence[str]) -> DataFrame:
    """How many errors of each code, the most frequent ones by name."""
    code = fn.when(fn.col("kind") == "problem", "PROTOCOL").otherwise(
        fn.trim(fn.substring_index(fn.coalesce("failure", fn.lit("")), ":", 1))
    )
    counts = said.where(_is_error()).groupBy(*groups, code.alias("code")).agg(fn.count("*").alias("times"))
    order = Window.partitionBy(*groups).orderBy(fn.desc("times"), "code")
    named = fn.when(fn.row_number().over(order) <= MOST_CODES, fn.col("code")).otherwise(_OTHERS)
    together = counts.withColumn("code", named).groupBy(*groups, "code").agg(fn.sum("times").alias("times"))
    entries = fn.array_sort(fn.collect_list(fn.struct("code", "times")))
    return together.groupBy(*groups).agg(fn.map_from_entries(entries).alias("error_codes"))


def _is_silent() -> Column:
    """Nothing of the connection stands in the table of messages; files that were left out say nothing at all."""
    return (fn.col("messages") == 0) & (fn.coalesce("problems", fn.lit(0)) == 0)


def _is_error() -> Column:
    return fn.coalesce("failed", fn.lit(False)) | (fn.col("kind") == "problem")
