"""Data frames that can be written, and the records made of their rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from penstock.model.records import Header
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.sink.columns import ColumnLayout, column_layout_of, pieces
from penstock_spark.sink.failures import SinkFailed

TEXT, BYTES, INT = types.StringType(), types.BinaryType(), types.IntegerType()
HEADERS = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.string())]))


def pairs(*names: str) -> types.ArrayType:
    return types.ArrayType(types.StructType([types.StructField(name, TEXT) for name in names]))


def schema(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, column) for name, column in columns.items()])


def rows_of(layout: ColumnLayout, first: int = 0, **columns: Any) -> list[tuple[str, Any]]:
    return list(pieces(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)), layout, first))


def test_what_the_source_gives_can_be_written() -> None:
    layout = column_layout_of(spark_schema(RECORDS), None, frozenset())
    assert layout == ColumnLayout(None, headers=True, timestamp=True)


def test_text_can_be_written() -> None:
    frame = schema(stream=TEXT, body=TEXT, headers=pairs("name", "value"))
    assert column_layout_of(frame, None, frozenset()) == ColumnLayout(None, headers=True, timestamp=False)


@pytest.mark.parametrize(
    ("frame", "faults"),
    [
        (schema(body=BYTES), ["stream: the frame has no such column"]),
        (schema(stream=TEXT), ["body: the frame has no such column"]),
        (
            schema(stream=INT, body=types.DoubleType()),
            ["stream: is int, not string", "body: is double, not binary or string"],
        ),
        (schema(stream=TEXT, body=BYTES, key=TEXT), ["key: records have no such column"]),
        (schema(stream=TEXT, body=BYTES, timestamp=types.LongType()), ["timestamp: is bigint, not timestamp"]),
        (
            schema(stream=TEXT, body=BYTES, headers=types.MapType(TEXT, TEXT)),
            ["headers: is map<string,string>, not array"],
        ),
        (schema(stream=TEXT, body=BYTES, headers=pairs("value", "name")), ["headers: is array"]),
    ],
)
def test_what_cannot_be_written_is_named(frame: types.StructType, faults: list[str]) -> None:
    with pytest.raises(SinkFailed) as refused:
        column_layout_of(frame, None, frozenset())
    assert all(fault in str(refused.value) for fault in faults)
    assert f"{len(faults)} columns" in str(refused.value)


def test_columns_can_be_left_out() -> None:
    frame = schema(stream=INT, body=BYTES, key=TEXT, headers=TEXT)
    layout = column_layout_of(frame, "penstock/a", frozenset({"stream", "key", "headers"}))
    assert layout == ColumnLayout("penstock/a", headers=False, timestamp=False)


def test_rows_are_parted_by_stream_in_their_order() -> None:
    found = rows_of(
        ColumnLayout(None, headers=True, timestamp=True),
        stream=pa.array(["b", "a", "b", "a", "c"]),
        body=pa.array(["0", "1", "é", "3", "4"]),
        headers=pa.array(
            [[(b"n", "v")], None, [(b"penstock-sink", "x"), (b"o", "w")], [], [(b"penstock-sink", "")]], HEADERS
        ),
        timestamp=pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, None, None, None], pa.timestamp("us", tz="UTC")),
    )
    named = dict(found)
    assert [name for name, _ in found] == ["b", "a", "c"]
    assert named["b"].bodies == [b"0", "é".encode()]
    assert named["b"].headers == {0: (Header(b"n", b"v"),), 1: (Header(b"o", b"w"),)}
    assert named["b"].timestamps == [1577836800000, None]
    assert named["a"].bodies == [b"1", b"3"]
    assert named["a"].headers == {} == named["c"].headers


def test_timestamps_are_whole_milliseconds() -> None:
    times = pa.array([1_999, 2_000, None], pa.timestamp("us", tz="UTC"))
    ((_, piece),) = rows_of(
        ColumnLayout("s", headers=False, timestamp=True), body=pa.array([b"", b"", b""]), timestamp=times
    )
    assert piece.timestamps == [1, 2, None]


BODIES = pa.array([b"x"] * 3)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"body": BODIES, "stream": pa.array(["a", None, "a"])}, "row 11 has no stream"),
        ({"body": pa.array([b"", b"", None]), "stream": pa.array(["b", "a", "b"])}, "row 12 has no body"),
        (
            {"body": BODIES, "headers": pa.array([[], [(None, "v")], []], HEADERS)},
            "row 11 has a header without name or",
        ),
        (
            {"body": BODIES, "headers": pa.array([[], [], [(b"", "fence")]], HEADERS)},
            "row 12 .*a command to the server",
        ),
        ({"body": BODIES, "timestamp": pa.array([0, -1, 0], pa.timestamp("us", tz="UTC"))}, "row 11 .*before 1970"),
    ],
)
def test_rows_that_are_no_records_are_named(columns: dict[str, pa.Array], why: str) -> None:
    layout = ColumnLayout(None if "stream" in columns else "s", "headers" in columns, "timestamp" in columns)
    with pytest.raises(SinkFailed, match=why):
        rows_of(layout, 10, **columns)


def test_a_slice_of_a_batch_is_its_rows() -> None:
    headers = pa.array([[(b"a", "1"), (b"b", "2")], [(b"c", "3")], None, [(b"d", "4")]], HEADERS)
    batch = pa.RecordBatch.from_arrays([pa.array([b"0", b"1", b"2", b"3"]), headers], ["body", "headers"]).slice(1, 3)
    ((_, piece),) = pieces(batch, ColumnLayout("s", headers=True, timestamp=False), 0)
    assert piece.bodies == [b"1", b"2", b"3"]
    assert piece.headers == {0: (Header(b"c", b"3"),), 2: (Header(b"d", b"4"),)}
