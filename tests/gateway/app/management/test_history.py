"""The history of the last hour, and the status of the process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.management import Asker, Process, asking, overview

from penstock.app.management import history as module
from penstock.app.management.history import History, percentile_ms
from penstock.backends.embedded import EmbeddedBack
from penstock.observe.metrics.families import (
    APPEND_SECONDS,
    CERTIFICATE_EXPIRY,
    CONNECTIONS,
    ERRORS,
    LIMITED,
    NETWORK_BYTES,
    RECORDS,
)
from penstock.observe.metrics.state import State

BOUNDS = APPEND_SECONDS.bounds


def state_of(second: float) -> State:
    """The counters of a gateway that does the same each second: 100 bytes and 4 records in, of which one takes 20 ms
    and fails, beside traffic of the management listener."""
    way = ("listeners.s2", "orders", "store", "s2s")
    slow = [0.0] * (len(BOUNDS) + 2)
    slow[0], slow[BOUNDS.index(0.025)] = 3 * second, second
    return {
        NETWORK_BYTES.name: {
            ("listeners.s2", "s2", "in"): 100 * second,
            ("listeners.s2", "s2", "out"): 10 * second,
            ("management", "management", "in"): 9999 * second,
        },
        CONNECTIONS.name: {("listeners.s2", "s2"): 3.0, ("management", "management"): 1.0},
        RECORDS.name: {(*way, "in"): 4 * second, (*way, "out"): 8 * second},
        ERRORS.name: {(*way, "storage"): second},
        APPEND_SECONDS.name: {way: slow},
    }


async def test_growth_of_the_counters_is_kept_as_rates(autojump_clock: trio.testing.MockClock) -> None:
    history = History()
    for turn in range(4):
        history.sample(state_of(10.0 * turn))
        await trio.sleep(10)
    answer = history.answer()
    assert len(answer["times"]) == 3 and answer["step_seconds"] == 10
    assert answer["bytes_in"] == [100, 100, 100] and answer["bytes_out"] == [10, 10, 10]
    assert answer["records_in"] == [4, 4, 4] and answer["errors"] == [1, 1, 1] and answer["connections"] == [3, 3, 3]
    (way,) = answer["ways"]
    assert (way["listener"], way["route"], way["back"]) == ("listeners.s2", "orders", "store")
    assert (way["records_in"], way["records_out"], way["operations"], way["errors"]) == (120, 240, 120, 30)
    assert way["p50_ms"] == 0.333 and 10 < way["p99_ms"] < 25
    figures = {key: value for key, value in way.items() if key not in answer["sums"]}
    assert answer["sums"] == {
        "listener": {"listeners.s2": figures},
        "route": {"orders": figures},
        "back": {"store": figures},
    }
    assert answer["ways_seconds"] == 30
    store = answer["backs"]["store"]
    assert store["operations"] == [4, 4, 4] and store["errors"] == [1, 1, 1] and store["p99_ms"] == [way["p99_ms"]] * 3


async def test_memory_is_bounded(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAYS", 5)
    history = History()
    for turn in range(400):
        ways = {(f"listeners.{number}", "", "store", "s2s", "in"): float(turn * number) for number in range(20)}
        history.sample({RECORDS.name: dict(ways), NETWORK_BYTES.name: {}})
        await trio.sleep(10)
    answer = history.answer()
    assert len(answer["times"]) == 360
    assert [way["listener"] for way in answer["ways"]] == [f"listeners.{number}" for number in range(15, 20)]


@pytest.mark.parametrize(
    ("counts", "part", "wanted"),
    [
        ({}, 0.5, None),
        ({0: 1}, 0.5, 0.25),
        ({0: 100}, 0.99, 0.495),
        ({1: 2, 3: 2}, 0.5, 1.0),
        ({len(BOUNDS): 1}, 0.5, 30_000),
    ],
)
def test_percentiles(counts: dict[int, float], part: float, wanted: float | None) -> None:
    assert percentile_ms([counts.get(index, 0.0) for index in range(len(BOUNDS) + 1)], part) == wanted


@pytest.fixture
async def asker(back: EmbeddedBack) -> AsyncIterator[Asker]:
    async with asking(overview(back), process=Process()) as one:
        yield one


async def test_the_history_begins_empty(asker: Asker) -> None:
    answer = await asker.get("/history")
    assert answer["times"] == answer["bytes_in"] == answer["ways"] == [] and answer["backs"] == {}


async def test_the_status(asker: Asker) -> None:
    CERTIFICATE_EXPIRY.child("listeners.s2", "server.pem", "CN=here").value = 2_000_000_000
    LIMITED.child("listeners.s2", "max_connections_per_client").inc(3)
    answer: Any = await asker.get("/status")
    assert answer["version"] and answer["python"].startswith("3.")
    assert 0 < answer["uptime_seconds"] < 100_000 and answer["started"] > 1_600_000_000_000
    assert answer["draining"] is False and answer["resident_bytes"] > 0 and answer["open_files"] > 0
    assert [one["name"] for one in answer["listeners"]] == ["listeners.s2", "listeners.s3p", "listeners.segment"]
    wanted = {"owner": "listeners.s2", "file": "server.pem", "subject": "CN=here", "expires": 2_000_000_000_000}
    assert wanted in answer["certificates"]
    (limit,) = [one for one in answer["limits"] if one["limit"] == "max_connections_per_client"]
    assert limit["listener"] == "listeners.s2" and limit["count"] >= 3
