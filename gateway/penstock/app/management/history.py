"""What the gateway did in the last hour, in memory.

Every ten seconds the counters and histograms of the metrics are read, and their growth since the last time is kept: for
the whole gateway, and for each way through it (listener, route and back). Memory is bounded: an hour of samples, each
with its busiest ways.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Final

import structlog
import trio

from penstock.app.management.words import Answer, Endpoints
from penstock.net.http.exchange import Exchange
from penstock.observe.metrics.exposition import State, merged_state
from penstock.observe.metrics.families import (
    APPEND_SECONDS,
    CONNECTIONS,
    ERRORS,
    NETWORK_BYTES,
    OPERATION_SECONDS,
    READ_FIRST_SECONDS,
    RECORDS,
)
from penstock_codecs.failures import OperationFailed

__all__ = ["AboutHistory", "History", "clients_total", "open_connections", "percentile_ms"]

log = structlog.get_logger()

STEP_SECONDS: Final = 10.0
_KEPT: Final = 360
"""Samples: an hour."""
_MOST_WAYS: Final = 64
"""Ways kept of one sample, the busiest ones."""
_RECENT: Final = 6
"""Samples of which the ways are summed up: a minute."""
_TIMED: Final = (APPEND_SECONDS, READ_FIRST_SECONDS, OPERATION_SECONDS)
"""Histograms of the time of operations, all with the same bounds."""
_BOUNDS: Final = APPEND_SECONDS.bounds

Way = tuple[str, str, str]
"""A listener, a route and a back, as in the labels of metrics."""
Snapshots = Callable[[], Awaitable[Sequence[bytes]]]


@dataclass(slots=True)
class WayCounts:
    """Counts of one way. `buckets`: operations by their time, as in the histograms."""

    records_in: float = 0
    records_out: float = 0
    errors: float = 0
    buckets: list[float] = field(default_factory=lambda: [0.0] * (len(_BOUNDS) + 1))

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
            [one + sign * more for one, more in zip(self.buckets, other.buckets, strict=True)],
        )


@dataclass(frozen=True, slots=True)
class _Totals:
    """Counters since the start of the gateway. `connections` is the number at the moment."""

    bytes_in: float
    bytes_out: float
    records_in: float
    records_out: float
    errors: float
    connections: float
    ways: dict[Way, WayCounts]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The growth of the counters in `seconds`, up to `time_ms` since the epoch."""

    time_ms: int
    seconds: float
    growth: _Totals


class History:
    """The samples; `run` must always run. `snapshots`: the metrics of the gateway's other processes."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._last: tuple[float, _Totals] | None = None

    async def run(self) -> None:
        """Take a sample every STEP_SECONDS; never returns."""
        while True:
            try:
                self.sample(merged_state(await self._snapshots()))
            except OperationFailed as error:  # a worker did not answer
                log.warning("history_sample_failed", reason=error.failure.message)
            await trio.sleep(STEP_SECONDS)

    def sample(self, state: State) -> None:
        """Keep the growth since the last sample. The first one only begins, and so does one with counters that fell:
        a worker process was replaced."""
        now, totals = trio.current_time(), _totals(state)
        if self._last is not None and totals.bytes_in >= self._last[1].bytes_in:
            began, before = self._last
            self._samples.append(_Sample(round(time.time() * 1000), now - began, _growth(before, totals)))
        self._last = now, totals

    def answer(self) -> dict[str, Any]:
        """Return the history as JSON values: columns with one value for each sample, and sums of the last minute."""
        samples = list(self._samples)
        recent = _sum(samples[-_RECENT:])
        return {
            "step_seconds": STEP_SECONDS,
            "times": [one.time_ms for one in samples],
            **_columns(samples),
            "backs": _of_backs(samples),
            "ways_seconds": sum(one.seconds for one in samples[-_RECENT:]),
            "ways": [
                {"listener": listener, "route": route, "back": back, **_told(counts)}
                for (listener, route, back), counts in sorted(recent.items())
            ],
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
    return _Totals(
        bytes_["in"],
        bytes_["out"],
        records["in"],
        records["out"],
        sum(one.errors for one in ways.values()),
        open_connections(state),
        ways,
    )


def _ways(state: State) -> dict[Way, WayCounts]:
    found: dict[Way, WayCounts] = {}
    for labels, value in state.get(RECORDS.name, {}).items():
        if not isinstance(value, list):
            counts = _counts(found, labels)
            if labels[-1] == "in":
                counts.records_in += value
            else:
                counts.records_out += value
    for labels, value in state.get(ERRORS.name, {}).items():
        if not isinstance(value, list):
            _counts(found, labels).errors += value
    for family in _TIMED:
        for labels, value in state.get(family.name, {}).items():
            if isinstance(value, list):
                counts = _counts(found, labels)
                counts.buckets = list(map(add, counts.buckets, value[:-1]))
    return found


def _counts(found: dict[Way, WayCounts], labels: tuple[str, ...]) -> WayCounts:
    listener, route, back, *_ = labels
    return found.setdefault((listener, route, back), WayCounts())


def _growth(before: _Totals, after: _Totals) -> _Totals:
    ways = {way: counts.plus(before.ways.get(way, WayCounts()), -1) for way, counts in after.ways.items()}
    busiest = sorted((way for way in ways if ways[way].busy > 0), key=lambda way: -ways[way].busy)[:_MOST_WAYS]
    return _Totals(
        after.bytes_in - before.bytes_in,
        after.bytes_out - before.bytes_out,
        after.records_in - before.records_in,
        after.records_out - before.records_out,
        after.errors - before.errors,
        after.connections,
        {way: ways[way] for way in busiest},
    )


def _sum(samples: Iterable[_Sample]) -> dict[Way, WayCounts]:
    found: dict[Way, WayCounts] = {}
    for sample in samples:
        for way, counts in sample.growth.ways.items():
            found[way] = found.get(way, WayCounts()).plus(counts)
    return found


def _told(counts: WayCounts) -> dict[str, Any]:
    return {
        "records_in": counts.records_in,
        "records_out": counts.records_out,
        "operations": sum(counts.buckets),
        "errors": counts.errors,
        "p50_ms": percentile_ms(counts.buckets, 0.5),
        "p99_ms": percentile_ms(counts.buckets, 0.99),
    }


def _columns(samples: Sequence[_Sample]) -> dict[str, list[float]]:
    """Return rates a second, and the number of connections."""
    rates = ("bytes_in", "bytes_out", "records_in", "records_out", "errors")
    found = {name: [round(getattr(one.growth, name) / one.seconds, 3) for one in samples] for name in rates}
    return found | {"connections": [one.growth.connections for one in samples]}


def _of_backs(samples: Sequence[_Sample]) -> dict[str, dict[str, list[float | None]]]:
    """Return for each back that was used the columns of its operations a second, errors a second and times."""
    names = sorted({way[2] for one in samples for way in one.growth.ways if way[2]})
    found: dict[str, dict[str, list[float | None]]] = {}
    for name in names:
        columns: dict[str, list[float | None]] = {"operations": [], "errors": [], "p50_ms": [], "p99_ms": []}
        for one in samples:
            counts = WayCounts()
            for way, more in one.growth.ways.items():
                counts = counts.plus(more) if way[2] == name else counts
            columns["operations"].append(round(sum(counts.buckets) / one.seconds, 3))
            columns["errors"].append(round(counts.errors / one.seconds, 3))
            columns["p50_ms"].append(percentile_ms(counts.buckets, 0.5))
            columns["p99_ms"].append(percentile_ms(counts.buckets, 0.99))
        found[name] = columns
    return found
