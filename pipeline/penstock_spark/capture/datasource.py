"""`spark.read.format("penstock-capture")` and `readStream`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["CaptureDataSource"]


class CaptureDataSource(DataSource):
    """See the package."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock-capture"
