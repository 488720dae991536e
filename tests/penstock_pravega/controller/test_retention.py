"""Retention: streams are truncated by size, by time, and by what subscribers have read."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from support.controller import BASIN, BASIN_SCOPE, SCOPE, RefusedWith, content, event, info, segments, settings, write
from support.store import Wall
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import BackWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import DeleteStream, GetStreamConfig, Operation, ReconfigureStream
from penstock.model.records import StreamRef
from penstock.model.streams import Retention, StreamConfig
from penstock_pravega.controller.controller import retention
from penstock_pravega.controller.controller.catalog import acknowledged_of, cuts_in
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import GroupCut, ReaderGroup, RetentionType
from penstock_pravega.controller.controller.topology import KeyRange

TEN = event(b"xx")
"""An event of ten bytes."""
MINUTE = 60_000
HALVES = [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
S1, S2 = (1 << 32) + 1, (1 << 32) + 2
"""The segments after the first one was split."""


def by_size(least: int, most: int = 0, count: int = 1) -> retention.Configuration:
    return segments(count, retention_type=RetentionType.SIZE, retention=least, retention_max=most)


def by_time(least: int, most: int = 0) -> retention.Configuration:
    return segments(1, retention_type=RetentionType.TIME, retention=least, retention_max=most)


async def heads(controller: Controller, scope: str = SCOPE) -> dict[int, int]:
    return {segment.id: offset for segment, offset in await controller.queries.at_head(scope, "stream")}


async def fill(back: EmbeddedBack, controller: Controller, wall: Wall, *segment_ids: int) -> None:
    """Write ten bytes to each segment, then let a minute pass until the next turn."""
    for segment in segment_ids or (0,):
        await write(back, SCOPE, "stream", TEN, segment)
    wall.now += MINUTE
    await controller.retention.enforce()


async def subscribe(controller: Controller, name: str = "group", group_id: str = "id") -> None:
    start = (GroupCut(SCOPE, "stream", {}),)
    await controller.groups.create(SCOPE, name, ReaderGroup(0, 0, 0, 1, 0, group_id, start, (), 0))


async def acknowledge(controller: Controller, cut: dict[int, int], name: str = "group", group_id: str = "id") -> None:
    await controller.retention.acknowledge(f"{SCOPE}/{name}", group_id, 0, SCOPE, "stream", cut)


async def kept(back: EmbeddedBack) -> int | None:
    """Seconds for which the first segment keeps its events."""
    config = await back.perform(GetStreamConfig(StreamRef(BASIN, f"{SCOPE}/stream")))
    assert isinstance(config.retention, Retention)
    return config.retention.age_seconds


class WithoutConfigurations(BackWrapper):
    """A back whose server cannot configure its streams, as a segment store."""

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, ReconfigureStream) or getattr(operation, "config", None) == AGED:
            raise fail(FailureCode.NOT_IMPLEMENTED, "the server has no configuration of streams")
        return await super().perform(operation)


AGED = StreamConfig(retention=Retention(60))


async def test_a_back_without_configurations(back: EmbeddedBack, wall: Wall) -> None:
    """Tags and numbers of segments are the controller's, and it truncates at cuts what another back would by age."""
    controller = Controller(WithoutConfigurations(back), settings(), wall)
    await controller.scopes.create(SCOPE)
    await controller.streams.create(SCOPE, "stream", by_time(MINUTE))
    found = []
    for _ in range(3):
        await fill(back, controller, wall)
        found.append((await heads(controller))[0])
    assert found == [0, 10, 20]
    tagged = segments(2, tags=("a",))
    await controller.streams.update(SCOPE, "stream", tagged)
    assert await controller.queries.configuration(SCOPE, "stream") == tagged
    assert len(await controller.queries.current(SCOPE, "stream")) == 2
    await controller.streams.create(SCOPE, "other", by_time(MINUTE))


# ---- without subscribers


async def test_by_size_the_newest_cut_that_keeps_enough(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(25))
    found = []
    for _ in range(5):
        await fill(back, controller, wall)
        found.append((await heads(controller))[0])
    assert found == [0, 0, 0, 10, 20]  # at least 25 bytes stay, and truncation is at tails that were recorded
    assert await content(back, SCOPE, "stream") == TEN * 3


async def test_by_size_over_several_epochs(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    """All segments after the cut count, and those before it are deleted."""
    await controller.streams.create(SCOPE, "stream", by_size(15))
    await fill(back, controller, wall)
    await controller.scaling.scale(SCOPE, "stream", [0], HALVES)
    await fill(back, controller, wall, S1)
    assert await heads(controller) == {0: 0}
    await fill(back, controller, wall, S2)
    assert await heads(controller) == {0: 10}
    await fill(back, controller, wall, S1, S2)
    assert await heads(controller) == {S1: 10, S2: 10}
    assert await info(back, SCOPE, "stream", 0) is None


async def test_what_stands_still_is_not_recorded_again(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(1000))
    await fill(back, controller, wall)
    for _ in range(3):
        wall.now += MINUTE
        await controller.retention.enforce()
    entry = await controller.retention._table.get(cuts_in(SCOPE).key("stream"))
    assert entry is not None
    assert [one.cut for one in entry.value.cuts] == [{0: 10}]


async def test_recorded_cuts_are_bounded(
    back: EmbeddedBack, controller: Controller, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second one goes, and the newest stays."""
    monkeypatch.setattr(retention, "MOST_CUTS", 4)
    await controller.streams.create(SCOPE, "stream", by_size(1000))
    for _ in range(5):
        await fill(back, controller, wall)
    entry = await controller.retention._table.get(cuts_in(SCOPE).key("stream"))
    assert entry is not None
    assert [one.cut[0] for one in entry.value.cuts] == [10, 30, 50]


async def test_streams_without_a_policy_are_left_alone(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1))
    await fill(back, controller, wall)
    assert await heads(controller) == {0: 0}
    assert await controller.retention._table.get(cuts_in(SCOPE).key("stream")) is None


async def test_a_sealed_stream_is_truncated_too(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(10, count=2))
    await fill(back, controller, wall, 0)
    await fill(back, controller, wall, 1)
    await controller.streams.seal(SCOPE, "stream")
    await controller.retention.enforce()
    assert await heads(controller) == {0: 10, 1: 0}


# ---- with subscribers


async def test_by_size_up_to_what_was_read(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    """Between the bounds the subscribers decide."""
    await controller.streams.create(SCOPE, "stream", by_size(10, 45))
    await subscribe(controller)
    await fill(back, controller, wall)
    await fill(back, controller, wall)
    assert await heads(controller) == {0: 10}  # nothing was acknowledged yet: as without subscribers
    await acknowledge(controller, {0: 10})
    for _ in range(3):
        await fill(back, controller, wall)
    assert await heads(controller) == {0: 10}
    await acknowledge(controller, {0: 20})
    await controller.retention.enforce()
    assert await heads(controller) == {0: 20}
    for _ in range(2):
        await fill(back, controller, wall)
    assert await heads(controller) == {0: 30}  # 50 bytes would be kept, but 45 are the most
    await acknowledge(controller, {0: 70})
    await controller.retention.enforce()
    assert await heads(controller) == {0: 60}  # all was read, and 10 bytes are kept


async def test_the_slowest_subscriber_counts(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(10))
    for name in ("fast", "slow"):
        await subscribe(controller, name)
    for _ in range(5):
        await write(back, SCOPE, "stream", TEN)
    await acknowledge(controller, {0: 40}, "fast")
    await acknowledge(controller, {0: 20}, "slow")
    await fill(back, controller, wall)
    assert await heads(controller) == {0: 20}
    await controller.groups.delete(SCOPE, "slow", "")
    await controller.retention.enforce()
    assert await heads(controller) == {0: 40}
    assert await controller.retention._table.get(acknowledged_of(SCOPE, "stream").key("tiny/slow")) is None


async def test_by_time_up_to_what_was_read(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_time(2 * MINUTE, 5 * MINUTE))
    assert await kept(back) == 120
    await subscribe(controller)
    await acknowledge(controller, {0: 0})
    assert await kept(back) == 300  # from now on at most the maximum
    for _ in range(4):
        await fill(back, controller, wall)
    assert await heads(controller) == {0: 0}
    await acknowledge(controller, {0: 10})
    await controller.retention.enforce()
    assert await heads(controller) == {0: 10}
    await acknowledge(controller, {0: 40})
    await controller.retention.enforce()
    assert await heads(controller) == {0: 20}  # what is younger than two minutes stays
    await controller.groups.delete(SCOPE, "group", "")
    await controller.retention.enforce()
    assert await kept(back) == 120


async def test_by_time_beyond_the_maximum_data_goes_unread(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    await controller.streams.create(SCOPE, "stream", by_time(MINUTE, 3 * MINUTE))
    await subscribe(controller)
    await acknowledge(controller, {0: 0})
    for _ in range(5):
        await fill(back, controller, wall)
    assert (await heads(controller))[0] >= 20


async def test_by_time_without_a_maximum_subscribers_hold_all(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    await controller.streams.create(SCOPE, "stream", by_time(MINUTE))
    await subscribe(controller)
    await acknowledge(controller, {0: 0})
    assert await kept(back) is None
    for _ in range(3):
        await fill(back, controller, wall)
    assert await heads(controller) == {0: 0}
    await controller.scaling.scale(SCOPE, "stream", [0], HALVES)
    config = await back.perform(GetStreamConfig(StreamRef(BASIN, f"{SCOPE}/stream/1.#epoch.1")))
    assert config.retention == Retention(None)


async def test_acknowledgements_across_a_split(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(0))
    for name in ("fast", "slow"):
        await subscribe(controller, name)
    await write(back, SCOPE, "stream", TEN * 2)
    await controller.scaling.scale(SCOPE, "stream", [0], HALVES)
    await write(back, SCOPE, "stream", TEN, S1)
    await write(back, SCOPE, "stream", TEN, S2)
    await acknowledge(controller, {S1: 10, S2: 10}, "fast")
    await acknowledge(controller, {0: 10}, "slow")
    await controller.retention.enforce()
    assert await heads(controller) == {0: 10}
    await acknowledge(controller, {S1: 0, S2: 10}, "slow")
    await controller.retention.enforce()
    assert await heads(controller) == {S1: 0, S2: 10}


async def test_who_may_acknowledge_what(controller: Controller) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(10))
    await subscribe(controller)
    for problem, changes in (
        (ControllerProblem.GROUP_NOT_FOUND, {"name": "missing"}),
        (ControllerProblem.GROUP_NOT_FOUND, {"group_id": "other"}),
    ):
        with RefusedWith(problem):
            await acknowledge(controller, {0: 0}, **changes)
    with RefusedWith(ControllerProblem.INVALID_CUT):
        await acknowledge(controller, {1: 0})


async def test_acknowledgements_of_a_deleted_stream_are_forgotten(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    await controller.streams.create(SCOPE, "stream", by_size(10))
    await subscribe(controller)
    await fill(back, controller, wall)
    await acknowledge(controller, {0: 0})
    await controller.streams.seal(SCOPE, "stream")
    await controller.streams.delete(SCOPE, "stream")
    assert await controller.retention._table.get(cuts_in(SCOPE).key("stream")) is None
    assert await controller.retention._table.page(acknowledged_of(SCOPE, "stream")) == ([], False)
    await controller.streams.create(SCOPE, "stream", by_size(10))
    await controller.retention.enforce()


async def test_a_stream_that_others_deleted(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(BASIN_SCOPE, "stream", by_size(0))
    await write(back, BASIN_SCOPE, "stream", TEN)
    await back.perform(DeleteStream(StreamRef(BASIN_SCOPE, "stream")))
    await controller.retention.enforce()
    assert not await controller.queries.exists(BASIN_SCOPE, "stream")


# ---- the duty


async def test_the_duty_has_its_own_clock(back: EmbeddedBack, wall: Wall, clock: MockClock) -> None:
    wanted = settings()
    wanted.retention_seconds = 100.0
    controller = Controller(back, wanted, wall)
    await controller.scopes.create(SCOPE)
    await controller.streams.create(SCOPE, "stream", by_size(10))
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.run)
            await trio.sleep(50)
            for _ in range(2):
                await write(back, SCOPE, "stream", TEN)
                await trio.sleep(100)
            nursery.cancel_scope.cancel()
    assert await heads(controller) == {0: 10}
    [line] = [line for line in logs if line["event"] == "stream_retained"]
    assert line["stream"] == "tiny/stream"
