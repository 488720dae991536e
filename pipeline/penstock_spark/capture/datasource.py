"""`spark.read.format("penstock-capture")` and `readStream`."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock_spark.capture.options import CaptureOptions, capture_options
from penstock_spark.columns import check_columns
from penstock_spark.schemas import arrow_schema, capture_schema

__all__ = ["CaptureDataSource"]


class CaptureDataSource(DataSource):
    """The format `penstock-capture`. See the package."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "penstock-capture"

    def schema(self) -> StructType:
        """Return all columns of the table that the options name."""
        return capture_schema(self._checked.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from penstock_spark.capture.batch import CaptureBatchReader

        return CaptureBatchReader(self._checked, self._asked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a streaming query."""
        from penstock_spark.capture.streaming import CaptureStreamReader

        return CaptureStreamReader(self._checked, self._asked(schema))

    @property
    def _checked(self) -> CaptureOptions:
        return capture_options(dict(self.options))

    def _asked(self, schema: StructType) -> pa.Schema:
        """Return the requested columns, a selection of the table's. Raises WrongSchema for any others."""
        table = self._checked.table
        check_columns(f"penstock-capture, table {table}", capture_schema(table), schema)
        return arrow_schema(schema)
