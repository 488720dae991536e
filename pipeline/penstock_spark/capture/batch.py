"""Batch reader of captures: `spark.read.format("penstock-capture")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition

from penstock_spark.capture.facts import FACTS
from penstock_spark.capture.files import find_captures
from penstock_spark.capture.grouping import RecordingPart, automatic
from penstock_spark.capture.options import CaptureOptions
from penstock_spark.capture.recordings import RecordingFiles, recordings_of

__all__ = ["CaptureBatchReader", "CapturePartition", "FilteringCaptureBatchReader", "divided_part", "rows_of"]

_PUSHED: Final = frozenset({*FACTS, "protocol"} - {"identity"})
"""Columns by which whole conversations can be skipped."""


class CapturePartition(InputPartition):
    """The part that one task decodes."""

    def __init__(self, part: RecordingPart) -> None:
        super().__init__(part)
        self.part = part


class CaptureBatchReader(DataSourceReader):
    """Reads all files that exist when the query is planned; files still being written are read as far as they go."""

    def __init__(self, options: CaptureOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._only: dict[str, frozenset[Any]] = {}

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each recording, or for each group of its conversations. Raises Unreadable."""
        options = self._options
        recordings = recordings_of(find_captures(options.paths), together=options.together)
        return [
            CapturePartition(replace(part, only=self._only))
            for recording in recordings
            for part in divided_part(RecordingPart(recording, options.table, recording.file), options, recording)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return rows_of(partition, self._schema)


class FilteringCaptureBatchReader(CaptureBatchReader):
    """A CaptureReader for option `push_filters`: conversations that filters on their properties exclude are not
    decoded.

    Spark (4.1 to 4.3) keeps the last plan of such a reader for a whole DataFrame, and reuses it where another query, or
    another branch of the same one, has other filters or none: rows would be missing. So this is for DataFrames with one
    use.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Keep filters by which conversations can be skipped. All filters are returned: Spark evaluates them again."""
        for one in filters:
            wanted = _values(one)
            if wanted is not None:
                name, values = wanted
                self._only[name] = self._only.get(name, values) & values
        return filters


def rows_of(partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition. The decoders are imported here, in the processes of tasks: importing them takes
    0.5 s of processor time, and Spark plans a query in two further processes."""
    from penstock_spark.capture.decoding import decode_rows

    assert isinstance(partition, CapturePartition), "as planned"
    return decode_rows(partition.part, schema)


def divided_part(whole: RecordingPart, options: CaptureOptions, weighed: RecordingFiles) -> list[RecordingPart]:
    """Return a part divided into as many groups as the options set, or as suit the size of `weighed`."""
    groups = options.groups or automatic(weighed)
    whole = replace(whole, groups=groups, envelopes=options.envelopes, skip_unreadable=options.skip_unreadable)
    return [replace(whole, group=group) for group in range(groups)]


def _values(one: Filter) -> tuple[str, frozenset[Any]] | None:
    """Return the column that a filter is about and the values that it accepts; None for any other filter."""
    if not isinstance(one, (EqualTo, In)) or len(one.attribute) != 1 or one.attribute[0] not in _PUSHED:
        return None
    return one.attribute[0], frozenset([one.value] if isinstance(one, EqualTo) else one.value)
