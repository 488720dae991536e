"""Columns of a written frame: check them when the job is planned, then convert Arrow batches to rows of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.model.records import Header, Headers
from penstock_spark.sink.digest import RowPiece
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.marker import MARKER

__all__ = ["COLUMNS", "ColumnLayout", "column_layout_of", "pieces"]

COLUMNS: Final = {
    "stream": "string; not needed with the option stream",
    "body": "binary or string",
    "headers": "array<struct<name, value>>, both binary or string; not needed",
    "timestamp": "timestamp; not needed",
    "seq_num": "not written: the server numbers records; allowed, because the source gives it",
    "event_time": "not written: the header penstock-event-time has it; allowed, because the source gives it",
}
"""The columns that a frame may have."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns that are written. Picklable. `stream`: the target of all rows; None: the column has it."""

    stream: str | None
    headers: bool
    timestamp: bool


def column_layout_of(schema: StructType, stream: str | None, ignore: frozenset[str]) -> ColumnLayout:
    """Return the layout of a frame with this schema. Raises SinkFailed with all faults."""
    types = {field.name: field.dataType for field in schema.fields if field.name not in ignore}
    if len(schema.fields) != len(set(schema.names)):
        raise SinkFailed(f"sink penstock: several columns have the same name: {', '.join(schema.names)}")
    faults = [
        f"{name}: records have no such column (only {', '.join(COLUMNS)}); the option ignore omits it"
        for name in types
        if name not in COLUMNS
    ]
    needed = {"body"} if stream is not None else {"body", "stream"}
    faults += [f"{name}: the frame has no such column ({COLUMNS[name]})" for name in sorted(needed - types.keys())]
    faults += [
        f"{name}: is {types[name].simpleString()}, not {COLUMNS[name].partition(';')[0]}"
        for name, fits in _FITS.items()
        if name in types and not fits(types[name])
    ]
    if faults:
        raise SinkFailed("\n  ".join((f"sink penstock: {len(faults)} columns cannot be written", *faults)))
    return ColumnLayout(stream, "headers" in types, "timestamp" in types)


def _is_bytes(data_type: DataType) -> bool:
    return isinstance(data_type, BinaryType | StringType)


def _are_headers(data_type: DataType) -> bool:
    pair = data_type.elementType if isinstance(data_type, ArrayType) else None
    return (
        isinstance(pair, StructType)
        and pair.names == ["name", "value"]
        and all(_is_bytes(field.dataType) for field in pair.fields)
    )


_FITS: Final[Mapping[str, Callable[[DataType], bool]]] = {
    "stream": lambda found: isinstance(found, StringType),
    "body": _is_bytes,
    "headers": _are_headers,
    "timestamp": lambda found: isinstance(found, TimestampType),
}


def pieces(batch: pa.RecordBatch, layout: ColumnLayout, first: int) -> Iterator[tuple[str, RowPiece]]:
    """Yield the rows of each stream, in order. `first`: the number of the batch's first row in its partition, for
    errors. Raises SinkFailed if a row has no stream or no body, or is not a valid record."""
    if layout.stream is not None:
        yield layout.stream, _piece(batch, layout, range(first, first + batch.num_rows))
        return
    streams = batch.column("stream")
    if streams.null_count:
        raise SinkFailed(f"row {first + _first_null(streams)} has no stream")
    coded = streams.dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], _piece(batch, layout, range(first, first + batch.num_rows))
        return
    order = pc.array_sort_indices(coded.indices)  # stable: keeps the order of rows of one stream
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(coded.indices).to_pylist()}
    sorted_batch = batch.take(order)
    start = 0
    for code, name in enumerate(names):
        some = sorted_batch.slice(start, counts[code])
        yield name, _piece(some, layout, [first + row for row in order.slice(start, counts[code]).to_pylist()])
        start += counts[code]


def _piece(batch: pa.RecordBatch, layout: ColumnLayout, rows: Sequence[int]) -> RowPiece:
    body = batch.column("body")
    if body.null_count:
        raise SinkFailed(f"row {rows[_first_null(body)]} has no body")
    headers = _headers(batch.column("headers"), rows) if layout.headers else {}
    times = _times(batch.column("timestamp"), rows) if layout.timestamp else None
    return RowPiece(_bytes(body).to_pylist(), headers, times)


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _first_null(column: pa.Array) -> int:
    index: int = pc.index(column.is_null(), True).as_py()
    return index


def _times(column: pa.Array, rows: Sequence[int]) -> list[int | None]:
    micros: list[int | None] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    if (pc.min(column.cast(pa.int64())).as_py() or 0) < 0:
        row = next(row for row, micros_of in zip(rows, micros, strict=True) if micros_of is not None and micros_of < 0)
        raise SinkFailed(f"row {row} has a timestamp before 1970, which records cannot have")
    return [None if micro is None else micro // 1000 for micro in micros]


def _headers(column: pa.Array, rows: Sequence[int]) -> dict[int, Headers]:
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    if not pc.any(pc.greater(lengths, 0)).as_py():
        return {}
    pairs = column.flatten()
    by_row: dict[int, Headers] = {}
    names, values = (_bytes(pc.struct_field(pairs, name)).to_pylist() for name in ("name", "value"))
    start = 0
    for index, length in enumerate(lengths.to_pylist()):
        if length:
            stop = start + length
            some = _header_list(names[start:stop], values[start:stop], rows[index])
            if some:
                by_row[index] = some
            start = stop
    return by_row


def _header_list(names: list[bytes | None], values: list[bytes | None], row: int) -> Headers:
    made = []
    for name, value in zip(names, values, strict=True):
        if name is None or value is None:
            raise SinkFailed(f"row {row} has a header without name or value")
        if not name:
            raise SinkFailed(
                f"row {row} has a header without name: it would be a command to the server, such as fence or "
                "trim. Filter out such rows; streams that were fenced or trimmed have them"
            )
        if name != MARKER:
            made.append(Header(name, value))
    return tuple(made)
