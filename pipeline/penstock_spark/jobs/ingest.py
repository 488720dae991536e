"""Job `ingest`: write captures, or live streams, to tables; rows that were written are not written again.

One streaming query writes the tables of all recordings, another one that of live streams; their checkpoints hold their
positions. A query runs until it has all that existed at its start, or follows. After a kill, a micro-batch that may
have been written is written again, in the same place (`target`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_spark.jobs.configuring import texts
from penstock_spark.jobs.tables import TABLES, OutputTable
from penstock_spark.jobs.target import checkpoint_of, prepared, writer_of
from penstock_spark.running.settings import CaptureSettings, SourceSettings, TargetSettings
from penstock_spark.schemas import ALL_TABLES, CAPTURE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["capture_tables", "ingest", "live_streams", "source_options"]

_SPECIAL: Final = re.compile(r"[*?[]")


class Incoming(NamedTuple):
    """A streaming DataFrame with its target tables. `protocol`: for rows without one. `tables`: if there are several,
    the frame has a column for each, a struct that is null in the others' rows."""

    name: str
    tables: tuple[OutputTable, ...]
    frame: DataFrame
    protocol: str = ""


def ingest(incoming: Incoming, target: TargetSettings, *, follow: bool = False) -> StreamingQuery:
    """Start or resume writing tables.

    The query ends when all rows that exist now are written; with `follow` it runs on, a micro-batch each
    `target.interval_seconds`. Raises JobFailed if a table cannot be written.
    """
    checkpoint = checkpoint_of(incoming.tables, target)
    prepared(incoming.frame.sparkSession, incoming.tables, target)
    writer = writer_of(incoming.frame, incoming.tables, target, protocol=incoming.protocol).queryName(incoming.name)
    writer = writer.option("checkpointLocation", checkpoint)
    if follow:
        return writer.trigger(processingTime=f"{round(target.interval_seconds * 1000)} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def live_streams(session: SparkSession, source: SourceSettings) -> Incoming:
    """Return the records of live streams."""
    options = source_options(source)
    reader = session.readStream.format("penstock").options(**options)
    return Incoming("streams", (TABLES["streams"],), reader.load(), "s2s")


def capture_tables(session: SparkSession, captures: CaptureSettings, target: TargetSettings) -> list[Incoming]:
    """Return all tables of recordings, from files that are complete.

    One query decodes them once for all tables. Iceberg's streaming writer has one table, so it needs one query each.
    """
    reader = session.readStream.format("penstock-capture").options(**texts(captures.options))
    reader = reader.option("paths", json.dumps(captures.path))
    if target.format == "iceberg":
        return [
            Incoming(name, (TABLES[name],), reader.option("table", name).load()) for name in CAPTURE_TABLES
        ]  # `option` changes the reader; `load` takes its options as they are
    tables = tuple(TABLES[name] for name in CAPTURE_TABLES)
    return [Incoming("recordings", tables, reader.option("table", ALL_TABLES).load())]


def source_options(source: SourceSettings) -> dict[str, str]:
    """Return options of the source `penstock` for these settings, with names and patterns separated."""
    names = [name for name in source.streams if not _SPECIAL.search(name)]
    patterns = [name for name in source.streams if _SPECIAL.search(name)]
    options = texts(source.options)
    options["endpoint"] = source.endpoint
    if names:
        options["streams"] = json.dumps(names)
    if patterns:
        options["stream_pattern"] = json.dumps(patterns)
    return options
