"""Scaling by rate: streams whose policy says so are split where much is written, and merged where little is.

The controller reads, once per `sample_seconds`, how much each current segment of such a stream holds: bytes, or
records. So all writers count, whatever their protocol, and writing costs nothing more. From the differences it keeps
four moving averages, weighted exponentially, over the windows in `ScalingSettings`. The rules are Pravega's:

* A segment is split if one average is above the target rate: the one over `burst_seconds` five times, over
  `busy_seconds` twice, over `steady_seconds` at all. The number of parts is the highest of these averages divided by
  the target rate, at least 2, and at most the scale factor of the policy.
* Up to three neighbours are merged if all of them are cold: the first three averages are below the target rate, and the
  one over `idle_seconds` below half of it. The stream keeps its least number of segments.
* A window decides only about segments that have been watched for longer, and none does during `cooldown_seconds`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
import trio

from penstock.model.failures import OperationFailed
from penstock.tables.struct_table import Prefix
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream
from penstock_pravega.controller.controller.problems import ControllerRefusal
from penstock_pravega.controller.controller.records import Configuration, ScaleType, StreamRecord
from penstock_pravega.controller.controller.scaling import Scaling
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.settings import ScalingSettings
from penstock_pravega.controller.controller.topology import KeyRange, Segment

__all__ = ["AutomaticScaling"]

_SEARCH_TURNS: Final = 12
"""Turns between searches for streams with such a policy."""
_UNITS: Final = {ScaleType.KILOBYTES: 1024, ScaleType.EVENTS: 1}
"""Bytes or records in one unit of a target rate."""

log = structlog.get_logger()


class _Watched(msgspec.Struct):
    """A segment since it is watched: `count` at the last sample, and its rates per second over each window."""

    begun: float
    at: float
    count: int
    rates: list[float] = msgspec.field(default_factory=lambda: [0.0] * 4)

    def note(self, count: int, now: float, windows: Sequence[float]) -> None:
        """Take the next sample."""
        span = now - self.at
        if span <= 0:
            return
        rate = max(0, count - self.count) / span
        self.at, self.count = now, count
        self.rates = [
            rate if average == 0 else average + (1 - math.exp(-span / window)) * (rate - average)
            for average, window in zip(self.rates, windows, strict=True)
        ]


class AutomaticScaling:
    """The duty that watches streams and scales them. Rates are forgotten when the process ends."""

    def __init__(self, catalog: Catalog, scaling: Scaling, settings: ScalingSettings) -> None:
        self._catalog = catalog
        self._scaling = scaling
        self._settings = settings
        self._windows = (
            settings.burst_seconds,
            settings.busy_seconds,
            settings.steady_seconds,
            settings.idle_seconds,
        )
        self._streams: dict[str, dict[int, _Watched]] = {}
        self._turns = 0

    async def sample(self) -> None:
        """Take the samples of one turn, and scale the streams that need it. Failures are logged; the next turn tries
        again."""
        if self._turns % _SEARCH_TURNS == 0:
            await self._search()
        self._turns += 1
        for path in list(self._streams):
            try:
                await self._sample(path)
            except OperationFailed as error:
                log.warning("automatic_scaling_failed", stream=path, error=str(error))

    async def _search(self) -> None:
        paths = [
            path
            async for path, record in self._catalog.table.each(Prefix("stream/", StreamRecord))
            if record.open and _target_rate(record.config)
        ]
        self._streams = {path: self._streams.get(path, {}) for path in paths}

    async def _sample(self, path: str) -> None:
        scope, name = path.split("/")
        stream = await self._catalog.look_up(scope, name)
        target = 0.0 if stream is None or not stream.record.open else _target_rate(stream.record.config)
        if stream is None or not target:
            del self._streams[path]
            return
        await self._measure(stream, path)
        watched = self._streams[path]
        now = trio.current_time()
        cold = []
        for segment in stream.current:
            parts = self._parts(watched[segment.id], target, now) if segment.id in watched else 0
            if parts:
                await self._scale(
                    stream, [segment], _split(segment, min(parts, max(2, stream.record.config.scale_factor)))
                )
            cold.append(not parts and segment.id in watched and self._is_cold(watched[segment.id], target, now))
        for group in _merges(stream.current, cold, stream.record.config.segments):
            await self._scale(stream, group, [KeyRange(group[0].low, group[-1].high)])

    async def _measure(self, stream: CatalogStream, path: str) -> None:
        """Take a sample of each current segment, and forget the others."""
        by_records = stream.record.config.scale_type is ScaleType.EVENTS
        watched: dict[int, _Watched] = {}

        async def measure(segment: Segment) -> None:
            count = await self._catalog.segments.written(stream.name_of(segment), by_records=by_records)
            if count is None:
                return
            now = trio.current_time()
            known = self._streams[path].get(segment.id)
            if known is None:
                watched[segment.id] = _Watched(now, now, count)
            else:
                known.note(count, now, self._windows)
                watched[segment.id] = known

        await at_once(measure, stream.current)
        self._streams[path] = watched

    def _parts(self, watched: _Watched, target: float, now: float) -> int:
        """Return the number of parts to split a segment into; 0: it stays whole."""
        age, rates = now - watched.begun, watched.rates
        hot = any(
            rate > times * target and age > window
            for rate, times, window in zip(rates, (5, 2, 1), self._windows, strict=False)
        )
        return max(2, int(max(rates[:3]) / target)) if hot and age > self._settings.cooldown_seconds else 0

    def _is_cold(self, watched: _Watched, target: float, now: float) -> bool:
        age = now - watched.begun
        return (
            age > max(self._settings.idle_seconds, self._settings.cooldown_seconds)
            and all(rate < target for rate in watched.rates[:3])
            and watched.rates[3] < target / 2
        )

    async def _scale(self, stream: CatalogStream, old: Sequence[Segment], new: Sequence[KeyRange]) -> None:
        try:
            await self._scaling.scale(stream.scope, stream.name, [segment.id for segment in old], new)
        except ControllerRefusal as refused:  # another request scaled or sealed it first, or it has had too many
            log.warning("automatic_scaling_failed", stream=str(stream), error=str(refused))
        else:
            log.info("stream_scaled", stream=str(stream), replaced=[one.id for one in old], segments=len(new))


def _target_rate(config: Configuration) -> float:
    """Return the target rate of a segment in bytes or records per second; 0: the stream is not scaled by rate."""
    return float(config.target_rate * _UNITS.get(config.scale_type, 0))


def _split(segment: Segment, parts: int) -> list[KeyRange]:
    """Return the keys of a segment in equal parts; the last one ends exactly where the segment does."""
    size = (segment.high - segment.low) / parts
    edges = [segment.low + size * index for index in range(parts)] + [segment.high]
    return [KeyRange(low, high) for low, high in itertools.pairwise(edges)]


def _merges(segments: Sequence[Segment], cold: Sequence[bool], least: int) -> list[Sequence[Segment]]:
    """Return neighbours to merge, two or three at a time, so that `least` segments remain. `segments` are in the order
    of their keys; `cold` tells for each whether it may be merged."""
    merges: list[Sequence[Segment]] = []
    spare, at = len(segments) - least, 0
    while at < len(segments) and spare > 0:
        run = at
        while run < len(segments) and cold[run] and run - at < min(3, spare + 1):
            run += 1
        if run - at > 1:
            merges.append(segments[at:run])
            spare -= run - at - 1
        at = max(run, at + 1)
    return merges
