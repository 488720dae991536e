"""Tables of captures without Spark: the rows of the source's tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock_spark.capture.batch import CaptureBatchReader
from penstock_spark.capture.decoding import RecordingPart, decode_rows
from penstock_spark.capture.files import find_captures
from penstock_spark.capture.options import capture_options
from penstock_spark.capture.recordings import recordings_of
from penstock_spark.capture.streaming import CaptureStreamReader
from penstock_spark.schemas import ALL_TABLES, CAPTURE_TABLES, arrow_schema, capture_schema, spark_schema

__all__ = ["Stream", "bag", "part_of", "read", "rows", "schema_of"]

Row = dict[str, Any]


def schema_of(table: str, names: Sequence[str] | None = None) -> pa.Schema:
    """Return all columns of a table, or these in this order."""
    if table == ALL_TABLES:
        return arrow_schema(capture_schema(table))
    columns = {column.name: column for column in CAPTURE_TABLES[table]}
    return arrow_schema(spark_schema(tuple(columns[name] for name in names or columns)))


def part_of(*paths: str | Path, table: str = "records", **more: Any) -> RecordingPart:
    """Return the only recording of these files."""
    (recording,) = recordings_of(find_captures([str(path) for path in paths]))
    return replace(RecordingPart(recording, table, recording.file), **more)


def rows(part: RecordingPart, names: Sequence[str] | None = None) -> list[Row]:
    """Return the rows of a task."""
    schema = schema_of(part.table, names)
    return pa.Table.from_batches(decode_rows(part, schema), schema).to_pylist()


def read(path: str | Path, table: str, names: Sequence[str] | None = None, **options: object) -> list[Row]:
    """Return the rows of a batch query."""
    given = {"path": str(path), "table": table, **{name: str(value).lower() for name, value in options.items()}}
    schema = schema_of(table, names)
    reader = CaptureBatchReader(capture_options(given), schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema).to_pylist()


def bag(found: Iterable[Row], without: Sequence[str] = ()) -> Counter[str]:
    """Rows whatever their order; `without`: columns that do not count."""
    return Counter(repr({name: value for name, value in row.items() if name not in without}) for row in found)


class Stream:
    """A streaming query, without Spark: micro-batches one by one, offsets as a checkpoint keeps them."""

    def __init__(self, path: Path, table: str, names: Sequence[str] | None = None, **options: object) -> None:
        given = {name: str(value).lower() for name, value in options.items()}
        self._options = capture_options({"path": str(path), "table": table, "settle_seconds": "0", **given})
        self._schema = schema_of(table, names)
        self.reader = CaptureStreamReader(self._options, self._schema)
        self.offset = self.reader.initialOffset()

    def batch(self) -> list[Row]:
        """Return the next micro-batch; nothing if there is nothing new."""
        start = self.offset
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        if end == start:
            return []
        self.offset = end
        return self.between(start, end)

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        """Read the rows between two offsets; they can be read repeatedly."""
        reader = CaptureStreamReader(self._options, self._schema)  # as after a restart
        batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
        return pa.Table.from_batches(batches, self._schema).to_pylist()

    def rest(self) -> list[list[Row]]:
        """Micro-batches until nothing is new."""
        found = []
        while True:
            before = self.offset
            rows = self.batch()
            if self.offset == before:
                return found
            found.append(rows)
