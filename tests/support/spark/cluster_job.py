"""The part of the Spark tests common to all clusters: a source read, a capture read, and a job.

spark-submit --master URL cluster_job.py ENDPOINT STREAM RECORDINGS FILE
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock_spark.jobs.quality import quality
from penstock_spark.running import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PARTITIONS", "results", "where"]

PARTITIONS = 4


def results(spark: SparkSession, endpoint: str, stream: str, recordings: str) -> dict[str, Any]:
    """Return the result of each read."""
    records = _records(spark, endpoint, stream)
    captured = spark.read.format("penstock-capture").option("path", recordings).option("groups", "2").load()
    return {
        "source": _digest(records.selectExpr("stream", "seq_num", "timestamp", "hex(body)")),
        "capture": _digest(captured.selectExpr("stream", "action", "seq_num", "sent", "hex(body)")),
        "quality": sorted(_plain(row) for row in quality(captured).collect()),
    }


def where(spark: SparkSession, endpoint: str, stream: str) -> list[tuple[str, int]]:
    """Return the directories of the tasks that read the stream, and the number of rows that each read.

    For a program run as a file of its own: its functions are sent to the workers with their code.
    """
    return _records(spark, endpoint, stream).select("seq_num").rdd.mapPartitions(_where).collect()


def _records(spark: SparkSession, endpoint: str, stream: str) -> DataFrame:
    reader = spark.read.format("penstock").option("endpoint", endpoint).option("stream", stream)
    return reader.option("min_partitions", str(PARTITIONS)).load()


def _where(rows: Iterable[Any]) -> Iterator[tuple[str, int]]:
    yield str(Path.cwd()), sum(1 for _ in rows)


def _digest(frame: DataFrame) -> tuple[int, str]:
    rows = sorted(_plain(row) for row in frame.collect())
    return len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _plain(row: Any) -> str:
    return json.dumps(row.asDict(recursive=True), default=str, sort_keys=True)


if __name__ == "__main__":
    session = open_session()
    found = results(session, *sys.argv[1:4]) | {"ran": where(session, *sys.argv[1:3])}
    Path(sys.argv[4]).write_text(json.dumps(found))
    session.stop()
