"""Job `ingest`: captures, or live streams, become tables; what is there already does not come again.

Each table is written by a streaming query of its own, whose checkpoint says how far it is. A query runs until all is
there that was there when it began, or follows. However often it is killed: a micro-batch that may have been written is
written again, in the same place (`target`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.jobs.configuring import texts
from penstock_spark.jobs.tables import TABLES, Table, laid_out
from penstock_spark.jobs.target import checkpoint_of, prepared, writer_of
from penstock_spark.running.settings import Captures, Source, Target
from penstock_spark.schemas import CAPTURE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["capture_tables", "ingest", "live_streams", "source_options"]

_SPECIAL: Final = re.compile(r"[*?[]")


class Incoming(NamedTuple):
    """A streaming DataFrame, and the table that it becomes. `protocol`: where its rows do not say it."""

    table: Table
    frame: DataFrame
    protocol: str = ""


def ingest(incoming: Incoming, target: Target, *, follow: bool = False) -> StreamingQuery:
    """Begin to write a table, or go on with it.

    The query ends when all that is there now is written; with `follow` it runs on, a micro-batch each
    `target.interval_seconds`. Raises JobFailed where the table cannot be written.
    """
    table = incoming.table
    prepared(incoming.frame.sparkSession, table, target)
    rows = laid_out(incoming.frame, table, protocol=incoming.protocol)
    writer = writer_of(rows, table, target).queryName(table.name)
    writer = writer.option("checkpointLocation", checkpoint_of(table, target))
    if follow:
        return writer.trigger(processingTime=f"{round(target.interval_seconds * 1000)} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def live_streams(session: SparkSession, source: Source) -> Incoming:
    """The records of streams, as they come."""
    options = source_options(source)
    reader = session.readStream.format("penstock").options(**options)
    return Incoming(TABLES["streams"], reader.load(), parse_endpoint(source.endpoint, options).protocol)


def capture_tables(session: SparkSession, captures: Captures) -> list[Incoming]:
    """All tables of recordings, of the files that are complete."""
    found = []
    for name in CAPTURE_TABLES:
        reader = session.readStream.format("penstock-capture").options(**texts(captures.options))
        reader = reader.option("paths", json.dumps(captures.path)).option("table", name)
        found.append(Incoming(TABLES[name], reader.load()))
    return found


def source_options(source: Source) -> dict[str, str]:
    """The options of the source `penstock` that say the same: names and patterns apart from each other."""
    names = [name for name in source.streams if not _SPECIAL.search(name)]
    patterns = [name for name in source.streams if _SPECIAL.search(name)]
    options = texts(source.options)
    options["endpoint"] = source.endpoint
    if names:
        options["streams"] = json.dumps(names)
    if patterns:
        options["stream_pattern"] = json.dumps(patterns)
    return options
