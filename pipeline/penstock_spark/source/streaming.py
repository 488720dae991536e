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

from penstock_spark.clients.base import ReadPosition
from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.source.bounds import order
from penstock_spark.source.following import Ends, MicroBatchPlanner, StreamCheckpoint
from penstock_spark.source.loss import Losses
from penstock_spark.source.options import SourceOptions
from penstock_spark.source.partitions import Range, Ranges, plan_partitions
from penstock_spark.source.reading import Connect, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader", "WrongCheckpoint", "read_offset", "write_offset"]

_PLACE: Final = re.compile(r"\d+|[!-~]*,[!-~]*", re.ASCII)
"""See `ReadPosition.place`."""
_IDENTITY: Final = re.compile(r"(\d{1,6}:)?[0-9a-f]{24}", re.ASCII)


class WrongCheckpoint(ValueError):
    """The checkpoint's offset is not of this source, or of another protocol; the message says what is wrong."""


def write_offset(places: Mapping[str, ReadPosition], identities: Mapping[str, str]) -> dict[str, Any]:
    """Return places as a checkpoint holds them: always in the same order, since Spark compares the text."""
    written: dict[str, Any] = {}
    for stream, mark in sorted(places.items()):
        said = [mark.seq_num, *filter(None, (mark.place, identities.get(stream)))]
        written[stream] = said if len(said) > 1 else mark.seq_num
    return written


def read_offset(offset: Any, *, indexed: bool) -> dict[str, StreamCheckpoint]:
    """Return the checkpoint of each stream; earlier versions have no identities. `indexed`: the protocol's sequence
    numbers are places. Raises WrongCheckpoint."""
    if not isinstance(offset, dict):
        raise WrongCheckpoint(
            f"the checkpoint has {offset!r:.80}, not positions of streams: it belongs to another source"
        )
    places = {}
    for stream, said in offset.items():
        match said:
            case int() if indexed and type(said) is int and said >= 0:
                places[stream] = StreamCheckpoint(ReadPosition(said))
            case [int(number), str(identity)] if indexed and number >= 0 and _IDENTITY.fullmatch(identity):
                places[stream] = StreamCheckpoint(ReadPosition(number), identity)
            case [int(number), str(place)] if not indexed and number >= 0 and _PLACE.fullmatch(place):
                places[stream] = StreamCheckpoint(ReadPosition(number, place))
            case [int(number), str(place), str(identity)] if (
                not indexed and number >= 0 and _PLACE.fullmatch(place) and _IDENTITY.fullmatch(identity)
            ):
                places[stream] = StreamCheckpoint(ReadPosition(number, place), identity)
            case _:
                wanted = "a sequence number" if indexed else "a number and a position"
                raise WrongCheckpoint(
                    f"the checkpoint has {said!r} for {stream}, not {wanted}: "
                    "it belongs to another source, or was written over another protocol"
                )
    return places


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `connect` opens a client, on the driver and in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect
        self._open: ClientPool | None = None
        self._bounded = False
        self._target: Ends | None = None
        self._seen: Ends = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without connections, for tasks."""
        return {**self.__dict__, "_open": None}

    @property
    def _clients(self) -> ClientPool:
        if self._open is None:
            self._open = ClientPool(self._connect)
        return self._open

    @property
    def _indexed(self) -> bool:
        return self._clients.first.indexed

    @property
    def _following(self) -> MicroBatchPlanner:
        return MicroBatchPlanner(self._clients, self._options.selection, Losses(self._options.fail_on_data_loss))

    # ---- planning, on the driver ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Return where a query without a checkpoint begins, by option `start`."""
        following = self._following
        places = following.begin(self._options.start)
        return write_offset(places, following.identities(places, {}))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of option `max_records_per_batch`."""
        most = self._options.max_records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query to what exists now, also in streams that it did not know. If only reading finds the
        ends, they are looked up when the first positions are known."""
        self._bounded = True
        if self._indexed:
            self._target = self._following.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch. Raises DataLost, WrongCheckpoint, OperationFailed."""
        known = read_offset(start, indexed=self._indexed)
        identities = {
            stream: known_position.identity for stream, known_position in known.items() if known_position.identity
        }
        following = self._following
        if self._bounded and self._target is None:
            self._target = following.ends(
                since={stream: known_position.mark for stream, known_position in known.items()}
            )
        self._seen = following.ends() if self._target is None else self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        places = following.advance(
            {stream: known_position.mark for stream, known_position in known.items()}, self._seen, most, identities
        )
        return write_offset(places, following.identities(places, known))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the streams' ends when a micro-batch was last planned; None if only reading finds them."""
        ends = {stream: mark for stream, mark in self._seen.items() if mark is not None}
        return write_offset(ends, {}) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a micro-batch. They follow from the two offsets alone, so that a repeated one has the
        same."""
        indexed = self._indexed
        begun, ended = (read_offset(offset, indexed=indexed) for offset in (start, end))
        ranges = [
            Range(stream, begun[stream].mark, until.mark)
            for stream, until in ended.items()
            if stream in begun and order(begun[stream].mark) < order(until.mark)
        ]
        options = self._options
        planned = plan_partitions(
            ranges,
            divisible=indexed,
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
            envelopes=options.envelopes,
            late_is_null=options.unreadable_timestamps,
        )
