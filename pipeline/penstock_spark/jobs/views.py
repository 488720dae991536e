"""One row per record of a stream, from any table of records: a stream's own, or one of captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock_spark.schemas import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["EXCHANGE", "identifier", "is_seen", "position_text", "records_of", "short_name"]

EXCHANGE: Final = ("file", "run", "conversation", "exchange")
"""Columns that identify an exchange of a capture."""
_PREFERRED: Final = (("front", "appended"), ("front", "delivered"), ("back", "appended"), ("back", "delivered"))


def is_seen(records: DataFrame) -> bool:
    """Return whether the table is one of captures (`penstock-capture`, table `records`)."""
    return {"action", "conversation"} <= set(records.columns)


def identifier() -> Column:
    """Return S3P's `record_id` as two numbers, which sort as the stream does; null for other text."""
    parts = fn.split("record_id", "-")
    number = fn.struct(
        fn.try_element_at(parts, fn.lit(1)).try_cast("bigint").alias("ms"),
        fn.try_element_at(parts, fn.lit(2)).try_cast("bigint").alias("seq"),
    )
    return fn.when(number["ms"].isNotNull() & number["seq"].isNotNull(), number)


def position_text() -> Column:
    """Return a position for people: `seq_num 5`, `id 17-0`, `offset 640`; null if the record has none."""
    return fn.coalesce(
        fn.concat(fn.lit("seq_num "), fn.col("seq_num")),
        fn.concat(fn.lit("id "), fn.col("record_id")),
        fn.concat(fn.lit("offset "), fn.col("offset")),
    )


def short_name() -> Column:
    """Return the part of the `stream`'s name that all protocols share, as `jobs.audit.last_part` does."""
    stream = fn.col("stream")
    scoped = fn.regexp_replace(stream, r"/[0-9]+(?:\.#epoch\.[0-9]+)?(?:#transaction\.[0-9a-f]+)?\z", "")
    plain = fn.when(fn.size(fn.split(stream, "/")) > 2, scoped).otherwise(stream)
    return fn.substring_index(plain, "/", -1)


def records_of(records: DataFrame, action: str | None = None, side: str | None = None) -> DataFrame:
    """Return the columns of `RECORDS`, and `record_id`, `offset` and `arrival`; columns that the table lacks are null.

    Of captures: appended and acknowledged records; for streams without any, delivered records, each once however many
    clients read it, but as often as a single exchange delivered it. Connections with clients take precedence over those
    with servers. `action` (`appended`, `delivered`) and `side` (`front`, `back`, `foreign`) select the same for all
    streams.

    Raises ValueError if there is no column `stream` or `body`.
    """
    missing = {"stream", "body"} - set(records.columns)
    if missing:
        raise ValueError(f"a table of records needs the columns {', '.join(sorted(missing))}")
    table = _chosen(records, action, side) if is_seen(records) else records
    present = set(table.columns)
    names = [column.name for column in RECORDS]
    extra = (("record_id", "string"), ("offset", "bigint"), ("arrival", "timestamp"))
    kinds = {column.name: column.type for column in RECORDS} | dict(extra)
    return table.select(
        *(
            (fn.col(name) if name in present else fn.lit(None)).cast(kinds[name]).alias(name)
            for name in (*names, *(name for name, _ in extra))
        )
    )


def _chosen(seen: DataFrame, action: str | None, side: str | None) -> DataFrame:
    """Return the records of one action and one side for each stream."""
    chosen = seen.where(fn.col("acknowledged") | (fn.col("action") == "delivered"))
    if action is not None:
        chosen = chosen.where(fn.col("action") == action)
    if side is not None:
        chosen = chosen.where(fn.col("side") == side)
    place = fn.lit(len(_PREFERRED))
    for number, (one_side, one_action) in reversed(list(enumerate(_PREFERRED))):
        like = fn.col("side") == "back" if one_side == "back" else fn.col("side") != "back"
        place = fn.when(like & (fn.col("action") == one_action), fn.lit(number)).otherwise(place)
    chosen = chosen.withColumn("preferred", place)
    best = chosen.groupBy("stream").agg(fn.min("preferred").alias("preferred"))
    chosen = chosen.join(fn.broadcast(best), ["stream", "preferred"]).drop("preferred")
    chosen = chosen.withColumn("arrival", fn.coalesce("settled", "sent"))
    position = ("seq_num", "record_id", "offset")
    numbered = fn.coalesce("seq_num", "offset").isNotNull() | fn.col("record_id").isNotNull()
    content = fn.xxhash64("body", "headers")
    again = fn.row_number().over(Window.partitionBy("stream", *EXCHANGE, *position, content).orderBy("arrival"))
    repeated = (fn.col("action") == "delivered") & numbered
    delivered = chosen.where(repeated).withColumn("again", again)
    first = Window.partitionBy("stream", *position, "again", content).orderBy("arrival", "timestamp")
    delivered = delivered.withColumn("copy", fn.row_number().over(first)).where("copy = 1").drop("again", "copy")
    return chosen.where(~repeated).unionByName(delivered)
