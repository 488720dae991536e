"""Job `latency`: from a request to its answer, and from a record's append to its delivery.

All times are of one recorder's clock. On the side `front` they are what clients waited for the gateway, on the side
`back` what the gateway waited for a server behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.jobs.contents import content_digest
from penstock_spark.jobs.schemas import LATENCY, shaped
from penstock_spark.jobs.spread import percentiles
from penstock_spark.jobs.views import short_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BY", "answers", "deliveries", "latency"]

BY: Final = ("route", "protocol", "stream")
"""What latency can be told apart by."""
_HERE: Final = ("file", "run", "side")
_CONNECTION: Final = (*_HERE, "conversation")
_PLACE: Final = (*_HERE, "stream", "kind", "position")
_CONTENT: Final = (*_HERE, "short", "content")
_MEASURED: Final = ("side", *BY, "at", "took_us")


def latency(
    messages: DataFrame, records: DataFrame, *, by: Sequence[str] = BY, every_s: int | None = None
) -> DataFrame:
    """Percentiles (`LATENCY`) of both kinds, for each side and what `by` names, and `every_s` seconds; None: over all
    the time. `messages`, `records`: of the same captures. Raises ValueError for what it cannot tell apart."""
    if unknown := sorted(set(by) - set(BY)):
        raise ValueError(f"latency cannot be told apart by {unknown[0]!r}; what can: {', '.join(BY)}")
    if every_s is not None and every_s < 1:
        raise ValueError("a time window has at least 1 second")
    both = (
        answers(messages)
        .withColumn("kind", fn.lit("answer"))
        .unionByName(deliveries(messages, records).withColumn("kind", fn.lit("delivery")))
    )
    groups = ["kind", "side", *by]
    if every_s is not None:
        both = both.withColumn("start", fn.window("at", f"{every_s} seconds")["start"])
        groups.append("start")
    return shaped(percentiles(both, groups, "took_us").orderBy(*groups), LATENCY)


def answers(messages: DataFrame) -> DataFrame:
    """How long each answered request waited: `side`, `route`, `protocol`, `stream`, `at`, `took_us`.

    From the last byte of the request to the last of its first answer; where the answer names no stream, the request's.
    Reads that wait for records by design count as well.
    """
    asked = Window.partitionBy(*_CONNECTION, "exchange")
    about = fn.when(fn.col("exchange").isNotNull(), fn.max("stream").over(asked))
    return (
        messages.withColumn("about", about)
        .where("answers_us IS NOT NULL")
        .withColumns(
            {"stream": fn.coalesce("stream", "about"), "at": fn.col("end"), "took_us": _whole(fn.col("answers_us"))}
        )
        .select(*_MEASURED)
    )


def deliveries(messages: DataFrame, records: DataFrame) -> DataFrame:
    """How long each record took from its append (complete) to each connection that waited for it: the same columns,
    of the delivery.

    A connection waited if it had asked for the stream before the record was appended; only the first delivery of a
    record on it counts. Both sides' records are joined by their position in the stream. Where protocols have no
    position in common, by the content, of records that were appended once, in streams whose names end alike. `at`:
    when it was appended.
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
    asked = messages.where(fn.col("stream").isNotNull() & (fn.col("sender") == "client") & _reads())
    asked = asked.withColumn("run", fn.coalesce("run", fn.lit("")))
    since = asked.groupBy(*_CONNECTION, "stream").agg(fn.min("start").alias("since"))
    took = fn.unix_micros("sent") - fn.unix_micros("at")
    return (
        same_place.unionByName(same_content)
        .join(since, [*_CONNECTION, "stream"])
        .where((fn.col("since") <= fn.col("at")) & (took >= 0))
        .withColumn("took_us", took)
        .select(*_MEASURED)
    )


def _reads() -> Column:
    """Whether a client's message asks for records: HTTP `GET`, S3P `READ`, segments `ReadSegment`."""
    kind = fn.lower("kind")
    return (kind == "get") | kind.startswith("read")


def _known(records: DataFrame) -> DataFrame:
    """With the record's position as text and the kind of it, its content, and the stream's name without what only some
    protocols say."""
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
