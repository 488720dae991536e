"""The source inside a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.captures.tables import read

import penstock_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_batch(spark: SparkSession, recording: Path, rotated: Path) -> None:
    """Several paths, groups, columns of the user's own choice and order, filters."""
    penstock_spark.register(spark)
    frame = (
        spark.read.format("penstock-capture")
        .option("table", "records")
        .option("groups", 2)
        .schema("seq_num bigint, headers array<struct<name: binary, value: binary>>, body binary, protocol string")
        .load([str(recording), f"file:{rotated}/*.zst"])
        .where("protocol = 's2'")
    )
    assert frame.rdd.getNumPartitions() == 4
    found = sorted((row.seq_num or -1, bytes(row.body)) for row in frame.collect())
    names = ["seq_num", "body", "protocol"]
    expected = [row for path in (recording, rotated) for row in read(path, "records", names)]
    assert found == sorted((row["seq_num"] or -1, row["body"]) for row in expected if row["protocol"] == "s2")


def test_streaming(spark: SparkSession, rotated: Path, tmp_path: Path) -> None:
    """Two runs of one query over a checkpoint: the rows of a batch query, each once."""
    penstock_spark.register(spark)

    def go_on() -> int:
        reader = spark.readStream.format("penstock-capture").option("settle_seconds", 0)
        frame = reader.option("max_files_per_batch", 20).option("table", "messages").load(str(rotated))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        assert query.awaitTermination(60)
        return spark.read.parquet(str(tmp_path / "table")).count()

    expected = len(read(rotated, "messages"))
    assert go_on() == go_on() == expected
