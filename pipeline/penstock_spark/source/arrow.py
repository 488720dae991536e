"""Convert records to Arrow batches in the requested schema: whole columns at a time, without work per row if there are
no headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.model.records import Columns, Headers, event_time_of
from penstock_spark.schemas import arrow_schema

__all__ = ["NotRepresentable", "to_batches"]

BATCH_ROWS: Final = 20_000
"""Number of rows at which a batch is complete."""
MAX_BATCH_ROWS: Final = 50_000
"""Maximum number of rows per batch; Spark converts all rows of a batch at once."""
BATCH_BYTES: Final = 4 << 20
"""Number of bytes at which a batch is complete. At 1 KiB a record costs 0.33 us in batches of 1 MiB, 0.38 us in 4 MiB,
and 0.66 us in 16 MiB, which is newly allocated memory each time."""

_LOG: Final = logging.getLogger("penstock_spark.source")
_MOST: Final = 2**63 - 1
_MOST_MS: Final = _MOST // 1000
"""Spark's times are us in 63 bits."""


class NotRepresentable(ValueError):
    """A record has a number that the table's type cannot hold; the message names it."""


def to_batches(
    stream: str, pieces: Iterable[Columns], schema: StructType, *, late_is_null: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one stream, in order, as batches of some 10,000 rows or some MiB. Raises NotRepresentable.
    `late_is_null`: a timestamp too late for Spark becomes null, with a warning in the log."""
    made = arrow_schema(schema)
    gathered = _Gathered(late_is_null)
    for columns in pieces:
        gathered.add(columns)
        if gathered.rows >= BATCH_ROWS or gathered.bytes >= BATCH_BYTES:
            yield from _batches(stream, gathered, made)
            gathered = _Gathered(late_is_null)
    yield from _batches(stream, gathered, made)


class _Gathered:
    """Records gathered for a batch."""

    def __init__(self, late_is_null: bool) -> None:
        self.late_is_null = late_is_null
        self.rows = self.bytes = 0
        self.seq_nums: list[Sequence[int]] = []
        self.timestamps: list[int] = []
        self.bodies: list[bytes] = []
        self.headers: dict[int, Headers] = {}

    def add(self, columns: Columns) -> None:
        rows = len(columns.bodies)
        if not rows:
            return
        for index, headers in columns.headers.items():
            self.headers[self.rows + index] = headers
            self.bytes += sum(len(name) + len(value) for name, value in headers)
        self.seq_nums.append(columns.seq_nums)
        self.timestamps += columns.timestamps
        self.bodies += columns.bodies
        self.rows += rows
        self.bytes += sum(map(len, columns.bodies))


def _batches(stream: str, records: _Gathered, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not records.rows:
        return
    arrays = [_MAKERS[field.name.lower()](stream, records, field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, records.rows, MAX_BATCH_ROWS):
        yield batch.slice(start, MAX_BATCH_ROWS)


def _stream(stream: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(stream, kind), records.rows)


def _numbers(stream: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    parts = [_number_part(stream, seq_num) for seq_num in records.seq_nums]
    return pa.array(np.concatenate(parts), kind)


def _number_part(stream: str, numbers: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    first, last = numbers[0], numbers[-1]
    if last > _MOST:
        raise NotRepresentable(
            f"{stream}: sequence number {last} is more than 2^63-1, which is the most a bigint can hold"
        )
    if last - first == len(numbers) - 1:  # numbers increase, so they are dense
        return np.arange(first, last + 1, dtype=np.int64)
    return np.array(numbers, dtype=np.int64)


def _timestamps(stream: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    return _times(stream, records, kind, records.timestamps, "timestamp")


def _event_times(stream: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    own = {index: time for index, some in records.headers.items() if (time := event_time_of(some)) is not None}
    times = list(records.timestamps) if own else records.timestamps
    for index, time in own.items():
        times[index] = time
    return _times(stream, records, kind, times, "event_time")


def _times(stream: str, records: _Gathered, kind: pa.DataType, times: list[int], column: str) -> pa.Array:
    most = max(times)
    if most > _MOST_MS:
        number = _nth(records.seq_nums, times.index(most))
        if records.late_is_null:
            _LOG.warning("%s: record %d has %s %d ms: such times become null", stream, number, column, most)
            given = [None if time > _MOST_MS else time * 1000 for time in times]
            return pa.array(given, pa.int64()).view(kind)
        raise NotRepresentable(
            f"{stream}: record {number} has {column} {most} ms, above Spark's maximum ({_MOST_MS} ms); "
            f"to read the stream, set option unreadable_timestamps = true, or use a schema without `{column}`"
        )
    return pa.array(np.array(times, dtype=np.int64) * 1000, pa.int64()).view(kind)


def _nth(parts: Iterable[Sequence[int]], index: int) -> int:
    return next(islice(chain.from_iterable(parts), index, None))


def _bodies(_: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    return pa.array(records.bodies, kind)


def _headers(_: str, records: _Gathered, kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(records.rows + 1, dtype=np.int32)
    names: list[bytes] = []
    values: list[bytes] = []
    for index, headers in sorted(records.headers.items()):
        offsets[index + 1] = len(headers)
        names += [name for name, _ in headers]
        values += [value for _, value in headers]
    np.cumsum(offsets, out=offsets)
    pair = kind.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pair.field(0).type), pa.array(values, pair.field(1).type)],
        fields=[pair.field(0), pair.field(1)],
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)


_MAKERS: Final[Mapping[str, Callable[[str, _Gathered, pa.DataType], pa.Array]]] = {
    "stream": _stream,
    "seq_num": _numbers,
    "timestamp": _timestamps,
    "headers": _headers,
    "body": _bodies,
    "event_time": _event_times,
}
