"""`spark.read.format("penstock")`, `spark.readStream.format("penstock")`, and, through the sink, `write` and
`writeStream`.

| part | module |
|---|---|
| options, checked with all faults named at once | `options` |
| selection of streams: names, lists, patterns; repeated for each micro-batch | `selection` |
| bounds: numbers, times, earliest, latest | `bounds` |
| ranges of streams as Spark's partitions | `partitions` |
| columns of codecs as Arrow batches, in the requested schema | `arrow`, `reading` |
| batch and streaming readers; the size of a micro-batch | `batch`, `streaming`, `following` |
| records lost before they were read | `loss` |

A checkpoint's offset is `{stream: [sequence number of the next record, identity]}` (an identity is a digest of the
record before that number, see `StreamClient.identity`), so that a query restarted from its checkpoint reads exactly
what it would have read. If records needed after a restart are gone (trimmed, stream deleted), the query fails, or skips
them with a warning if `fail_on_data_loss` is false.

A batch DataFrame reads what existed when it was first used: Spark keeps its plan. Call `load()` again to read newer
records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.columns import check_columns
from penstock_spark.schemas import SOURCE_RECORDS, spark_schema
from penstock_spark.source.options import source_options

if TYPE_CHECKING:
    from penstock_spark.sink.writer import PenstockStreamWriter, PenstockWriter
    from penstock_spark.source.reading import Connect

__all__ = ["PenstockDataSource"]

_BATCH_REFUSES: Final = {
    "max_records_per_batch": "applies to streaming queries only; use start and end in a batch query"
}
_STREAM_REFUSES: Final = {
    "end": "applies to batch queries only",
}


class PenstockDataSource(DataSource):
    """See the module. Readers, writers and the client are imported by those of Spark's processes that need them."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "penstock"

    def schema(self) -> StructType:
        """Return all columns of records, the default schema."""
        source_options(self.options)
        return spark_schema(SOURCE_RECORDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises WrongOptions, WrongSchema."""
        options = source_options(self.options, refused=_BATCH_REFUSES)
        check_columns("format penstock", spark_schema(SOURCE_RECORDS), schema)
        from penstock_spark.source.batch import BatchReader

        return BatchReader(options, schema, _connect(options.endpoint))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query. Raises WrongOptions, WrongSchema."""
        options = source_options(self.options, refused=_STREAM_REFUSES)
        check_columns("format penstock", spark_schema(SOURCE_RECORDS), schema)
        from penstock_spark.source.streaming import StreamReader

        return StreamReader(options, schema, _connect(options.endpoint))

    def writer(self, schema: StructType, overwrite: bool) -> PenstockWriter:
        """Return the writer of a batch job. Raises WrongOptions, SinkFailed."""
        from penstock_spark.sink.writer import PenstockWriter

        return PenstockWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PenstockStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a streaming query. Raises WrongOptions, SinkFailed."""
        from penstock_spark.sink.writer import PenstockStreamWriter

        return PenstockStreamWriter(self.options, schema, overwrite)


def _connect(endpoint: Endpoint) -> Connect:
    from penstock_spark.clients.client import StreamClient

    return partial(StreamClient, endpoint)
