"""Statistics of clients' operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.spark.tables import at, moment, table

from penstock_spark.jobs.schemas import THROUGHPUT, USAGE
from penstock_spark.jobs.usage import MOST_CODES, throughput, usage
from penstock_spark.schemas import CONNECTIONS, MESSAGES, SEEN_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def of(conversation: int, **more: Any) -> dict[str, Any]:
    usual = {"file": "f", "conversation": conversation, "side": "front", "protocol": "s2", "client_host": "10.0.0.1"}
    return usual | more


def said(conversation: int, length: int | None, **more: Any) -> dict[str, Any]:
    return of(conversation, length=length, stream="b/s", end=at(0), records=0, kind="k", failed=False) | more


def test_each_client_stream_and_protocol_is_counted_by_itself(spark: SparkSession) -> None:
    messages = [
        said(1, 60, metered=100),
        said(1, 40, metered=20),
        said(1, 500, kind="GET"),
        said(2, 10, stream="b/s"),
        said(3, 7, identity="alice", failed=True, failure="ERR_FULL: no room"),
        said(3, 7, identity="alice", failure="ERR_FULL: the same again"),
        said(3, None, identity="alice", kind="problem", failed=None),
        said(4, 9, side="back"),
        said(5, None, client_host="10.0.0.5", stream=None, kind="problem", failed=None),
    ]
    connections = [of(number, messages=1) for number in (1, 2)] + [of(9, messages=0), of(10, messages=0)]
    connections.append(of(5, client_host="10.0.0.5", messages=0, problems=1))  # garbage is no message
    header = {"name": b"n", "value": b"vv"}
    records = [
        of(1, action="appended", acknowledged=True, stream="b/s", body=b"12345", headers=[header, header]),
        of(1, action="appended", acknowledged=False, stream="b/s", body=b"lost", headers=[]),
        of(2, action="delivered", acknowledged=True, stream="b/s", body=b"123", headers=[]),
    ]
    tables = (
        table(spark, CONNECTIONS, connections),
        table(spark, MESSAGES, messages),
        table(spark, SEEN_RECORDS, records),
    )
    found = usage(*tables)
    assert found.columns == [column.name for column in USAGE]
    rows = {(row.side, row.client, row.stream): row for row in found.collect()}
    names = ("connections", "messages", "bytes", "appended", "delivered", "record_bytes", "errors", "error_codes")
    assert {key: tuple(row[name] for name in names) for key, row in rows.items()} == {
        ("front", "10.0.0.1", "b/s"): (2, 4, 610, 1, 1, 14, 0, None),
        ("front", "alice", "b/s"): (1, 2, 14, 0, 0, 0, 2, {"ERR_FULL": 1, "PROTOCOL": 1}),
        ("front", "10.0.0.1", None): (2, 0, 0, 0, 0, 0, 0, None),
        ("back", "10.0.0.1", "b/s"): (1, 1, 9, 0, 0, 0, 0, None),
        ("front", "10.0.0.5", None): (1, 0, 0, 0, 0, 0, 1, {"PROTOCOL": 1}),
    }
    assert rows["front", "10.0.0.1", "b/s"].compression_ratio == 1.2
    assert rows["front", "alice", "b/s"].compression_ratio is None
    (front,) = usage(*tables, by=["protocol"]).where("side = 'front'").collect()
    assert (front.client, front.stream, front.protocol, front.connections) == (None, None, "s2", 6)


def test_codes_that_a_server_makes_up_are_bounded(spark: SparkSession) -> None:
    codes = [f"E{number:03}" for number in range(100)]
    messages = [said(1, 1, failed=True, failure=f"{code}: it") for code in [*codes, "E099"]]
    (row,) = usage(
        table(spark, CONNECTIONS, []), table(spark, MESSAGES, messages), table(spark, SEEN_RECORDS, [])
    ).collect()
    assert len(row.error_codes) == MOST_CODES + 1
    assert row.error_codes["E099"] == 2
    assert sum(row.error_codes.values()) == row.errors == 101


def test_throughput_counts_what_went_by_in_each_window(spark: SparkSession) -> None:
    messages = [said(1, 5, end=at(ms), records=2) for ms in (0, 900, 30_000)] + [
        said(1, None, end=at(1), kind="problem")
    ]
    found = throughput(table(spark, MESSAGES, messages), every_s=10)
    assert found.columns == [column.name for column in THROUGHPUT]
    rows = found.collect()
    assert [(row.messages, row.bytes, row.records) for row in rows] == [(2, 10, 4), (1, 5, 2)]
    assert (rows[1].start - rows[0].start).total_seconds() == 30
    assert rows[0].start == moment(0)


def test_what_cannot_be_told_apart_is_refused(spark: SparkSession) -> None:
    empty = table(spark, CONNECTIONS, []), table(spark, MESSAGES, []), table(spark, SEEN_RECORDS, [])
    assert usage(*empty).collect() == []
    with pytest.raises(ValueError, match="by 'route'"):
        usage(*empty, by=["route"])
    with pytest.raises(ValueError, match="1 second"):
        throughput(empty[1], every_s=0)
