"""The options of the source: their meaning, and that all errors are reported at once."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from penstock_spark.options import WrongOptions
from penstock_spark.source.bounds import EARLIEST, LATEST, Bound
from penstock_spark.source.datasource import PenstockDataSource
from penstock_spark.source.options import SourceOptions, source_options

ENDPOINT = {"endpoint": "http://127.0.0.1:8080"}


def read(**given: str) -> SourceOptions:
    return source_options({**ENDPOINT, **given})


def faults(given: dict[str, str]) -> list[str]:
    with pytest.raises(WrongOptions) as caught:
        source_options(given)
    return list(caught.value.faults)


def test_what_is_not_said() -> None:
    options = read(stream="b/s")
    assert options.start.of("b/s") == EARLIEST
    assert options.end.of("b/s") == LATEST
    assert options.fail_on_data_loss
    assert options.max_records_per_batch is None


def test_names_are_in_any_case_and_streams_in_a_basin() -> None:
    given = CaseInsensitiveDict({"EndPoint": "127.0.0.1:1", "Streams": "a, b/c ,a", "BASIN": "basin"})
    options = source_options(given)  # type: ignore[arg-type]
    assert options.selection.names == ("basin/a", "basin/b/c")
    options = read(basin="b[", stream="one", streams='["x,y"]', stream_pattern="s*")
    assert options.selection.names == ("b[/one", "b[/x,y")
    assert options.selection.includes("b[/s1") and not options.selection.includes("b/s1")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", EARLIEST),
        ("LATEST", LATEST),
        ("seq_num:7", Bound("seq_num", 7)),
        ("timestamp: 1500", Bound("timestamp", 1500)),
        ("timestamp:1970-01-01T00:00:01.5Z", Bound("timestamp", 1500)),
        ("timestamp:1970-01-01T01:00:00.0000001+01:00", Bound("timestamp", 0)),
        ("timestamp:1970-01-01T00:00:00.000001Z", Bound("timestamp", 1)),
    ],
)
def test_bounds(text: str, bound: Bound) -> None:
    assert read(stream="b/s", start=text).start.of("b/s") == bound


def test_a_bound_for_each_stream() -> None:
    said = json.dumps({"s": "seq_num:5", "*": "latest"})
    start = read(basin="b", streams="s,t", start=said).start
    assert (start.of("b/s"), start.of("b/t")) == (Bound("seq_num", 5), LATEST)
    assert read(basin="b", stream="s", end='{"s": "seq_num:5"}').end.of("b/other") == LATEST


def test_every_fault_is_named() -> None:
    found = faults(
        {
            "endpoint": "htp://x",
            "strem": "b/s",
            "start": "seq_num:x",
            "end": "earliest",
            "max_records_per_batch": "0",
            "fail_on_data_loss": "perhaps",
        }
    )
    assert [fault.partition(":")[0] for fault in found] == [
        "end",
        "fail_on_data_loss",
        "max_records_per_batch",
        "start",
        "strem",
        "endpoint",
        "stream",
    ]
    assert "is it stream?" in found[4]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"stream": "s"}, "names no basin"),
        ({"stream": "b/s", "start": "offset:5"}, "'offset:5' is not earliest, latest, seq_num:N or timestamp:T"),
        ({"stream": "b/s", "start": "timestamp:-5"}, "before 1970"),
        ({"stream": "b/s", "start": "timestamp:1969-12-31T23:59:59Z"}, "before 1970"),
        ({"stream": "b/s", "start": "timestamp:2026-01-01"}, "names no time zone"),
        ({"stream": "b/s", "start": "timestamp:soon"}, "'soon' is neither"),
        ({"stream": "b/s", "start": f"seq_num:{2**64}"}, "out of range"),
        ({"stream": "b/s", "start": '{"b/t": "latest"}'}, "stream b/t is not among"),
        ({"stream": "b/s", "start": '{"b/s": 5}'}, "needs a string"),
        ({"stream": "b/s", "start": "{"}, "not JSON"),
        ({"streams": '["b/s", 5]'}, "a name is missing or not a string"),
        ({"streams": "b/s,,b/t"}, "a name is missing or not a string"),
        ({"stream": "b/s", "envelopes": "true"}, "envelopes: unknown option"),
        ({"stream": "b/s", "protocol": "segment"}, "protocol: unknown option"),
        ({"endpoint": "durable://127.0.0.1:1", "stream": "b/s"}, "endpoint: durable:// is reached through a gateway"),
        ({"stream": "b/s", "token_file": "/does/not/exist"}, "token_file"),
    ],
)
def test_what_cannot_be_used(given: dict[str, str], fault: str) -> None:
    (found,) = faults({**ENDPOINT, **given})
    assert fault in found


def test_the_token_is_shown_nowhere() -> None:
    options = read(stream="b/s", token="s3cr3t")
    assert options.endpoint.token == "s3cr3t"
    assert "s3cr3t" not in repr(options)
    assert "s3cr3t" not in str(faults({**ENDPOINT, "token": "s3cr3t", "stream": "s"}))


def test_the_error_survives_a_pickle() -> None:
    """Workers hand errors over as pickles, in some versions of Spark."""
    error = WrongOptions("here", ["this", "that"])
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "here: 2 wrong\n  this\n  that"


def test_what_is_for_batches_or_for_streams_only() -> None:
    source = PenstockDataSource({**ENDPOINT, "stream": "b/s", "end": "latest"})
    with pytest.raises(WrongOptions, match=r"end: applies to batch queries only"):
        source.streamReader(source.schema())
    source = PenstockDataSource({**ENDPOINT, "stream": "b/s", "max_records_per_batch": "5"})
    with pytest.raises(WrongOptions, match="max_records_per_batch"):
        source.reader(source.schema())
