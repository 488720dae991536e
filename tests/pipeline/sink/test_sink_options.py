"""The options of the sink, and what is refused when a query is planned."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from penstock_spark.options import WrongOptions
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity, PlannedSink, identity_of
from penstock_spark.sink.options import read_settings
from penstock_spark.sink.writer import PenstockStreamWriter, PenstockWriter

S2 = {"endpoint": "http://127.0.0.1:1"}
FRAME = StructType().add("stream", StringType()).add("body", BinaryType())


def test_a_job_without_a_name_has_a_ledger_of_its_own() -> None:
    one, other = (read_settings({**S2, "stream": "penstock/a"}, streaming=False) for _ in range(2))
    assert one.sink.one_off and one.sink.batch == 0
    assert one.sink.name != other.sink.name
    assert one.ledger == "penstock"


def test_a_named_job() -> None:
    given = {**S2, "ledger": "telemetry", "sink": "daily", "batch": "20240101", "ignore": "a, b", "create": "true"}
    settings = read_settings(given, streaming=False)
    assert settings.sink == PlannedSink("daily", 20240101)
    assert (settings.stream, settings.ledger, settings.create) == (None, "telemetry", True)
    assert settings.ignore == {"a", "b"}


def test_a_query() -> None:
    given = {**S2, "stream": "penstock/a", "checkpointlocation": "x", "queryname": "y"}
    settings = read_settings(given, streaming=True)
    assert settings.sink == PlannedSink(None, None)


@pytest.mark.parametrize(
    ("given", "streaming", "faults"),
    [
        ({"stream": "x"}, False, ["stream: 'x' is not a stream"]),
        ({}, False, ["ledger: needed if a column names the streams"]),
        (
            {"stream": "penstock/a", "sink": "a b", "batch": "-1"},
            False,
            ["sink: 'a b' is not a name", "batch: -1 is not"],
        ),
        ({"stream": "penstock/a", "sink": "a"}, False, ["batch: needed with sink"]),
        ({"stream": "penstock/a", "batch": "1"}, False, ["sink: needed with batch"]),
        ({"stream": "penstock/a", "batch": "1"}, True, ["batch: not for a streaming query"]),
        ({"stream": "penstock/a", "ignore": "body"}, True, ["ignore: the body cannot be ignored"]),
        ({"stream": "penstock/a", "path": "/x"}, True, ["path: save() and start() take no path"]),
        ({"ledger": "no"}, True, ["ledger: "]),
        ({"stream": "penstock/a", "sinc": "x"}, True, ["sinc: unknown option; is it sink?"]),
    ],
)
def test_wrong_options_are_all_named(given: dict[str, str], streaming: bool, faults: list[str]) -> None:
    with pytest.raises(WrongOptions) as refused:
        read_settings({**S2, **given}, streaming=streaming)
    assert len(refused.value.faults) == len(faults)
    for found, expected in zip(sorted(refused.value.faults), sorted(faults), strict=True):
        assert found.startswith(expected)


def test_a_server_of_another_protocol_is_refused() -> None:
    with pytest.raises(WrongOptions, match="endpoint: segment:// is reached through a gateway"):
        read_settings({"endpoint": "segment://127.0.0.1:1", "stream": "orders/a"}, streaming=False)


def test_streams_are_not_overwritten() -> None:
    with pytest.raises(SinkFailed, match='the mode must be "append"'):
        PenstockWriter({**S2, "stream": "penstock/a"}, FRAME, True)
    with pytest.raises(SinkFailed, match="outputMode must be append"):
        PenstockStreamWriter({**S2, "stream": "penstock/a"}, FRAME, True)


def test_columns_are_checked_when_a_query_is_planned() -> None:
    with pytest.raises(SinkFailed, match="x: records have no such column"):
        PenstockStreamWriter(
            {**S2, "stream": "penstock/a"}, StructType().add("body", BinaryType()).add("x", IntegerType()), False
        )


def test_who_writes() -> None:
    assert identity_of(PlannedSink("daily", 7), 3, None, None) == Identity("daily", 7, 3)
    assert identity_of(PlannedSink(None, None), 3, "id", "9") == Identity("id", 9, 3, "id")
    assert identity_of(PlannedSink("mine", None), 3, "id", "9") == Identity("mine", 9, 3, "id")
    with pytest.raises(SinkFailed, match="it does not belong to a micro-batch"):
        identity_of(PlannedSink("mine", None), 3, "id", None)


def test_failures_reach_the_driver() -> None:
    failure = pickle.loads(pickle.dumps(RowsDiffer("these")))
    assert str(failure) == str(RowsDiffer("these"))
