"""Two views of streams through a real Spark: equality is proven, and each planted difference reported by its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn
from support.spark import tables

from penstock_spark.jobs.audit import KINDS, audit
from penstock_spark.jobs.schemas import DIFFERENCES, VERDICTS
from penstock_spark.jobs.views import records_of
from penstock_spark.schemas import RECORDS, SEEN_RECORDS
from penstock_spark.sink.marker import MARKER

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
    return tables.table(spark, RECORDS, rows)


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


def test_by_position_nothing_is_excused_and_timestamps_count_where_one_asks(spark: SparkSession) -> None:
    whole = bodies(40)
    exact, late = stream_of("b/exact", whole), stream_of("b/late", whole)
    right_late = [row | {"timestamp": row["timestamp"] + 1_000 * (row["seq_num"] == 7)} for row in late]
    shifted, right_shifted = stream_of("b/shifted", whole), stream_of("b/shifted", whole, first=1)
    lost = stream_of("b/lost", whole)
    left = table(spark, [*exact, *late, *shifted, *lost])
    right = table(spark, [*exact, *right_late, *right_shifted, *lost[:5], *lost[6:]])
    by_position = audit(left, right, by="position", also=["timestamp"])
    verdicts = {row.stream: (row.verdict, counts(row)) for row in by_position.verdicts.collect()}
    (altered,) = by_position.differences.where("stream = 'b/late'").collect()
    (gone,) = by_position.differences.where("stream = 'b/lost'").collect()
    by_position.close()
    assert verdicts["b/exact"] == ("equal", {})
    assert verdicts["b/late"] == ("different", {"altered": 1})
    assert verdicts["b/lost"] == ("different", {"lost": 1})
    assert verdicts["b/shifted"][0] == "different"
    assert (altered.left_seq_num, altered.right_seq_num, altered.fields) == (7, 7, ["timestamp"])
    assert (gone.left_seq_num, gone.right_seq_num) == (5, None)
    by_content = audit(left, right)
    assert {row.stream: row.verdict for row in by_content.verdicts.collect()} == {
        "b/exact": "equal", "b/late": "equal", "b/shifted": "equal", "b/lost": "different",
    }  # fmt: skip
    by_content.close()


def test_a_capture_is_compared_with_the_stream_that_it_is_of(spark: SparkSession) -> None:
    """Appended by S3P and acknowledged, against what was delivered to two readers, one of whom got a record twice."""
    usual = {"file": "f", "side": "front", "acknowledged": True, "exchange": 1, "headers": [], "timestamp": None}
    appended = [
        usual | {"action": "appended", "conversation": 1, "stream": "orders", "record_id": f"{9 + at}-0", "body": body,
                 "settled": at}
        for at, body in enumerate(bodies(4))
    ]  # fmt: skip
    refused = appended[0] | {"acknowledged": False, "record_id": None, "body": b"refused"}
    server = appended[0] | {"side": "back", "conversation": 7, "body": b"of the back"}
    left = capture(spark, [*appended[::-1], refused, server])
    delivered = [
        usual | {"action": "delivered", "conversation": reader, "stream": "b/orders", "seq_num": 5 + at, "body": body,
                 "sent": 10 * reader + at}
        for reader in (2, 3) for at, body in enumerate(bodies(4))
    ]  # fmt: skip
    same = audit(left, capture(spark, delivered))
    assert [(row.stream, row.right_stream, row.verdict) for row in same.verdicts.collect()] == [
        ("orders", "b/orders", "equal")
    ]
    same.close()
    doubled = audit(left, capture(spark, [*delivered, delivered[2]]))
    assert [counts(row) for row in doubled.verdicts.collect()] == [{"doubled": 1}]
    doubled.close()


def test_what_readers_were_given_at_once_is_told_once(spark: SparkSession) -> None:
    """A position with two different records, delivered in one message to each of two readers in different orders."""
    usual = {"file": "f", "side": "front", "exchange": 1, "headers": [], "action": "delivered", "stream": "b/s"}
    rows = [
        usual | {"conversation": reader, "seq_num": 5, "body": body, "sent": 1_000}
        for reader, both in enumerate([(b"a", b"b"), (b"b", b"a")] * 4)
        for body in both
    ]
    assert sorted(bytes(row.body) for row in records_of(capture(spark, rows)).collect()) == [b"a", b"b"]


def test_numbers_that_are_doubled_and_missing_alike_are_not_dense(spark: SparkSession) -> None:
    """As many as from the first to the last: so a count alone does not tell."""
    left = stream_of("b/s", [b"x"] * 6)
    right = [row | {"seq_num": 2 if row["seq_num"] == 3 else row["seq_num"]} for row in left]
    by_position = audit(table(spark, left), table(spark, right), by="position")
    (verdict,) = by_position.verdicts.collect()
    by_position.close()
    assert (verdict.verdict, counts(verdict)) == ("different", {"reordered": 1})


def test_the_sinks_marker_makes_no_difference_unless_one_asks(spark: SparkSession) -> None:
    pair = (b"k", b"v")
    left = [record("b/s", 0, b"a", [pair]), record("b/s", 1, b"b"), record("b/s", 2, b"c", [(MARKER, b"s 1 0 0 9 x")])]
    right = [record("b/s", 0, b"a", [pair, (MARKER, b"t 0 0 0 1 y")]), *left[1:]]
    for ignored, verdict, altered in (((MARKER,), "equal", 0), ((), "different", 1)):
        result = audit(table(spark, left), table(spark, right), ignored_headers=ignored)
        (row,) = result.verdicts.collect()
        result.close()
        assert (row.verdict, row.altered) == (verdict, altered)


def capture(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return tables.table(spark, SEEN_RECORDS, rows)


def test_what_cannot_be_compared_is_refused(spark: SparkSession) -> None:
    numbered, bare = table(spark, stream_of("b/s", [b"a"])), table(spark, [record("b/s", None, b"a")])
    with pytest.raises(ValueError, match="got 'time'"):
        audit(numbered, numbered, by="time")
    with pytest.raises(ValueError, match="'offset' cannot be compared"):
        audit(numbered, numbered, also=["offset"])
    with pytest.raises(ValueError, match="by position: some records"):
        audit(numbered, bare, by="position")
    with pytest.raises(ValueError, match="needs the columns body"):
        audit(numbered.drop("body"), numbered)
    with pytest.raises(ValueError, match="1 records have no stream"):
        audit(numbered, numbered.withColumn("stream", fn.lit(None).cast("string")))


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_ten_million_small_records_are_proven_equal_and_one_lost_among_them_is_found(spark: SparkSession) -> None:
    count = 10_000_000
    left = spark.range(count).selectExpr(
        "'b/s' AS stream", "id AS seq_num", "encode(concat('record ', id), 'UTF-8') AS body"
    )
    # The other way round in another number of parts, counted from elsewhere: S3P's numbers are those of the query.
    right = spark.range(count - 1, -1, -1, 5).selectExpr(
        "'s' AS stream", "id + 17 AS seq_num", "encode(concat('record ', id), 'UTF-8') AS body"
    )
    proof = audit(left, right)
    (row,) = proof.verdicts.collect()
    proof.close()
    assert (row.verdict, row.left_records, row.right_records) == ("equal", count, count)
    assert row.left_digest == row.right_digest
    found = audit(left, right.where(f"seq_num <> {count // 2 + 17}"))
    (difference,) = found.differences.collect()
    found.close()
    assert (difference.kind, difference.left_seq_num) == ("lost", count // 2)
