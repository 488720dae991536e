"""Two views of streams through a real Spark: equality is proven, each planted difference is told as what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock_spark.jobs.audit import KINDS, audit
from penstock_spark.jobs.schemas import DIFFERENCES, VERDICTS
from penstock_spark.schemas import RECORDS, arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

START = 1_700_000_000_000


def record(stream: str, number: int | None, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    pairs = [{"name": name, "value": value} for name, value in headers]
    time = None if number is None else (START + number) * 1000
    return {"stream": stream, "seq_num": number, "timestamp": time, "headers": pairs, "body": body}


def stream_of(stream: str, bodies: Sequence[bytes], first: int = 0) -> list[dict[str, Any]]:
    return [record(stream, first + at, body) for at, body in enumerate(bodies)]


def table(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    schema = arrow_schema(spark_schema(RECORDS))
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema), spark_schema(RECORDS))


def bodies(count: int) -> list[bytes]:
    return [b"record %d" % number for number in range(count)]


def found(result: DataFrame) -> list[tuple[str, str, int | None, int | None]]:
    """Stream, kind, place on the left, place on the right."""
    rows = result.select("stream", "kind", "left_ordinal", "right_ordinal").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def counts(row: Row) -> dict[str, int]:
    return {kind: row[kind] for kind in KINDS if row[kind]}


def test_each_difference_is_told_as_what_it_is_in_its_own_stream(spark: SparkSession) -> None:
    whole = bodies(3_000)
    lost = whole[:700] + whole[701:]
    doubled = whole[:1_500] + whole[1_499:]
    moved = [*whole[:10], *whole[11:2_000], whole[10], *whole[2_000:]]
    swapped = [*whole[:99], whole[100], whole[99], *whole[101:]]
    altered = [*whole[:50], b"another", *whole[51:]]
    added = [*whole[:2_999], b"new", whole[2_999]]
    several = [*whole[:5], *whole[6:900], b"changed", *whole[901:], whole[3]]
    changed = {
        "lost": lost, "doubled": doubled, "moved": moved, "swapped": swapped, "altered": altered, "added": added,
        "several": several, "same": whole, "none": [],
    }  # fmt: skip
    left = [row for name in changed for row in stream_of(f"b/{name}", whole)]
    right = [row for name, kept in changed.items() for row in stream_of(name, kept, first=7)]
    result = audit(table(spark, left), table(spark, right))
    verdicts = {row.stream: row for row in result.verdicts.collect()}
    differences = result.differences.collect()
    places = found(result.differences)
    result.close()
    assert result.verdicts.columns == [column.name for column in VERDICTS]
    assert result.differences.columns == [column.name for column in DIFFERENCES]
    assert {name: (row.verdict, counts(row)) for name, row in verdicts.items()} == {
        "b/lost": ("different", {"lost": 1}),
        "b/doubled": ("different", {"doubled": 1}),
        "b/moved": ("different", {"reordered": 1}),
        "b/swapped": ("different", {"reordered": 1}),
        "b/altered": ("different", {"altered": 1}),
        "b/added": ("different", {"added": 1}),
        "b/several": ("different", {"lost": 1, "altered": 1, "doubled": 1}),
        "b/same": ("equal", {}),
        "b/none": ("only left", {"lost": 3_000}),
    }
    assert verdicts["b/same"].right_stream == "same"
    assert verdicts["b/same"].left_digest == verdicts["b/same"].right_digest != verdicts["b/lost"].right_digest
    swap = next(place for place in places if place[0] == "b/swapped")
    assert swap[2:] in ((99, 100), (100, 99))
    assert [place for place in places if place != swap] == sorted(
        [
            ("b/lost", "lost", 700, None),
            ("b/doubled", "doubled", None, places[[place[0] for place in places].index("b/doubled")][3]),
            ("b/moved", "reordered", 10, 1_999),
            ("b/altered", "altered", 50, 50),
            ("b/added", "added", None, 2_999),
            ("b/several", "lost", 5, None),
            ("b/several", "altered", 900, 899),
            ("b/several", "doubled", None, 2_999),
        ],
        key=repr,
    )
    alteration = next(row for row in differences if row.stream == "b/altered")
    assert (alteration.left_sample, alteration.right_sample) == (b"record 50", b"another")
    assert (alteration.left_position, alteration.right_position) == ("seq_num 50", "seq_num 57")
    assert alteration.fields == ["body"]
