"""Batch reader: reads the records that exist when the query is planned, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.model.failures import OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.source.bounds import Bound, resolve_bound
from penstock_spark.source.loss import Losses, is_gone
from penstock_spark.source.options import SourceOptions
from penstock_spark.source.partitions import Range, Ranges, plan_partitions
from penstock_spark.source.reading import Connect, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """See the module. `connect` opens a client, on the driver and in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect

    def partitions(self) -> list[InputPartition]:
        """Return ranges of the streams. Raises DataLost, OperationFailed."""
        clients = ClientPool(self._connect)
        try:
            ranges = self._ranges(clients)
        finally:
            clients.close()
        options = self._options
        planned = plan_partitions(
            ranges,
            records_per_partition=options.records_per_partition,
            min_partitions=options.min_partitions,
        )
        return [*planned] or [Ranges(())]  # without any, Spark adds a partition of its own

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. Runs in a task."""
        assert isinstance(partition, Ranges)
        options = self._options
        return read_ranges(
            self._connect,
            partition.ranges,
            self._schema,
            fail_on_data_loss=options.fail_on_data_loss,
            late_is_null=options.unreadable_timestamps,
        )

    def _ranges(self, clients: ClientPool) -> list[Range]:
        names = self._options.selection.names

        def within(client: StreamClient, stream: str) -> Range | None:
            try:
                start, end = self._within(client, stream)
            except OperationFailed as failed:
                if is_gone(failed) and stream not in names:
                    return None  # deleted after the pattern matched it
                raise
            return Range(stream, start, end) if start < end else None

        streams = self._options.selection.find(clients.first)
        return [range_ for range_ in clients.ask(within, streams).values() if range_ is not None]

    def _within(self, client: StreamClient, stream: str) -> tuple[int, int]:
        """Return the range of a stream within the bounds of the options."""
        start = self._start(client, stream, self._options.start.of(stream))
        tail = client.tail(stream)
        upper = self._options.end.of(stream)
        return start, tail if upper.kind == "latest" else min(tail, resolve_bound(client, stream, upper))

    def _start(self, client: StreamClient, stream: str, lower: Bound) -> int:
        client.require(stream)
        first = client.first(stream)
        if lower.kind == "earliest":
            return first
        start = resolve_bound(client, stream, lower)
        if start < first and lower.kind != "timestamp":
            Losses(self._options.fail_on_data_loss).trimmed(stream, start, first)
        return max(start, first)
