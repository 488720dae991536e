"""Columns as Arrow batches, in the schema that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructType

from penstock.model.records import EVENT_TIME, Columns, Header
from penstock_spark.schemas import RECORDS, SOURCE_RECORDS, arrow_schema, spark_schema
from penstock_spark.source import arrow
from penstock_spark.source.arrow import NotRepresentable, to_batches

SCHEMA = spark_schema(RECORDS)


def rows(pieces: Iterable[Columns], schema: StructType = SCHEMA) -> list[dict[str, Any]]:
    return [row for batch in to_batches("b/s", pieces, schema) for row in batch.to_pylist()]


pieces = st.lists(
    st.lists(
        st.tuples(st.binary(max_size=5), st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=3)),
        max_size=6,
    ),
    max_size=6,
)


@given(pieces)
def test_records_as_they_are(pieces: list[list[tuple[bytes, list[tuple[bytes, bytes]]]]]) -> None:
    expected, columns, at = [], [], 5
    for piece in pieces:
        headers = {index: tuple(Header(*pair) for pair in pairs) for index, (_, pairs) in enumerate(piece) if pairs}
        numbers = range(at, at + len(piece))
        columns.append(Columns(numbers, [10 * number for number in numbers], [body for body, _ in piece], headers))
        for number, (body, pairs) in zip(numbers, piece, strict=True):
            shown = [{"name": name, "value": value} for name, value in pairs]
            expected.append((number, 10 * number, shown, body))
        at += len(piece)
    found = [
        (row["seq_num"], row["timestamp"].timestamp() * 1000, row["headers"], row["body"]) for row in rows(columns)
    ]
    assert found == expected


def test_small_pieces_are_put_together_and_large_ones_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 100)
    monkeypatch.setattr(arrow, "MAX_BATCH_ROWS", 150)
    counts = [30] * 10 + [400]
    pieces = [Columns(range(count), [5] * count, [b"x"] * count) for count in counts]
    batches = list(to_batches("b/s", pieces, SCHEMA))
    assert [batch.num_rows for batch in batches] == [120, 120, 150, 150, 150, 10]
    assert all(batch.schema.equals(arrow_schema(SCHEMA)) for batch in batches)


def test_a_batch_is_given_away_before_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_BYTES", 1000)
    pieces = (Columns([index], [5], [b"x" * 300]) for index in range(6))
    assert [batch.num_rows for batch in to_batches("b/s", pieces, SCHEMA)] == [4, 2]


def test_columns_in_any_order_and_case_and_not_all() -> None:
    schema = StructType().add("Body", BinaryType(), nullable=False).add("SEQ_NUM", "long")
    pieces = [Columns([7], [5], [b"x"])]
    assert rows(pieces, schema) == [{"Body": b"x", "SEQ_NUM": 7}]
    (batch,) = to_batches("b/s", pieces, schema)
    assert batch.schema.equals(arrow_schema(schema))


MOST_MS = (2**63 - 1) // 1000


def test_the_largest_numbers() -> None:
    (batch,) = to_batches("b/s", [Columns([2**63 - 1], [MOST_MS], [b""])], SCHEMA)
    assert batch.column("seq_num").to_pylist() == [2**63 - 1]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [MOST_MS * 1000]


def test_numbers_that_are_too_large() -> None:
    with pytest.raises(NotRepresentable, match=f"b/s: sequence number {2**63} is more"):
        rows([Columns([2**63], [5], [b""])])
    pieces = [Columns([0, 1], [5, 5], [b"", b""]), Columns([2], [MOST_MS + 1], [b""])]
    with pytest.raises(NotRepresentable, match=f"record 2 has timestamp {MOST_MS + 1} ms"):
        rows(pieces)
    with pytest.raises(NotRepresentable, match=f"record 2 has timestamp {2**64 - 1} ms"):
        rows([*pieces[:1], Columns([2], [2**64 - 1], [b""])])
    given = Columns([2, 3], [MOST_MS + 1, 7], [b"", b""])
    (batch,) = to_batches("b/s", [given], SCHEMA, late_is_null=True)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [None, 7000]
    numbers_only = StructType().add("seq_num", "long")
    assert [row["seq_num"] for row in rows(pieces, numbers_only)] == [0, 1, 2]


def test_event_times_may_fall() -> None:
    """They are the timestamps, but for records whose header has another one."""
    headers = {1: (Header(b"a", b""), Header(EVENT_TIME, b"3")), 2: (Header(EVENT_TIME, b"?"),)}
    found = rows([Columns(range(3), [7, 8, 9], [b""] * 3, headers)], spark_schema(SOURCE_RECORDS))
    for column, times in (("timestamp", [7, 8, 9]), ("event_time", [7, 3, 9])):
        assert [row[column].timestamp() * 1000 for row in found] == times
    late = {0: (Header(EVENT_TIME, b"%d" % 2**64),), 1: (Header(EVENT_TIME, b"%d" % 2**63),)}
    with pytest.raises(NotRepresentable, match="record 1 has event_time 9223372036854775808 ms"):
        rows([Columns(range(2), [1, 1], [b"", b""], late)], spark_schema(SOURCE_RECORDS))
