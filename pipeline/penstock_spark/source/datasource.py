"""`spark.read.format("penstock")`, `spark.readStream.format("penstock")`, and, through the sink, `write` and
`writeStream`.

| part | module |
|---|---|
| options, checked with all faults named at once | `options` |
| which streams: names, lists, patterns; found again for each micro-batch | `selection` |
| from where to where: numbers, times, offsets, earliest, latest; filters pushed down | `bounds`, `filters` |
| ranges of streams as Spark's partitions | `partitions` |
| columns of codecs as Arrow batches, in the schema that was asked for | `arrow`, `reading` |
| batch and streaming readers; how much a micro-batch takes | `batch`, `streaming`, `admission` |
| what is gone before it was read | `loss` |

A checkpoint's offset is `{stream: sequence number of the next record}` (S3P and segments: `[number, place]`), so that
a query that begins again at its checkpoint reads exactly what it would have read. What a restart cannot have any more
(trimmed, stream deleted) fails the query, with `fail_on_data_loss` false it is skipped and logged.

A DataFrame of a batch reads what was there when it was first used: Spark keeps what was planned then. `load()` again
for what came since.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.opening import open_client
from penstock_spark.columns import check_columns
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.sink.writer import PenstockStreamWriter, PenstockWriter
from penstock_spark.source.batch import BatchReader, FilteringBatchReader
from penstock_spark.source.options import source_options
from penstock_spark.source.reading import Connect
from penstock_spark.source.streaming import StreamReader

__all__ = ["PenstockDataSource"]

_BATCH_REFUSES: Final = {"max_records_per_batch": "bounds the micro-batches of a stream; a batch has start and end"}
_STREAM_REFUSES: Final = {
    "end": "a streaming query has none; a batch has",
    "push_filters": "Spark pushes none in streaming queries; use start, stream and stream_pattern",
}


class PenstockDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"

    def schema(self) -> StructType:
        """All columns of records, where the user says none."""
        source_options(self.options)
        return spark_schema(RECORDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what is there. Raises WrongOptions, WrongSchema."""
        options = source_options(self.options, refused=_BATCH_REFUSES)
        check_columns("format penstock", RECORDS, schema)
        make = FilteringBatchReader if options.push_filters else BatchReader
        return make(options, schema, _connect(options.endpoint))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Reads what is there and what comes. Raises WrongOptions, WrongSchema."""
        options = source_options(self.options, refused=_STREAM_REFUSES)
        check_columns("format penstock", RECORDS, schema)
        return StreamReader(options, schema, _connect(options.endpoint))

    def writer(self, schema: StructType, overwrite: bool) -> PenstockWriter:
        """Appends rows. Raises WrongOptions, SinkFailed."""
        return PenstockWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PenstockStreamWriter:  # noqa: N802 - Spark's name
        """Appends the rows of micro-batches. Raises WrongOptions, SinkFailed."""
        return PenstockStreamWriter(self.options, schema, overwrite)


def _connect(endpoint: Endpoint) -> Connect:
    return partial(open_client, endpoint)
