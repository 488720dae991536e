"""Batch reader of captures: `spark.read.format("penstock-capture")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock_spark.capture.files import find_captures
from penstock_spark.capture.grouping import RecordingPart, automatic
from penstock_spark.capture.options import CaptureOptions
from penstock_spark.capture.recordings import RecordingFiles, recordings_of

__all__ = ["CaptureBatchReader", "CapturePartition", "divided_part", "rows_of"]


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

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each recording, or for each group of its conversations. Raises Unreadable."""
        options = self._options
        recordings = recordings_of(find_captures(options.paths), together=options.together)
        return [
            CapturePartition(part)
            for recording in recordings
            for part in divided_part(RecordingPart(recording, options.table, recording.file), options, recording)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return rows_of(partition, self._schema)


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
