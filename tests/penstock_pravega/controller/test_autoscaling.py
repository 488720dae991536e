"""Scaling by rate, on a clock that jumps: the rules and the windows are Pravega's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import trio
from structlog.testing import capture_logs
from support.controller import SCOPE, event, segments, settings, write
from support.store import Wall
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock_pravega.controller.controller.autoscaling import _merges, _split
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.records import Configuration, ScaleType
from penstock_pravega.controller.controller.settings import ScalingSettings, SegmentsMode
from penstock_pravega.controller.controller.topology import KeyRange, Segment, initial

SAMPLE = 5.0
TEN = event(b"xx")
"""An event of ten bytes."""
QUICK = ScalingSettings(
    sample_seconds=SAMPLE,
    cooldown_seconds=60.0,
    burst_seconds=20.0,
    busy_seconds=50.0,
    steady_seconds=100.0,
    idle_seconds=200.0,
)
"""The default windows, all of them shorter."""


def by_events(target: int, factor: int = 2, least: int = 1) -> Configuration:
    return segments(least, scale_type=ScaleType.EVENTS, target_rate=target, scale_factor=factor)


class Site:
    """A controller whose turns are taken by hand, and what happened."""

    def __init__(self, back: EmbeddedBack, wall: Wall, scaling: ScalingSettings) -> None:
        self.back = back
        wanted = settings()
        wanted.scaling = scaling
        self.controller = Controller(back, wanted, wall)

    async def current(self) -> list[Segment]:
        return await self.controller.queries.current(SCOPE, "stream")

    async def scaled_within(self, seconds: float, rate: Callable[[Segment], float]) -> float | None:
        """Write so many events per second to each segment until the stream is scaled; return after how long."""
        before, begun = await self.current(), trio.current_time()
        while trio.current_time() < begun + seconds:
            await self.controller.autoscaling.sample()
            if await self.current() != before:
                return trio.current_time() - begun
            for segment in before:
                if count := round(rate(segment) * SAMPLE):
                    await write(self.back, SCOPE, "stream", TEN * count, segment.id)
            await trio.sleep(SAMPLE)
        return None


@pytest.fixture
async def site(back: EmbeddedBack, wall: Wall) -> Site:
    made = Site(back, wall, QUICK)
    await made.controller.scopes.create(SCOPE)
    return made


async def test_the_windows_are_pravegas_by_default(back: EmbeddedBack, wall: Wall, clock: MockClock) -> None:
    """A new segment is left alone for ten minutes."""
    site = Site(back, wall, ScalingSettings())
    await site.controller.scopes.create(SCOPE)
    await site.controller.streams.create(SCOPE, "stream", by_events(1))
    assert await site.scaled_within(1000, lambda _: 8) == 605
    ranges = [(one.low, one.high) for one in await site.current()]
    assert ranges == [(0.0, 0.5), (0.5, 1.0)]


@pytest.mark.parametrize(
    ("rate", "parts", "after"),
    [
        pytest.param(6, 4, 65, id="five times the target over the shortest window, after the cooldown"),
        pytest.param(3, 3, 65, id="twice the target over the middle one"),
        pytest.param(1.4, 2, 105, id="above the target over the long one"),
    ],
)
async def test_hot_segments_are_split(site: Site, clock: MockClock, rate: float, parts: int, after: float) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1, factor=4))
    with capture_logs() as logs:
        assert await site.scaled_within(400, lambda _: rate) == after
    assert len(await site.current()) == parts
    [line] = [line for line in logs if line["event"] == "stream_scaled"]
    assert line["stream"] == "tiny/stream"


@pytest.mark.parametrize("rate", [0.6, 1.0])
async def test_what_is_neither_hot_nor_cold_stays(site: Site, clock: MockClock, rate: float) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1, least=2))
    await site.controller.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.2), KeyRange(0.2, 0.5)])
    assert await site.scaled_within(500, lambda _: rate) is None


async def test_only_the_hot_segment_is_split(site: Site, clock: MockClock) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1, least=2))
    assert await site.scaled_within(300, lambda segment: 8 if segment.number == 1 else 0.8) == 65
    assert [(one.low, one.high) for one in await site.current()] == [(0.0, 0.5), (0.5, 0.75), (0.75, 1.0)]


async def test_rates_in_kilobytes(site: Site, clock: MockClock) -> None:
    """Of ten bytes each, 300 events are almost three kilobytes."""
    policy = segments(1, scale_type=ScaleType.KILOBYTES, target_rate=2, scale_factor=2)
    await site.controller.streams.create(SCOPE, "stream", policy)
    assert await site.scaled_within(300, lambda _: 300) == 105
    policy = segments(1, scale_type=ScaleType.KILOBYTES, target_rate=100, scale_factor=2)
    await site.controller.streams.update(SCOPE, "stream", policy)


async def test_cold_neighbours_are_merged_down_to_the_least_number(site: Site, clock: MockClock) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1, least=4))
    await site.controller.streams.update(SCOPE, "stream", by_events(1, least=2))
    assert await site.scaled_within(400, lambda _: 0) == 205
    assert [(one.low, one.high) for one in await site.current()] == [(0.0, 0.75), (0.75, 1.0)]
    assert await site.scaled_within(600, lambda _: 0) is None


async def test_a_busy_segment_is_not_merged(site: Site, clock: MockClock) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1, least=3))
    await site.controller.streams.update(SCOPE, "stream", by_events(1, least=1))
    assert await site.scaled_within(400, lambda segment: 0.8 if segment.number == 1 else 0) is None
    assert await site.scaled_within(400, lambda segment: 0.8 if segment.number == 0 else 0) is not None
    assert [(one.low, one.high) for one in await site.current()] == [(0.0, 1 / 3), (1 / 3, 1.0)]


async def test_streams_with_other_policies_are_not_watched(site: Site, clock: MockClock) -> None:
    await site.controller.streams.create(SCOPE, "stream", segments(2))
    assert await site.scaled_within(300, lambda segment: 20 * segment.number) is None
    assert site.controller.autoscaling._streams == {}


async def test_streams_that_go_are_forgotten(site: Site, clock: MockClock) -> None:
    await site.controller.streams.create(SCOPE, "stream", by_events(1))
    await site.controller.autoscaling.sample()
    assert list(site.controller.autoscaling._streams) == ["tiny/stream"]
    await site.controller.streams.seal(SCOPE, "stream")
    await site.controller.autoscaling.sample()
    assert site.controller.autoscaling._streams == {}


async def test_the_duty(back: EmbeddedBack, wall: Wall, clock: MockClock) -> None:
    """It finds streams that were created before and after its start, and none if streams have one segment."""
    for mode, expected in ((SegmentsMode.SEPARATE, 2), (SegmentsMode.SINGLE, 1)):
        wanted = settings(mode)
        wanted.scaling = QUICK
        controller = Controller(back, wanted, wall)
        scope = f"scope-{expected}"
        await controller.scopes.create(scope)
        await controller.streams.create(scope, "before", by_events(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.run)
            await trio.sleep(1)
            await controller.streams.create(scope, "after", by_events(1))
            for _ in range(40):
                for name in ("before", "after"):
                    for segment in await controller.queries.current(scope, name):
                        await write(back, scope, name, TEN * 20, segment.id)
                await trio.sleep(SAMPLE)
                if all([len(await controller.queries.current(scope, name)) == 2 for name in ("before", "after")]):
                    break
            nursery.cancel_scope.cancel()
        for name in ("before", "after"):
            assert len(await controller.queries.current(scope, name)) == expected


@pytest.mark.parametrize(
    ("cold", "least", "merged"),
    [
        ("cccc", 1, ["012"]),
        ("ccccc", 1, ["012", "34"]),
        ("cccc", 3, ["01"]),
        ("cccc", 4, []),
        ("cchcc", 1, ["01", "34"]),
        ("chch", 1, []),
        ("hcc", 2, ["12"]),
    ],
)
def test_neighbours_to_merge(cold: str, least: int, merged: list[str]) -> None:
    found = _merges(initial(len(cold)), [one == "c" for one in cold], least)
    assert ["".join(str(segment.number) for segment in group) for group in found] == merged


@pytest.mark.parametrize("parts", [2, 3, 7, 10])
def test_parts_of_a_segment_have_exactly_its_keys(parts: int) -> None:
    [_, segment, _] = initial(3)
    ranges = _split(segment, parts)
    assert (len(ranges), ranges[0].low, ranges[-1].high) == (parts, segment.low, segment.high)
    assert all(one.high == other.low for one, other in itertools.pairwise(ranges))
