"""Streaming reader: micro-batches from the checkpoint's position to the streams' ends, or as far as the limit allows.

A new stream is added to the offset at its first record in one micro-batch, and read from the next one on: so the
checkpoint has its beginning, whatever happens in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.source.following import MicroBatchPlanner, StreamCheckpoint
from penstock_spark.source.loss import Losses
from penstock_spark.source.options import SourceOptions
from penstock_spark.source.partitions import Range, Ranges, plan_partitions
from penstock_spark.source.reading import Connect, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader", "WrongCheckpoint", "read_offset", "write_offset"]

_IDENTITY: Final = re.compile(r"[0-9a-f]{24}", re.ASCII)


class WrongCheckpoint(ValueError):
    """The checkpoint's offset is not of this source, or of another protocol; the message says what is wrong."""


def write_offset(positions: Mapping[str, int], identities: Mapping[str, str]) -> dict[str, Any]:
    """Return positions as a checkpoint holds them: always in the same order, since Spark compares the text."""
    return {
        stream: [position, identity] if (identity := identities.get(stream)) else position
        for stream, position in sorted(positions.items())
    }


def read_offset(offset: Any) -> dict[str, StreamCheckpoint]:
    """Return the checkpoint of each stream; earlier versions have no identities. Raises WrongCheckpoint."""
    if not isinstance(offset, dict):
        raise WrongCheckpoint(
            f"the checkpoint has {offset!r:.80}, not positions of streams: it belongs to another source"
        )
    checkpoints = {}
    for stream, entry in offset.items():
        match entry:
            case int() if type(entry) is int and entry >= 0:
                checkpoints[stream] = StreamCheckpoint(entry)
            case [int(number), str(identity)] if number >= 0 and _IDENTITY.fullmatch(identity):
                checkpoints[stream] = StreamCheckpoint(number, identity)
            case _:
                raise WrongCheckpoint(
                    f"the checkpoint has {entry!r} for {stream}, not a sequence number: it belongs to another source, "
                    "or was written over another protocol"
                )
    return checkpoints


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `connect` opens a client, on the driver and in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect
        self._open: ClientPool | None = None
        self._target: Mapping[str, int] | None = None
        self._seen: Mapping[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without connections, for tasks."""
        return {**self.__dict__, "_open": None}

    @property
    def _clients(self) -> ClientPool:
        if self._open is None:
            self._open = ClientPool(self._connect)
        return self._open

    @property
    def _following(self) -> MicroBatchPlanner:
        return MicroBatchPlanner(self._clients, self._options.selection, Losses(self._options.fail_on_data_loss))

    # ---- planning, on the driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Return where a query without a checkpoint begins, by option `start`."""
        following = self._following
        positions = following.begin(self._options.start)
        return write_offset(positions, following.identities(positions, {}))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of option `max_records_per_batch`."""
        most = self._options.max_records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query to what exists now, also in streams that it did not know."""
        self._target = self._following.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch. Raises DataLost, WrongCheckpoint, OperationFailed."""
        known = read_offset(start)
        following = self._following
        self._seen = following.ends() if self._target is None else self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        positions = following.advance(known, self._seen, most)
        return write_offset(positions, following.identities(positions, known))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the streams' ends when a micro-batch was last planned; None if there are none."""
        return write_offset(self._seen, {}) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch. They follow from the two offsets alone, so that a repeated one has the
        same."""
        begun, ended = read_offset(start), read_offset(end)
        ranges = [
            Range(stream, begun[stream].position, until.position)
            for stream, until in ended.items()
            if stream in begun and begun[stream].position < until.position
        ]
        options = self._options
        planned = plan_partitions(
            ranges,
            records_per_partition=options.records_per_partition,
            min_partitions=options.min_partitions,
        )
        return [*planned]

    def stop(self) -> None:
        """Close the connections: the query has ended."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # ---- reading, in a task ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        assert isinstance(partition, Ranges)
        options = self._options
        return read_ranges(
            self._connect,
            partition.ranges,
            self._schema,
            fail_on_data_loss=options.fail_on_data_loss,
            late_is_null=options.unreadable_timestamps,
        )
