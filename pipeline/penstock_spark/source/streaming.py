"""The streaming reader: micro-batches from where the last one ended, as the checkpoint says, to where the streams end
now, or as much of that as is admitted.

A stream that appears later is in the offset with its first record in one micro-batch, and is read from the next on: so
that whatever happens in between, the checkpoint says where it began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock_spark.clients.base import Mark
from penstock_spark.clients.crew import Crew
from penstock_spark.source.bounds import order
from penstock_spark.source.following import Ends, Following
from penstock_spark.source.loss import Losses
from penstock_spark.source.options import SourceOptions
from penstock_spark.source.partitions import Range, Ranges, plan
from penstock_spark.source.reading import Connect, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader", "WrongCheckpoint", "read_offset", "write_offset"]

_PLACE: Final = re.compile(r"\d+(-\d+)?", re.ASCII)
"""S3P's identifiers, and offsets in bytes."""


class WrongCheckpoint(ValueError):
    """The checkpoint's offset is none of this source's, or of another protocol; the message says what is wrong."""


def write_offset(places: Mapping[str, Mark]) -> dict[str, Any]:
    """Places as a checkpoint holds them: always in the same order, since Spark compares the text."""
    return {
        stream: [mark.seq_num, mark.place] if mark.place else mark.seq_num for stream, mark in sorted(places.items())
    }


def read_offset(offset: Any, *, indexed: bool) -> dict[str, Mark]:
    """The places in a checkpoint. `indexed`: whether the protocol's sequence numbers are places. Raises
    WrongCheckpoint."""
    if not isinstance(offset, dict):
        raise WrongCheckpoint(f"the checkpoint says {offset!r:.80}, not places of streams: it is of another source")
    places = {}
    for stream, said in offset.items():
        match said:
            case int() if indexed and type(said) is int and said >= 0:
                places[stream] = Mark(said)
            case [int(number), str(place)] if not indexed and number >= 0 and _PLACE.fullmatch(place):
                places[stream] = Mark(number, place)
            case _:
                wanted = "a sequence number" if indexed else "a number and a place"
                raise WrongCheckpoint(
                    f"the checkpoint says {said!r} for {stream}, not {wanted}: "
                    "it is of another source, or was made over another protocol"
                )
    return places


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `connect` makes a client, here and in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, connect: Connect) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect
        self._open: Crew | None = None
        self._bounded = False
        self._target: Ends | None = None
        self._seen: Ends = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a reader without connections."""
        return {**self.__dict__, "_open": None}

    @property
    def _crew(self) -> Crew:
        if self._open is None:
            self._open = Crew(self._connect)
        return self._open

    @property
    def _indexed(self) -> bool:
        return self._crew.first.indexed

    @property
    def _following(self) -> Following:
        return Following(self._crew, self._options.selection, Losses(self._options.fail_on_data_loss))

    # ---- what Spark asks where it plans ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Where a query without a checkpoint begins, by option `start`."""
        return write_offset(self._following.begin(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Option `max_records_per_batch`."""
        most = self._options.max_records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that will be read, also of streams that this query did not know. Where only reading
        tells what is there, that is seen when it is known from where on."""
        self._bounded = True
        if self._indexed:
            self._target = self._following.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends. Raises DataLost, WrongCheckpoint, OperationFailed."""
        known = read_offset(start, indexed=self._indexed)
        if self._bounded and self._target is None:
            self._target = self._following.ends(since=known)
        self._seen = self._following.ends() if self._target is None else self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return write_offset(self._following.advance(known, self._seen, most))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the streams ended when a micro-batch was last planned; None where only reading tells."""
        ends = {stream: mark for stream, mark in self._seen.items() if mark is not None}
        return write_offset(ends) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch. They follow from the two offsets alone, so that a repeated one has the same."""
        indexed = self._indexed
        begun, ended = read_offset(start, indexed=indexed), read_offset(end, indexed=indexed)
        ranges = [
            Range(stream, begun[stream], mark)
            for stream, mark in ended.items()
            if stream in begun and order(begun[stream]) < order(mark)
        ]
        options = self._options
        planned = plan(
            ranges,
            divisible=indexed,
            records_per_partition=options.records_per_partition,
            min_partitions=options.min_partitions,
        )
        return [*planned]

    def stop(self) -> None:
        """The query has ended."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # ---- what a task does ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a partition."""
        assert isinstance(partition, Ranges)
        options = self._options
        return read_ranges(
            self._connect,
            partition.ranges,
            self._schema,
            fail_on_data_loss=options.fail_on_data_loss,
            envelopes=options.envelopes,
        )
