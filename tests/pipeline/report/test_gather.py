"""From a real recording to the page: its tables agree with the clients' operations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.captures.small_recording import Clients, small_recording
from support.captures.tables import read
from support.spark import tables

from penstock_spark.jobs.audit import audit
from penstock_spark.report import gather, gather_audit, gather_streams, page
from penstock_spark.schemas import CAPTURE_TABLES, RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def say(clients: Clients) -> None:
        clients.all()
        clients.following(rounds=5)

    return small_recording(tmp_path_factory.mktemp("reported"), say)


def of(spark: SparkSession, recording: Path) -> list[DataFrame]:
    return [tables.table(spark, columns, read(recording, name)) for name, columns in CAPTURE_TABLES.items()]


def test_a_page_of_a_real_recording(spark: SparkSession, recording: Path, tmp_path: Path) -> None:
    connections, messages, records = (table.persist() for table in of(spark, recording))
    found = gather(connections, messages, records)
    assert found.quality and found.latency_totals and found.throughput
    judged = {(row["stream"].rpartition("/")[2], row["action"]): row for row in found.quality.rows}
    for stream, action, many in (
        ("sessions", "appended", 30), ("sessions", "delivered", 30), ("orders-followed", "appended", 6),
        ("orders-followed", "delivered", 6), ("orders-s3p", "appended", 6),
    ):  # fmt: skip
        row = judged[stream, action]
        assert (row["verdict"], row["records"], row["gaps"] or 0, row["duplicates"]) == ("good", many, 0, 0)
    waited = [row for row in found.latency_totals.rows if row["kind"] == "delivery"]
    assert [(row["side"], row["route"], row["protocol"], row["count"]) for row in waited] == [
        ("front", "orders", "s2", 5)
    ]
    assert {row["route"] for row in found.latency_totals.rows if row["kind"] == "answer"} >= {"orders", "rest"}
    usage = {row["protocol"]: row for row in found.usage["protocol"].rows}
    assert usage["s3p"]["appended"] == 12
    assert usage["s3p"]["errors"] == 3
    assert usage["s3p"]["error_codes"] == {"ERR_BAD_FORMAT": 1, "ERR_UNKNOWN_STREAM": 1, "PROTOCOL": 1}
    assert usage["s2"]["compression_ratio"] > 1
    assert sum(row["messages"] for row in usage.values()) == sum(row["messages"] for row in found.throughput.rows)
    both = audit(
        records.where("action = 'appended' AND stream LIKE '%session%'"),
        records.where("action = 'delivered' AND stream LIKE '%session%'"),
    )
    assert {row.verdict for row in both.verdicts.collect()} == {"equal"}
    text = page(gather_audit(both, found))
    both.close()
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    assert text.count("<svg") == 3
    assert "orders-followed" in text


def test_a_page_of_nothing(spark: SparkSession) -> None:
    empty = [tables.table(spark, columns, []) for columns in CAPTURE_TABLES.values()]
    assert "Nothing was recorded." in page(gather(*empty))


def test_times_that_cannot_be_leave_the_others_readable(spark: SparkSession) -> None:
    """Seconds of 64 bits in a capture's packets: neither a page that fails, nor one window of 200,000 years."""
    usual = {"file": "f", "conversation": 1, "side": "front", "protocol": "s2", "length": 5, "answers_us": 9.0}
    times = [tables.at(0), tables.at(90_000), (1 << 63) - 1]
    rows: dict[str, list[dict[str, object]]] = {"messages": [usual | {"end": time} for time in times]}
    found = gather(*(tables.table(spark, columns, rows.get(name, [])) for name, columns in CAPTURE_TABLES.items()))
    assert (found.start_us, found.end_us, found.every_s) == (times[0], times[1], 1)
    assert found.throughput and found.latency and found.latency_totals
    assert [len(top.rows) for top in (found.throughput, found.latency)] == [2, 2]
    assert [row["count"] for row in found.latency_totals.rows] == [3]
    assert page(found).count("<svg") == 2


def test_without_routes_latency_over_time_is_drawn_all_the_same(spark: SparkSession) -> None:
    """A gateway without routes in its configuration, as most are."""
    usual = {"file": "f", "conversation": 1, "side": "front", "protocol": "s2", "answers_us": 9.0}
    messages = [usual | {"end": tables.at(0)}, usual | {"end": tables.at(5_000)}]
    rows: dict[str, list[dict[str, object]]] = {"messages": messages}
    found = gather(*(tables.table(spark, columns, rows.get(name, [])) for name, columns in CAPTURE_TABLES.items()))
    assert found.latency and [row["count"] for row in found.latency.rows] == [1, 1]


def test_a_page_of_streams_alone(spark: SparkSession) -> None:
    records = [
        {"stream": "b/s", "seq_num": number, "timestamp": tables.at(number * 1000), "headers": [], "body": b"x" * 9}
        for number in (0, 1, 1, 3)
    ]
    records.append(records[0] | {"stream": "b/undated", "timestamp": None})
    found = gather_streams(tables.table(spark, RECORDS, records))
    assert found.quality is None and found.throughput is None and found.start_us == tables.at(0)
    assert found.growth and [(row["records"], row["bytes"]) for row in found.growth.rows] == [(1, 9), (2, 18), (1, 9)]
    assert found.streams
    assert [(row["stream"], row["verdict"]) for row in found.streams.rows] == [("b/s", "bad"), ("b/undated", "good")]
    text = page(found)
    assert text.count("<svg") == 1 and text.count("<section") == 1 and "b/undated" in text
