"""Faults planted in records, and which of them the job finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.spark.tables import at, table

from penstock_spark.jobs.quality import EXAMPLES, quality
from penstock_spark.jobs.schemas import QUALITY
from penstock_spark.schemas import MESSAGES, RECORDS, SEEN_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


def record(stream: str, number: int, *, ms: float | None = None, body: bytes = b"x") -> dict[str, Any]:
    time = at(number * 100 if ms is None else ms)
    return {"stream": stream, "seq_num": number, "timestamp": time, "headers": [], "body": body}


def seen(stream: str, number: int | None, sent: float, **more: Any) -> dict[str, Any]:
    """One that a capture has; delivered in exchange 1 of connection 1, if nothing else is said."""
    usual = {
        "file": "f", "conversation": 1, "exchange": 1, "side": "front", "action": "delivered", "acknowledged": True,
        "sent": at(sent), "timestamp": at(0), "headers": [], "body": b"%d" % (number or 0),
    }  # fmt: skip
    return usual | {"stream": stream, "seq_num": number} | more


def rows(result: DataFrame) -> dict[tuple[str, ...], Row]:
    assert [field.name for field in result.schema] == [column.name for column in QUALITY]
    return {tuple(each for each in (row.stream, row.action, row.side) if each): row for row in result.collect()}


def said(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_faults_of_streams_are_found_in_their_own_stream(spark: SparkSession) -> None:
    good = [record("b/good", number) for number in range(50)]
    gaps = [record("b/gaps", number) for number in range(20) if number not in (3, 4, 11)]
    many = [record("b/many", number) for number in range(0, 60, 2)]
    doubled = [record("b/doubled", number) for number in (0, 1, 1, 2)] + [record("b/doubled", 2, body=b"y")]
    back = [record("b/back", number, ms=ms) for number, ms in enumerate((0, 500, 499, 700, 300))]
    silent = [record("b/silent", number, ms=ms) for number, ms in enumerate((0, 100, 200, 1_250, 1_350))]
    result = rows(quality(table(spark, RECORDS, [*good, *gaps, *many, *doubled, *back, *silent][::-1])))
    row = result["b/good",]
    assert said(row, "verdict", "records", "readers", "first_seq_num", "last_seq_num") == ("good", 50, 1, 0, 49)
    assert said(row, "gaps", "missing", "duplicates", "altered_duplicates", "times_back") == (0, 0, 0, 0, 0)
    assert said(row, "action", "side", "disorder", "gap_examples") == (None, None, None, [])
    assert said(row, "interval_ms", "silences", "heartbeats_missed", "longest_silence_ms") == (100, 0, 0, 100)
    row = result["b/gaps",]
    assert said(row, "verdict", "gaps", "missing") == ("bad", 2, 3)
    assert [tuple(gap) for gap in row.gap_examples] == [(2, 5), (10, 12)]
    row = result["b/many",]
    assert said(row, "gaps", "missing") == (29, 29)
    assert [tuple(gap) for gap in row.gap_examples] == [(number, number + 2) for number in range(0, 2 * EXAMPLES, 2)]
    assert said(result["b/doubled",], "verdict", "records", "duplicates", "altered_duplicates") == ("bad", 5, 2, 1)
    assert said(result["b/back",], "verdict", "times_back", "most_back_ms") == ("bad", 2, 400)
    row = result["b/silent",]
    assert said(row, "verdict", "interval_ms", "silences", "heartbeats_missed") == ("good", 100, 1, 10)
    assert row.longest_silence_ms == 1_050


def test_an_interval_that_is_expected_counts_in_the_verdict(spark: SparkSession) -> None:
    records = [record("b/s", number, ms=ms) for number, ms in enumerate((0, 1_000, 4_000))]
    (row,) = quality(table(spark, RECORDS, records), interval_ms=1_000, factor=2).collect()
    assert said(row, "verdict", "interval_ms", "silences", "heartbeats_missed") == ("doubtful", 1_000, 1, 2)


def test_each_reader_of_a_capture_is_judged_by_itself(spark: SparkSession) -> None:
    records = [
        *(seen("b/read", number, number) for number in (5, 6, 7)),
        *(seen("b/read", number, number, conversation=2) for number in (0, 1, 2)),
        *(seen("b/read", number, 10 + number, conversation=2, exchange=3) for number in (0, 1, 2)),
        *(seen("b/lossy", number, number) for number in (0, 1, 3, 3)),
        *(seen("b/late", number, sent) for number, sent in ((0, 0), (2, 1), (1, 2), (3, 3))),
        *(seen("b/read", number, number, action="appended", settled=at(number)) for number in (0, 1, 2)),
        *(seen("b/read", number, number, action="appended", side="back", conversation=9) for number in (0, 1)),
        seen("b/read", None, 9, action="appended", acknowledged=False),
        *(seen("b/shared", number, number, action="appended") for number in (0, 1, 4)),
        *(seen("s3p", None, number, record_id=name) for number, name in enumerate(("9-0", "10-0", "10-0", "9-1"))),
    ]
    result = rows(quality(table(spark, SEEN_RECORDS, records)))
    row = result["b/read", "delivered", "front"]
    assert said(row, "verdict", "records", "readers", "gaps", "duplicates", "disorder") == ("good", 9, 3, 0, 0, 0)
    row = result["b/lossy", "delivered", "front"]
    assert said(row, "verdict", "gaps", "missing", "duplicates") == ("bad", 1, 1, 1)
    assert said(result["b/late", "delivered", "front"], "verdict", "disorder", "gaps") == ("doubtful", 1, 0)
    assert said(result["b/read", "appended", "front"], "verdict", "records", "disorder") == ("good", 3, 0)
    assert said(result["b/read", "appended", "back"], "records", "readers") == (2, 1)
    # Others appended between these, and were not recorded, or under the name that their protocol has for the stream.
    assert said(result["b/shared", "appended", "front"], "verdict", "gaps", "missing") == ("good", 1, 2)
    row = result["s3p", "delivered", "front"]
    assert said(row, "gaps", "missing", "first_seq_num", "duplicates", "disorder") == (None, None, None, 1, 1)


def test_heartbeats_of_read_sessions_are_missed_where_the_server_fell_silent(spark: SparkSession) -> None:
    def message(stream: str, seconds: float, kind: str, **more: Any) -> dict[str, Any]:
        usual = {"file": "f", "conversation": 1, "side": "front", "sender": "server", "layer": "s2s"}
        return usual | {"stream": stream, "kind": kind, "end": at(seconds * 1000), "offset": int(seconds)} | more

    messages = [
        # Catching up for a minute is the reader's own pace; after its first heartbeat 50 s are a silence.
        *(message("b/s", seconds, kind, exchange=1) for seconds, kind in (
            (0, "ReadBatch"), (60, "ReadBatch"), (61, "heartbeat"), (75, "heartbeat"), (125, "ReadBatch"),
        )),
        # The client gave up after 31 s.
        message("b/s", 10, "ping", exchange=3, layer="sse"),
        message("b/s", 41, "RST_STREAM", exchange=3, layer="http", sender="client"),
        *(message("b/idle", seconds, "heartbeat", exchange=5) for seconds in (0, 14, 28)),
        message("b/append", 0, "AppendAck", exchange=7),
        message("b/append", 99, "AppendAck", exchange=7),
    ]  # fmt: skip
    records = [seen("b/s", number, number) for number in range(3)]
    result = rows(quality(table(spark, SEEN_RECORDS, records), table(spark, MESSAGES, messages)))
    assert result.keys() == {("b/s", "delivered", "front"), ("b/idle", "delivered", "front")}
    row = result["b/s", "delivered", "front"]
    assert said(row, "verdict", "records", "interval_ms", "silences", "heartbeats_missed") == (
        "doubtful",
        3,
        15_000,
        2,
        5,
    )
    row = result["b/idle", "delivered", "front"]
    assert said(row, "verdict", "records", "silences") == ("good", 0, 0)


def test_nothing_gives_an_empty_table_and_what_is_no_table_of_records_is_refused(spark: SparkSession) -> None:
    assert rows(quality(table(spark, RECORDS, []))) == {}
    assert rows(quality(table(spark, SEEN_RECORDS, []), table(spark, MESSAGES, []))) == {}
    with pytest.raises(ValueError, match="needs the columns body, headers"):
        quality(table(spark, RECORDS[:3], []))
    with pytest.raises(ValueError, match="at least 1"):
        quality(table(spark, RECORDS, []), interval_ms=0)
