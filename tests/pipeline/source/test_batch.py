"""Batch reads of streams in memory: bounds, losses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.spark.fake_streams import FakeServer

from penstock.model.failures import OperationFailed
from penstock.model.records import Header
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.batch import BatchReader
from penstock_spark.source.loss import DataLost
from penstock_spark.source.options import source_options

SCHEMA = spark_schema(RECORDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reader(server: FakeServer, **given: str) -> BatchReader:
    return BatchReader(source_options({"endpoint": "http://h", **given}), SCHEMA, server.connect)


def run(made: BatchReader) -> list[dict[str, Any]]:
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(server: FakeServer, **given: str) -> list[int]:
    made = reader(server, **{"stream": "b/s", **given})
    found = [row["seq_num"] for row in run(made)]
    assert server.open == 0
    return found


def filled(count: int = 30) -> FakeServer:
    server = FakeServer()
    server.append("b/s", [b"%d" % index for index in range(count)])
    return server


def test_all_there_is() -> None:
    server = filled(3)
    server.append("b/t", [b"x"], headers={0: (Header(b"n", b"v"),)})
    found = run(reader(server, stream_pattern="b/*"))
    assert [(row["stream"], row["seq_num"], row["body"]) for row in found] == [
        ("b/s", 0, b"0"),
        ("b/s", 1, b"1"),
        ("b/s", 2, b"2"),
        ("b/t", 0, b"x"),
    ]
    assert found[3]["headers"] == [{"name": b"n", "value": b"v"}]
    assert found[3]["timestamp"] == EPOCH + timedelta(seconds=1)


def test_bounds_by_number() -> None:
    server = filled()
    assert numbers(server, start="seq_num:3", end="seq_num:11") == list(range(3, 11))
    assert numbers(server, start="seq_num:28", end="seq_num:99") == [28, 29]
    assert numbers(server, start="seq_num:99") == []
    assert numbers(server, start="latest") == []
    assert numbers(server, start='{"b/s": "seq_num:29"}') == [29]


def test_bounds_by_time() -> None:
    server = filled()
    assert numbers(server, start="timestamp:1005", end="timestamp:1007") == [5, 6]
    assert numbers(server, start="timestamp:0", end="timestamp:1970-01-01T00:00:01.0015Z") == [0, 1]
    assert numbers(server, start="timestamp:1970-01-01T00:00:01.0285Z") == [29]
    server.trim("b/s", 4)
    assert numbers(server, start="timestamp:1001", end="timestamp:1006") == [4, 5]


def test_what_was_trimmed_away() -> None:
    server = filled()
    server.trim("b/s", 10)
    assert numbers(server)[0] == 10
    with pytest.raises(DataLost, match=r"b/s was trimmed: records from 3 up to 10 are gone"):
        numbers(server, start="seq_num:3")
    assert numbers(server, start="seq_num:3", fail_on_data_loss="false") == list(range(10, 30))


def test_what_is_trimmed_after_planning() -> None:
    server = filled()
    for strict in ("true", "false"):
        server.trim("b/s", 0)
        made = reader(server, stream="b/s", fail_on_data_loss=strict)
        (partition,) = made.partitions()
        server.trim("b/s", 25)
        if strict == "true":
            with pytest.raises(DataLost, match="up to 25 are gone"):
                list(made.read(partition))
        else:
            assert [batch.num_rows for batch in made.read(partition)] == [5]
        assert server.open == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_is_deleted_after_planning(again: bool, caplog: pytest.LogCaptureFixture) -> None:
    server = filled()
    made = reader(server, stream="b/s")
    (partition,) = made.partitions()
    del server.streams["b/s"]
    if again:
        server.append("b/s", [])
    with pytest.raises(DataLost, match="deleted and created again" if again else "was deleted"):
        list(made.read(partition))
    lenient = reader(server, stream="b/s", fail_on_data_loss="false")
    assert list(lenient.read(partition)) == []
    assert "skipping them" in caplog.text


def test_streams_that_are_not_there() -> None:
    server = filled()
    with pytest.raises(OperationFailed, match="b/nothing is not there"):
        run(reader(server, streams="b/s,b/nothing"))
    assert run(reader(server, stream_pattern="b/nothing*")) == []


def test_patterns_leave_out_the_ledgers_of_sinks() -> None:
    server = filled(1)
    server.append("b/penstock-sink.x", [b"entry"])
    assert {row["stream"] for row in run(reader(server, stream_pattern="b/*"))} == {"b/s"}
    assert len(run(reader(server, stream_pattern="b/penstock-sink.*"))) == 1
    assert len(run(reader(server, stream="b/penstock-sink.x"))) == 1


def test_ranges_are_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    server = filled(100)
    made = reader(server, stream="b/s", records_per_partition="30")
    planned = made.partitions()
    counts = [sum(batch.num_rows for batch in made.read(partition)) for partition in planned]
    assert counts == [25, 25, 25, 25]
    assert len(reader(server, stream="b/s", min_partitions="7").partitions()) >= 7
