"""S2's metrics: what may be asked, and how it is answered (S2 fact sheet, 1.3)."""

from __future__ import annotations

import json

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock_s2.codec.metrics import (
    AccountMetricSet,
    BasinMetricSet,
    MetricsRequest,
    StreamMetricSet,
    decode_metrics_query,
    encode_accumulations,
    encode_gauge,
    encode_label,
)

NOW = 1_700_000_000
DAY = 86_400
HOUR = {"start": str(NOW - 3600), "end": str(NOW)}


@pytest.mark.parametrize(
    ("sets", "query", "interval"),
    [
        (AccountMetricSet, {"set": "active-basins"}, "hour"),
        (AccountMetricSet, {"set": "account-ops", "interval": "day"}, "day"),
        (BasinMetricSet, {"set": "append-ops", "interval": "minute"}, "minute"),
        (BasinMetricSet, {"set": "storage"}, "hour"),
        (BasinMetricSet, {"set": "storage", "interval": "hour"}, "hour"),
        (StreamMetricSet, {"set": "storage"}, "minute"),
    ],
)
def test_sets_and_their_intervals(sets: type, query: dict[str, str], interval: str) -> None:
    wanted, asked = decode_metrics_query({**HOUR, **query}, sets, NOW)
    assert wanted.value == query["set"]
    assert asked == MetricsRequest(NOW - 3600, NOW, interval)
    assert asked.seconds == {"minute": 60, "hour": 3600, "day": DAY}[interval]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"start": None}, "start and end params required for storage"),
        ({"end": None}, "start and end params required for storage"),
        ({"start": str(NOW), "end": str(NOW - 1)}, "is after end"),
        ({"end": str(NOW + 61)}, "in the future"),
        ({"start": str(NOW - 30 * DAY - 1)}, "must not exceed 30 days"),
        ({"interval": "minute"}, "storage supports only the interval hour"),
    ],
)
def test_ranges_and_intervals_that_a_set_does_not_have(query: dict[str, str | None], why: str) -> None:
    given = {name: value for name, value in {"set": "storage", **HOUR, **query}.items() if value is not None}
    with pytest.raises(OperationFailed, match=why) as caught:
        decode_metrics_query(given, BasinMetricSet, NOW)
    assert caught.value.failure.code is FailureCode.INVALID


@pytest.mark.parametrize(
    "query",
    [{}, {"set": "nonsense"}, {"set": "storage", "interval": "week"}, {"set": "storage", "start": "-1"}]
    + [{"set": "storage", "end": text} for text in ("x", "1.5", "4294967296", "\u0663")],
)
def test_malformed_queries(query: dict[str, str]) -> None:
    with pytest.raises(OperationFailed) as caught:
        decode_metrics_query({**HOUR, **query} if "set" in query else query, BasinMetricSet, NOW)
    assert caught.value.failure.code is FailureCode.BAD_QUERY


def test_the_widest_range() -> None:
    query = {"set": "storage", "start": str(NOW - 30 * DAY + 60), "end": str(NOW + 60)}
    assert decode_metrics_query(query, StreamMetricSet, NOW)[1].interval == "minute"


def test_shapes() -> None:
    sums = encode_accumulations({"express": [(60, 1), (120, 2)], "standard": []}, "operations", "minute")
    base = {"unit": "operations", "interval": "minute"}
    assert json.loads(sums)["values"] == [
        {"accumulation": {"name": "express", **base, "values": [[60, 1], [120, 2]]}},
        {"accumulation": {"name": "standard", **base, "values": []}},
    ]
    gauge = {"gauge": {"name": "storage", "unit": "bytes", "values": [[60, 7]]}}
    assert json.loads(encode_gauge("storage", "bytes", [(60, 7)])) == {"values": [gauge]}
    assert json.loads(encode_gauge("storage", "bytes", [])) == {"values": []}
    label = {"label": {"name": "active_basins", "values": ["a"]}}
    assert json.loads(encode_label("active_basins", ["a"])) == {"values": [label]}
