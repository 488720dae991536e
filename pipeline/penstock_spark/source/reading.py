"""Read ranges of streams as Arrow batches, in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Columns
from penstock_spark.clients.client import StreamClient
from penstock_spark.source.arrow import to_batches
from penstock_spark.source.loss import Losses, is_gone
from penstock_spark.source.partitions import Range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Connect", "read_ranges"]

Connect = Callable[[], StreamClient]
"""Opens a client; picklable, since tasks call it."""


def read_ranges(
    connect: Connect,
    ranges: Iterable[Range],
    schema: StructType,
    *,
    fail_on_data_loss: bool,
    late_is_null: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, in the schema's columns. Raises DataLost, NotRepresentable, OperationFailed."""
    losses = Losses(fail_on_data_loss)
    client = connect()
    try:
        for stream_range in ranges:
            pieces = _records(client, stream_range, losses)
            yield from to_batches(stream_range.stream, pieces, schema, late_is_null=late_is_null)
    finally:
        client.close()


def _records(client: StreamClient, wanted: Range, losses: Losses) -> Iterator[Columns]:
    position, end = wanted.start, wanted.end
    while position < end:
        try:
            client.require(wanted.stream)
            for batch in client.read(wanted.stream, position, end):
                yield batch.columns
                position = batch.next_seq_num
            return
        except OperationFailed as failed:
            position = _after_loss(failed, wanted.stream, position, end, losses)


def _after_loss(failed: OperationFailed, stream: str, position: int, end: int, losses: Losses) -> int:
    """Return the position to continue at after a loss, `end` if nothing is left. Raises `failed` if nothing is lost."""
    first, tail = failed.failure.details.get("first"), failed.failure.details.get("tail")
    if is_gone(failed):
        losses.deleted(stream, position)
    elif failed.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
        raise failed
    elif isinstance(first, int) and first > position:
        losses.trimmed(stream, position, min(first, end))
        return first
    elif isinstance(tail, int):
        losses.made_again(stream, end, tail)
    else:
        raise failed
    return end
