"""Times planted in messages and records, and what the percentiles say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.spark.tables import at, moment, table

from penstock_spark.jobs.audit import last_part
from penstock_spark.jobs.latency import deliveries, latency, percentiles
from penstock_spark.jobs.schemas import LATENCY
from penstock_spark.jobs.views import short_name
from penstock_spark.schemas import MESSAGES, SEEN_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def message(ms: float, took_us: float | None, **more: Any) -> dict[str, Any]:
    usual = {"file": "f", "conversation": 1, "side": "front", "sender": "server", "layer": "s3p", "protocol": "s3p"}
    return usual | {"route": "main", "stream": "s", "end": at(ms), "answers_us": took_us} | more


def seen(action: str, sent: float, **more: Any) -> dict[str, Any]:
    usual = {
        "file": "f", "side": "front", "route": "main", "protocol": "s2", "stream": "b/s", "acknowledged": True,
        "headers": [], "conversation": 1 if action == "appended" else 2, "exchange": 1,
    }  # fmt: skip
    return usual | {"action": action, "sent": at(sent), "body": b"%d" % (more.get("seq_num") or 0)} | more


def asks(stream: str, conversation: int, start: float, kind: str = "GET") -> dict[str, Any]:
    return message(start, None, sender="client", stream=stream, conversation=conversation, kind=kind, start=at(start))


def test_percentiles_are_upper_bounds_and_nearly_exact(spark: SparkSession) -> None:
    values = spark.range(1, 10_001).selectExpr("id % 2 = 0 AS even", "id * id AS value")
    rows = {row.even: row for row in percentiles(values, ["even"], "value").collect()}
    for even, row in rows.items():
        truth = sorted(number * number for number in range(1, 10_001) if (number % 2 == 0) == even)
        assert row["count"] == 5_000
        assert row.max_us == truth[-1]
        for name, place in (("p50_us", 2_500), ("p90_us", 4_500), ("p99_us", 4_950), ("p999_us", 4_995)):
            assert truth[place - 1] <= row[name] <= truth[place - 1] * (1 + 1 / 128)


def test_answers_are_told_apart_by_side_and_time(spark: SparkSession) -> None:
    messages = [
        *(message(100, took) for took in (10, 20, 30, 40)),
        message(100, 7, side="back", route=None),
        message(61_000, 1_000),
        message(100, None),
        message(200, 50.4, stream=None, exchange=4),
        message(150, None, sender="client", exchange=4),
    ]
    found = latency(table(spark, MESSAGES, messages), table(spark, SEEN_RECORDS, []), every_s=60)
    assert found.columns == [column.name for column in LATENCY]
    first = moment(0).replace(second=0, microsecond=0)
    rows = {(row.side, row.route, row.stream, row.start): row for row in found.collect()}
    assert {key: (row["count"], row.p50_us, row.max_us) for key, row in rows.items()} == {
        ("front", "main", "s", first): (5, 30, 50),
        ("back", None, "s", first): (1, 7, 7),
        ("front", "main", "s", first.replace(minute=first.minute + 1)): (1, 1_000, 1_000),
    }
    assert {row.kind for row in rows.values()} == {"answer"}


def test_deliveries_to_those_who_waited_are_measured_once_for_each(spark: SparkSession) -> None:
    records = [
        *(seen("appended", 1_000 + number, seq_num=number) for number in range(3)),
        *(seen("delivered", 1_010 + 2 * number, seq_num=number) for number in range(3)),
        seen("delivered", 5_000, seq_num=0, exchange=9),
        seen("delivered", 1_500, seq_num=1, conversation=3),
        seen("delivered", 9_000, seq_num=0, conversation=4),
        seen("delivered", 1_001, seq_num=0, conversation=2, run="another"),
        seen("delivered", 1_002, seq_num=0, conversation=5, side="back"),
        seen("appended", 2_000, seq_num=None, acknowledged=False),
        # Appended by S3P, delivered by S2S: the content joins them, if it was appended once.
        seen("appended", 3_000, stream="s", protocol="s3p", record_id="7-0", body=b"once"),
        *(seen("appended", 3_000, stream="s", protocol="s3p", record_id=f"8-{n}", body=b"twice") for n in (0, 1)),
        seen("delivered", 3_004, seq_num=3, body=b"once"),
        seen("delivered", 3_004, seq_num=4, body=b"twice"),
    ]
    messages = [
        asks("b/s", 2, 0), asks("b/s", 3, 0), asks("b/s", 4, 8_000), asks("b/s", 5, 0),
        asks("b/s", 4, 0, kind="AppendInput"),
    ]  # fmt: skip
    found = deliveries(table(spark, MESSAGES, messages), table(spark, SEEN_RECORDS, records)).collect()
    assert sorted(row.took_us for row in found) == [4_000, 10_000, 11_000, 12_000, 499_000]
    assert {(row.side, row.route, row.protocol, row.stream) for row in found} == {("front", "main", "s2", "b/s")}


def test_streams_have_the_short_names_that_pairing_gives_them(spark: SparkSession) -> None:
    names = [
        "orders",
        "b/orders",
        "s/orders/0.#epoch.0",
        "s/orders/0.#epoch.0#transaction.0a",
        "b/orders/17",
        "b/0",
        "",
    ]
    rows = spark.createDataFrame([(name,) for name in names], "stream string").select(
        "stream", short_name().alias("short")
    )
    assert {row.stream: row.short for row in rows.collect()} == {name: last_part(name) for name in names}


def test_nothing_gives_an_empty_table_and_what_cannot_be_told_apart_is_refused(spark: SparkSession) -> None:
    messages, records = table(spark, MESSAGES, []), table(spark, SEEN_RECORDS, [])
    assert latency(messages, records).collect() == []
    with pytest.raises(ValueError, match="by 'client'"):
        latency(messages, records, by=["client"])
    with pytest.raises(ValueError, match="1 second"):
        latency(messages, records, every_s=0)
