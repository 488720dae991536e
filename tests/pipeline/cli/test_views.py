"""Views of the tables in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock_spark.cli.common import Job
from penstock_spark.cli.views import all_tables, capture_tables
from penstock_spark.jobs.tables import TABLES
from penstock_spark.jobs.target import CHECKPOINT
from penstock_spark.running.settings import JobSettings
from penstock_spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_recording_without_any_record_has_an_empty_table_of_them(spark: SparkSession, tmp_path: Path) -> None:
    """Clients that only connected: `ingest` had no row to write for the others."""
    job, view = Job(JobSettings(), False), str(tmp_path)
    connections = spark.createDataFrame([], spark_schema(TABLES["connections"].stored))
    connections.write.parquet(f"{view}/connections")
    (tmp_path / "connections" / CHECKPOINT).mkdir()
    (tmp_path / "records" / CHECKPOINT).mkdir(parents=True)
    assert all_tables(spark, job, view).keys() == {"connections", "messages", "records"}
    [records] = capture_tables(spark, job, view, "records")
    assert "acknowledged" in records.columns
    assert all_tables(spark, job, f"{view}/connections").keys() == {"connections"}
