"""Batch reads of streams in memory: bounds, filters, losses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan, StringStartsWith
from support.spark.fake_streams import FakeServer

from penstock_codecs.envelope import wrap
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import Header
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.batch import BatchReader, FilteringBatchReader
from penstock_spark.source.loss import DataLost
from penstock_spark.source.options import source_options

SCHEMA = spark_schema(RECORDS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reader(server: FakeServer, **given: str) -> FilteringBatchReader:
    endpoint = "http://h" if server.indexed else "segment://h"
    return FilteringBatchReader(source_options({"endpoint": endpoint, **given}), SCHEMA, server.connect)


def run(made: BatchReader) -> list[dict[str, Any]]:
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(server: FakeServer, *filters: Filter, **given: str) -> list[int]:
    made = reader(server, **{"stream": "b/s", **given})
    assert not list(made.pushFilters(list(filters)))
    found = [row["seq_num"] for row in run(made)]
    assert server.open == 0
    return found


def filled(count: int = 30, *, indexed: bool = True) -> FakeServer:
    server = FakeServer(indexed=indexed)
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


@pytest.mark.parametrize("indexed", [True, False])
def test_bounds_by_number(indexed: bool) -> None:
    server = filled(indexed=indexed)
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


def test_bounds_by_offset() -> None:
    """Bodies 0 to 9 take 9 bytes each, the others 10. Numbers are counted from where the query begins."""
    server = filled(indexed=False)
    assert numbers(server, end="offset:27") == [0, 1, 2]
    assert numbers(server, end="offset:26") == [0, 1]
    assert numbers(server, start="offset:18", end="offset:110") == list(range(10))
    assert numbers(server, start="offset:18", end="seq_num:3") == [0, 1, 2]
    tail = server.streams["b/s"].offset(30)
    assert numbers(server, end=f"offset:{tail}") == list(range(30))
    assert numbers(server, start="offset:18", end=f"offset:{tail}") == list(range(28))


def test_what_was_trimmed_away() -> None:
    server = filled()
    server.trim("b/s", 10)
    assert numbers(server)[0] == 10
    with pytest.raises(DataLost, match=r"b/s was trimmed: records from 3 up to 10 are gone"):
        numbers(server, start="seq_num:3")
    assert numbers(server, start="seq_num:3", fail_on_data_loss="false") == list(range(10, 30))
    assert numbers(server, GreaterThanOrEqual(("seq_num",), 3)) == list(range(10, 30))


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


def test_filters_bound_what_is_read() -> None:
    server = filled(1000)
    server.append("c/t", [b"x"] * 1000)
    made = reader(server, stream_pattern="*", start="seq_num:100")
    filters: list[Filter] = [
        StringStartsWith(("stream",), "b/"),
        LessThan(("seq_num",), 900),
        GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=1800)),
        EqualTo(("body",), b"850"),
    ]
    assert list(made.pushFilters(filters)) == filters[3:]
    assert [row["seq_num"] for row in run(made)] == list(range(800, 900))
    assert server.read == 100


def test_nothing_is_asked_for_where_nothing_can_pass() -> None:
    server = FakeServer()
    assert numbers(server, EqualTo(("seq_num",), 3), EqualTo(("seq_num",), 4)) == []


@given(
    st.integers(0, 12),
    st.lists(st.sampled_from([GreaterThanOrEqual, LessThan, EqualTo]), max_size=2),
    st.lists(st.sampled_from([GreaterThanOrEqual, LessThan, EqualTo]), max_size=2),
    st.data(),
)
def test_filters_and_bounds_together(trimmed: int, on_numbers: list[Any], on_times: list[Any], data: Any) -> None:
    """Against each record looked at, for places that are numbers."""
    server = FakeServer()
    stamps = sorted(data.draw(st.lists(st.integers(0, 10), min_size=12, max_size=12)))
    server.append("b/s", [b"x"] * 12, stamps)
    server.trim("b/s", trimmed)
    bound = st.integers(-1, 13)
    filters = [kind(("seq_num",), data.draw(bound)) for kind in on_numbers]
    times = [kind(("timestamp",), EPOCH + timedelta(microseconds=500 * data.draw(bound))) for kind in on_times]
    start, end = data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13))
    holds: Mapping[type[Any], Any] = {
        GreaterThanOrEqual: lambda one, other: one >= other,
        LessThan: lambda one, other: one < other,
        EqualTo: lambda one, other: one == other,
    }
    expected = [
        number
        for number in range(max(trimmed, start), min(12, end))
        if all(holds[type(one)](number, one.value) for one in filters)
        and all(holds[type(one)](EPOCH + timedelta(milliseconds=stamps[number]), one.value) for one in times)
    ]
    found = numbers(server, *filters, *times, start=f"seq_num:{start}", end=f"seq_num:{end}", fail_on_data_loss="false")
    assert found == expected


def test_ranges_are_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    server = filled(100)
    made = reader(server, stream="b/s", records_per_partition="30")
    planned = made.partitions()
    counts = [sum(batch.num_rows for batch in made.read(partition)) for partition in planned]
    assert counts == [25, 25, 25, 25]
    assert len(reader(server, stream="b/s", min_partitions="7").partitions()) >= 7


def test_envelopes() -> None:
    server = FakeServer(indexed=False)
    server.append("b/s", [wrap((Header(b"n", b"v"),), b"inside"), b"plain"])
    found = run(reader(server, stream="b/s", envelopes="true"))
    assert [row["body"] for row in found] == [b"inside", b"plain"]
    assert [row["headers"] for row in found] == [[{"name": b"n", "value": b"v"}], []]
    assert [row["timestamp"] for row in found] == [None, None]
    assert run(reader(server, stream="b/s"))[0]["headers"] == []
