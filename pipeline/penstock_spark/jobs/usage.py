"""Job `usage`: traffic, records and errors by client, stream and protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.schemas import GROWTH, THROUGHPUT, USAGE, shaped
from penstock_spark.schemas import Column

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

__all__ = ["BY", "CUT", "MOST_CODES", "growth", "throughput", "usage", "usages"]

BY: Final = ("client", "stream", "protocol")
"""Columns to group usage by."""
MOST_CODES: Final = 20
"""Maximum number of error codes per row; the rest, which a server may make up, are counted together."""
CUT: Final = "cut"
"""Column of `usages` and `latencies` with the index of a row's grouping."""
_OTHERS: Final = "(others)"
_CONNECTION: Final = ("file", "run", "conversation")


def usage(connections: DataFrame, messages: DataFrame, records: DataFrame, *, by: Sequence[str] = BY) -> DataFrame:
    """Return a row (`USAGE`) for each side and combination of the columns `by`. All three tables are of the same
    captures.

    Connections without messages count, too, with no stream. Raises ValueError for an unknown name in `by`.
    """
    return usages(connections, messages, records, [by]).drop(CUT)


def usages(connections: DataFrame, messages: DataFrame, records: DataFrame, cuts: Sequence[Sequence[str]]) -> DataFrame:
    """Return `usage` for several groupings `cuts`, in one pass over the tables; column `cut` is the index of the
    grouping."""
    if unknown := sorted({name for cut in cuts for name in cut} - set(BY)):
        raise ValueError(f"usage cannot be grouped by {unknown[0]!r}; expected one of {', '.join(BY)}")
    groups = [CUT, "side", *BY]
    messages_table, silent, held = (
        _grouped(table, cuts) for table in (messages, connections.where(_is_silent()), records)
    )
    table = _traffic(messages_table, groups)
    for other in (_silent(silent, groups), _held(held, groups), _codes(messages_table, groups)):
        table = table.join(other, groups, "full_outer")
    numbers = ("messages", "bytes", "appended", "delivered", "record_bytes", "errors")
    counted = {name: fn.coalesce(name, fn.lit(0)) for name in numbers}
    counted["connections"] = fn.coalesce("heard", fn.lit(0)) + fn.coalesce("unheard", fn.lit(0))
    table = table.withColumns(counted).withColumns({name: fn.nullif(name, fn.lit("")) for name in BY})
    return shaped(table.orderBy(CUT, fn.desc("bytes"), "side", *BY), (Column(CUT, "int", "which"), *USAGE))


def throughput(messages: DataFrame, *, every_s: int) -> DataFrame:
    """Return messages, bytes and records in each window of `every_s` seconds (`THROUGHPUT`); no row for an empty
    window."""
    if every_s < 1:
        raise ValueError("a time window must be at least 1 second")
    counts = messages.groupBy(fn.window("end", f"{every_s} seconds")["start"].alias("start"), "side", "protocol").agg(
        fn.count(fn.when(fn.col("length") > 0, 1)).alias("messages"),
        fn.sum("length").alias("bytes"),
        fn.sum("records").alias("records"),
    )
    return shaped(counts.orderBy("start", "side", "protocol"), THROUGHPUT)


def growth(streams: DataFrame, *, every_s: int) -> DataFrame:
    """Return records and their bytes in each window of `every_s` seconds by the records' own timestamps (`GROWTH`)."""
    protocol = fn.col("protocol") if "protocol" in streams.columns else fn.lit(None)
    counts = streams.groupBy(
        fn.window("timestamp", f"{every_s} seconds")["start"].alias("start"), protocol.alias("protocol")
    ).agg(fn.count("*").alias("records"), fn.sum(_held_bytes()).alias("bytes"))
    return shaped(counts.orderBy("start", "protocol"), GROWTH)


def _grouped(table: DataFrame, cuts: Sequence[Sequence[str]]) -> DataFrame:
    """Repeat each row for each grouping, with the columns of its group: empty, never null, so that tables can be joined
    by them."""
    known = {name: fn.col(name) for name in BY if name in table.columns}
    known["client"] = fn.coalesce("identity", "client_host")
    values = {name: fn.coalesce(known[name], fn.lit("")) if name in known else fn.lit("") for name in BY}
    rows = [
        fn.struct(fn.lit(at).alias(CUT), *((values[name] if name in cut else fn.lit("")).alias(name) for name in BY))
        for at, cut in enumerate(cuts)
    ]
    group = fn.explode(fn.array(*rows)) if len(rows) > 1 else rows[0]
    return table.withColumn("group", group).drop(*BY).select("*", "group.*")


def _traffic(messages_table: DataFrame, groups: Sequence[str]) -> DataFrame:
    carries = fn.col("metered") > 0
    return messages_table.groupBy(*groups).agg(
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


def _held_bytes() -> Expression:
    """Return the size of a record: its body and its headers."""
    headers = fn.aggregate(
        "headers",
        fn.lit(0),
        lambda total, header: total + fn.octet_length(header["name"]) + fn.octet_length(header["value"]),
    )
    return fn.octet_length("body") + fn.coalesce(headers, fn.lit(0))


def _codes(messages_table: DataFrame, groups: Sequence[str]) -> DataFrame:
    """Return the number of errors by code; codes after the most frequent ones are counted together."""
    code = fn.when(fn.col("kind") == "problem", "PROTOCOL").otherwise(
        fn.trim(fn.substring_index(fn.coalesce("failure", fn.lit("")), ":", 1))
    )
    counts = messages_table.where(_is_error()).groupBy(*groups, code.alias("code")).agg(fn.count("*").alias("times"))
    order = Window.partitionBy(*groups).orderBy(fn.desc("times"), "code")
    named = fn.when(fn.row_number().over(order) <= MOST_CODES, fn.col("code")).otherwise(_OTHERS)
    together = counts.withColumn("code", named).groupBy(*groups, "code").agg(fn.sum("times").alias("times"))
    entries = fn.array_sort(fn.collect_list(fn.struct("code", "times")))
    return together.groupBy(*groups).agg(fn.map_from_entries(entries).alias("error_codes"))


def _is_silent() -> Expression:
    """Return whether a connection has no rows in the table of messages; files that were skipped have no counts at
    all."""
    return (fn.col("messages") == 0) & (fn.coalesce("problems", fn.lit(0)) == 0)


def _is_error() -> Expression:
    return fn.coalesce("failed", fn.lit(False)) | (fn.col("kind") == "problem")
