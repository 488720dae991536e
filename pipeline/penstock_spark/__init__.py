"""Penstock's streams and recordings as tables of Spark, through PySpark's Python Data Source API.

    import penstock_spark
    penstock_spark.register(spark)
    spark.read.format("penstock").option("endpoint", "http://127.0.0.1:8080").option("stream", "penstock/hello").load()
    spark.read.format("penstock-capture").option("path", "recordings/").option("table", "records").load()

Works on the record model, captures and S2's codec (`penstock.model`, `.wire`, `.capture`, `penstock_s2.codec`) and on
blocking sockets; it imports neither trio nor the rooms of the gateway that do (the command line, on the driver, shares
its way to list commands), so that an executor needs this distribution with its extra `spark`, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the formats `penstock` and `penstock-capture` with a session. May be called more than once."""
    from penstock_spark.capture.datasource import CaptureDataSource
    from penstock_spark.source.datasource import PenstockDataSource

    for source in (PenstockDataSource, CaptureDataSource):
        spark.dataSource.register(source)
