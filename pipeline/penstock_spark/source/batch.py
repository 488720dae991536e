"""Batch reader: reads the records that exist when the query is planned, within bounds and filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock_codecs.failures import OperationFailed
from penstock_spark.clients.base import ReadPosition, StreamClient
from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.clients.plugin import plugin_of
from penstock_spark.source.bounds import Bound, order, place_of_number, resolve_bound, up_to
from penstock_spark.source.filters import Interval, Wanted, push
from penstock_spark.source.loss import Losses, is_gone
from penstock_spark.source.options import SourceOptions
from penstock_spark.source.partitions import Range, Ranges, plan_partitions
from penstock_spark.source.reading import Connect, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "FilteringBatchReader"]


class BatchReader(DataSourceReader):
    """See the module. `connect` opens a client, on the driver and in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        """Return ranges of the streams. Raises DataLost, OperationFailed."""
        clients = ClientPool(self._connect)
        try:
            ranges = [] if self._wanted.empty else self._ranges(clients)
            divisible = clients.first.indexed
        finally:
            clients.close()
        options = self._options
        planned = plan_partitions(
            ranges,
            divisible=divisible,
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
            envelopes=options.envelopes,
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
            return Range(stream, start, end) if order(start) < order(end) else None

        streams = [stream for stream in self._options.selection.find(clients.first) if self._wanted.stream(stream)]
        return [found for found in clients.ask(within, streams).values() if found is not None]

    def _within(self, client: StreamClient, stream: str) -> tuple[ReadPosition, ReadPosition]:
        """Return the range of a stream within the bounds of the options and the filters."""
        options, wanted = self._options, self._wanted
        start = self._start(client, stream, options.start.of(stream))
        tail = client.tail(stream, start)
        end = self._end(client, stream, options.end.of(stream), start, tail)
        start, end = _between_times(client, stream, wanted.times, start, end)
        return _between_numbers(client, stream, wanted.numbers, start, end)

    def _start(self, client: StreamClient, stream: str, lower: Bound) -> ReadPosition:
        client.require(stream)
        first = client.first(stream)
        if lower.kind == "earliest":
            return first
        start = resolve_bound(client, stream, lower)
        if order(start) >= order(first):
            return start
        if lower.kind != "timestamp":
            Losses(self._options.fail_on_data_loss).trimmed(stream, start, first)
        return first

    def _end(
        self, client: StreamClient, stream: str, upper: Bound, start: ReadPosition, tail: ReadPosition
    ) -> ReadPosition:
        if upper.kind == "latest":
            return tail
        if upper.kind == "seq_num":
            return min(tail, place_of_number(client, stream, start, upper.value), key=order)
        return up_to(client, stream, start, tail, resolve_bound(client, stream, upper))


class FilteringBatchReader(BatchReader):
    """A batch reader to which Spark pushes filters, for option `push_filters`.

    Spark (4.1 to 4.3) keeps the last plan of such a reader for a whole DataFrame, and reuses it where another query, or
    another branch of the same one, has other filters or none: rows would be missing. So this is for DataFrames with one
    use, and Spark refuses it where `spark.sql.python.filterPushdown.enabled` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that bounds can express, and return the rest."""
        times = "timestamp" in plugin_of(self._options.endpoint.protocol).bounds
        self._wanted, left = push(filters, self._wanted, times=times)
        return left


def _between_times(
    client: StreamClient, stream: str, times: Interval, start: ReadPosition, end: ReadPosition
) -> tuple[ReadPosition, ReadPosition]:
    if times.least > 0:
        start = max(start, client.at_timestamp(stream, times.least), key=order)
    if times.end is not None:
        end = min(end, client.at_timestamp(stream, times.end), key=order)
    return start, end


def _between_numbers(
    client: StreamClient, stream: str, numbers: Interval, start: ReadPosition, end: ReadPosition
) -> tuple[ReadPosition, ReadPosition]:
    if numbers.end is not None and numbers.end < end.seq_num:
        end = place_of_number(client, stream, start, numbers.end)
    if numbers.least > start.seq_num:
        start = place_of_number(client, stream, start, numbers.least)
    return start, end
