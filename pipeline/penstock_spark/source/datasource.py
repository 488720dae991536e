"""`spark.read.format("penstock")`, `spark.readStream.format("penstock")`, and, through the sink, `write` and
`writeStream`.

| part | module |
|---|---|
| options, checked with all faults named at once | `options` |
| which streams: names, lists, patterns; found again for each micro-batch | `selection` |
| from where to where: numbers, times, offsets, earliest, latest; filters pushed down | `bounds`, `filters` |
| ranges of streams as Spark's partitions | `partitions` |
| columns of codecs as Arrow batches, in the schema that was asked for | `arrow` |
| batch and streaming readers | `batch`, `streaming` |

A checkpoint's offset is `{stream: sequence number of the next record}` (S3P and segments: `[number, place]`), so that
a query that begins again at its checkpoint reads exactly what it would have read. What a restart cannot have any more
(trimmed, stream deleted) fails the query, with `fail_on_data_loss` false it is skipped and logged.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["PenstockDataSource"]


class PenstockDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"
