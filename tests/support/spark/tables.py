"""Tables of a real Spark out of plain rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock_spark.schemas import Column, arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["START_MS", "at", "moment", "table"]

START_MS = 1_700_000_000_000


def at(ms: float) -> int:
    """Return the time `ms` after the beginning in Arrow's unit, µs."""
    return round((START_MS + ms) * 1000)


def moment(ms: float) -> datetime:
    """Return the same time as Spark gives it: naive, in the local zone."""
    return datetime.fromtimestamp(at(ms) / 1e6)


def table(spark: SparkSession, columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> DataFrame:
    """Return a table with these columns; values missing in a row are null."""
    known = {column.name for column in columns}
    assert all(row.keys() <= known for row in rows), "a column that the table has not"
    schema = spark_schema(columns)
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow_schema(schema)), schema)
