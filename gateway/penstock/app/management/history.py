"""Rates, errors and times of operations of the last hour, in memory.

Every ten seconds the counters and histograms of the metrics are read, and their growth since the last time is kept: for
the whole gateway and for each back, and of the last minute for each way through the gateway (listener, route and back).
Memory is bounded: an hour of samples, whose size depends on the number of backs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from operator import add
from typing import Any, Final

import msgspec
import structlog
import trio

from penstock.app.management.words import Answer, Endpoints
from penstock.net.http.exchange import Exchange
from penstock.observe.metrics.families import (
    APPEND_SECONDS,
    CONNECTIONS,
    ERRORS,
    NETWORK_BYTES,
    OPERATION_SECONDS,
    READ_FIRST_SECONDS,
    RECORDS,
)
from penstock.observe.metrics.state import State, current

__all__ = ["AboutHistory", "History", "clients_total", "open_connections", "percentile_ms"]

log = structlog.get_logger()

STEP_SECONDS: Final = 10.0
_KEPT: Final = 360
"""Samples: an hour."""
_MOST_WAYS: Final = 64
"""Ways in an answer, the busiest ones."""
_RECENT: Final = 6
"""Samples of which the ways are kept, to be summed up: a minute."""
_RATES: Final = ("bytes_in", "bytes_out", "records_in", "records_out", "errors")
_IDLE: Final[dict[str, float | None]] = {"operations": 0.0, "errors": 0.0, "p50_ms": None, "p99_ms": None}
"""The columns of a back that was not used."""
_TIMED: Final = (APPEND_SECONDS, READ_FIRST_SECONDS, OPERATION_SECONDS)
"""Histograms of the time of operations, all with the same bounds."""
_BOUNDS: Final = APPEND_SECONDS.bounds

Way = tuple[str, str, str]
"""A listener, a route and a back, as in the labels of metrics."""


class WayCounts(msgspec.Struct):
    """Counts of one way. `buckets`: operations by their time, as in the histograms."""

    records_in: float = 0
    records_out: float = 0
    errors: float = 0
    buckets: list[float] = msgspec.field(default_factory=lambda: [0.0] * (len(_BOUNDS) + 1))

    @property
    def busy(self) -> float:
        """A measure of how much happened."""
        return self.records_in + self.records_out + self.errors + sum(self.buckets)

    def plus(self, other: WayCounts, sign: int = 1) -> WayCounts:
        """Return the sum, or with a `sign` of -1 the difference."""
        return WayCounts(
            self.records_in + sign * other.records_in,
            self.records_out + sign * other.records_out,
            self.errors + sign * other.errors,
            [count + sign * added for count, added in zip(self.buckets, other.buckets, strict=True)],
        )


class _Totals(msgspec.Struct, frozen=True):
    """Counters since the start of the gateway."""

    bytes_in: float
    bytes_out: float
    records_in: float
    records_out: float
    errors: float
    ways: dict[Way, WayCounts]


class _Sample(msgspec.Struct, frozen=True):
    """One step: `time_ms`, its end since the epoch, and its values in the columns of the answer. `backs`: the same of
    each back that was used."""

    time_ms: int
    values: dict[str, float]
    backs: dict[str, dict[str, float | None]]


class History:
    """The samples; `run` must always run."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._recent: deque[tuple[float, dict[Way, WayCounts]]] = deque(maxlen=_RECENT)
        self._last: tuple[float, _Totals] | None = None

    async def run(self) -> None:
        """Take a sample every STEP_SECONDS; never returns."""
        while True:
            self.sample(current())
            await trio.sleep(STEP_SECONDS)

    def sample(self, state: State) -> None:
        """Keep the growth since the last sample. The first one only begins."""
        now, totals = trio.current_time(), _totals(state)
        if self._last is not None:
            began, before = self._last
            seconds, ways = now - began, _growth(before.ways, totals.ways)
            rates = {name: (getattr(totals, name) - getattr(before, name)) / seconds for name in _RATES}
            values = {name: round(rate, 3) for name, rate in rates.items()} | {"connections": open_connections(state)}
            self._samples.append(_Sample(round(time.time() * 1000), values, _of_backs(ways, seconds)))
            self._recent.append((seconds, ways))
        self._last = now, totals

    def answer(self) -> dict[str, Any]:
        """Return the history as JSON values: columns with one value for each sample, and sums of the last minute."""
        samples = list(self._samples)
        sums: dict[Way, WayCounts] = {}
        for _, ways in self._recent:
            for way, counts in ways.items():
                sums[way] = sums.get(way, WayCounts()).plus(counts)
        busiest = sorted(sums, key=lambda way: -sums[way].busy)[:_MOST_WAYS]
        backs = sorted({name for sample in samples for name in sample.backs})
        return {
            "step_seconds": STEP_SECONDS,
            "times": [sample.time_ms for sample in samples],
            **{name: [sample.values[name] for sample in samples] for name in (*_RATES, "connections")},
            "backs": {
                name: {key: [sample.backs.get(name, _IDLE)[key] for sample in samples] for key in _IDLE}
                for name in backs
            },
            "ways_seconds": sum(seconds for seconds, _ in self._recent),
            "ways": [
                {"listener": listener, "route": route, "back": back, **_told(sums[listener, route, back])}
                for listener, route, back in sorted(busiest)
            ],
            "sums": {kind: _by_part(sums, index) for index, kind in enumerate(("listener", "route", "back"))},
        }


class AboutHistory:
    """`GET /history`; see docs/management.md."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.endpoints: Endpoints = {("history",): {"GET": self._answer}}

    async def _answer(self, _exchange: Exchange, _name: str) -> Answer:
        return 200, self._history.answer()


def percentile_ms(buckets: Sequence[float], part: float) -> float | None:
    """Return the time in ms that a part (0 to 1) of the operations did not exceed, interpolated within its bucket; at
    most the last bound. None without operations."""
    wanted, below = sum(buckets) * part, 0.0
    if not wanted:
        return None
    for index, count in enumerate(buckets[: len(_BOUNDS)]):
        if count and below + count >= wanted:
            low = _BOUNDS[index - 1] if index else 0.0
            return round((low + (_BOUNDS[index] - low) * (wanted - below) / count) * 1000, 3)
        below += count
    return _BOUNDS[-1] * 1000


def clients_total(state: State, family: str) -> dict[str, float]:
    """Return the totals of a family by direction, without those of the management listener."""
    sums = {"in": 0.0, "out": 0.0}
    for labels, value in state.get(family, {}).items():
        if labels[0] != "management" and not isinstance(value, list):
            sums[labels[-1]] += value
    return sums


def open_connections(state: State) -> float:
    """Return the number of open connections with clients, without those of the management listener."""
    counts = state.get(CONNECTIONS.name, {}).items()
    return sum(value for labels, value in counts if labels[0] != "management" and not isinstance(value, list))


def _totals(state: State) -> _Totals:
    bytes_, records, ways = clients_total(state, NETWORK_BYTES.name), clients_total(state, RECORDS.name), _ways(state)
    errors = sum(way.errors for way in ways.values())
    return _Totals(bytes_["in"], bytes_["out"], records["in"], records["out"], errors, ways)


def _ways(state: State) -> dict[Way, WayCounts]:
    counts_by_way: dict[Way, WayCounts] = {}
    for labels, value in state.get(RECORDS.name, {}).items():
        if not isinstance(value, list):
            counts = _counts(counts_by_way, labels)
            if labels[-1] == "in":
                counts.records_in += value
            else:
                counts.records_out += value
    for labels, value in state.get(ERRORS.name, {}).items():
        if not isinstance(value, list):
            _counts(counts_by_way, labels).errors += value
    for family in _TIMED:
        for labels, value in state.get(family.name, {}).items():
            if isinstance(value, list):
                counts = _counts(counts_by_way, labels)
                counts.buckets = list(map(add, counts.buckets, value[:-1]))
    return counts_by_way


def _counts(counts_by_way: dict[Way, WayCounts], labels: tuple[str, ...]) -> WayCounts:
    listener, route, back, *_ = labels
    return counts_by_way.setdefault((listener, route, back), WayCounts())


def _growth(before: dict[Way, WayCounts], after: dict[Way, WayCounts]) -> dict[Way, WayCounts]:
    """Return the growth of the ways on which something happened."""
    none = WayCounts()
    ways = {way: counts.plus(before.get(way, none), -1) for way, counts in after.items()}
    return {way: counts for way, counts in ways.items() if counts.busy > 0}


def _told(counts: WayCounts) -> dict[str, Any]:
    return {
        "records_in": counts.records_in,
        "records_out": counts.records_out,
        "operations": sum(counts.buckets),
        "errors": counts.errors,
        "p50_ms": percentile_ms(counts.buckets, 0.5),
        "p99_ms": percentile_ms(counts.buckets, 0.99),
    }


def _by_part(ways: dict[Way, WayCounts], index: int) -> dict[str, dict[str, Any]]:
    """Return sums of the ways with the same listener, route or back, by its name."""
    sums: dict[str, WayCounts] = {}
    for way, counts in ways.items():
        sums[way[index]] = sums.get(way[index], WayCounts()).plus(counts)
    return {name: _told(counts) for name, counts in sorted(sums.items())}


def _of_backs(ways: dict[Way, WayCounts], seconds: float) -> dict[str, dict[str, float | None]]:
    """Return for each back that was used its operations and errors a second, and their times."""
    return {
        name: {
            "operations": round(told["operations"] / seconds, 3),
            "errors": round(told["errors"] / seconds, 3),
            "p50_ms": told["p50_ms"],
            "p99_ms": told["p99_ms"],
        }
        for name, told in _by_part(ways, 2).items()
        if name
    }
