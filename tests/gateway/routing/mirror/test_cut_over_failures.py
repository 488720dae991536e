"""Cut-overs that something goes wrong with, and what goes along with the records."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.bridges.mirror import PRIMARY, ROUTE, SECONDARY, Two, append, routed, running, settled
from support.store import BASIN, STREAM, Fails, sending

from penstock.core.back import BackWrapper
from penstock.model.byte_operations import NO_ATTRIBUTE, GetAttribute, GetByteStreamInfo, Seal, UpdateAttribute
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import CreateBasin, CreateStream, GetStreamConfig, ListBasins
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, StreamConfig, TimestampingMode
from penstock.routing.mirror.mirror import Mirror
from penstock.routing.mirror.route import MirroredRoute
from penstock.routing.mirror.settings import MirrorSettings
from penstock.routing.target import Target, TargetHolder
from penstock_pravega.segment.names import SegmentNames

Clock = trio.testing.MockClock


class SlowToList(BackWrapper):
    """A back that takes its time to list basins."""

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, ListBasins):
            await trio.sleep(10)
        return await self._inner.perform(operation)


async def test_streams_that_found_no_place_in_the_queue_are_not_forgotten(two: Two, clock: Clock) -> None:
    """They are listed again, and a cut-over that needs all streams equal waits for that."""
    names = [StreamRef(BASIN, name) for name in ("a", "b", "c", "d")]
    primary = Target(PRIMARY, "embedded", SlowToList(two.primary))
    secondary = Target(SECONDARY, "embedded", two.secondary)
    settings = MirrorSettings(most_waiting=2, streams_at_once=1)
    mirror = Mirror(ROUTE, primary, secondary, two.states, settings, lambda _stream: True)
    async with running(mirror):
        await settled(mirror)
        for stream in names:
            await append(mirror.tap, b"one", stream=stream)
        with trio.fail_after(300):
            await mirror.settle()
        assert [(await two.state(stream)).compared for stream in names] == [1] * 4


class Counting(TargetHolder):
    """Knows whether it was held when it was swapped."""

    def swap(self, target: Target) -> None:
        self.was_held = self.held
        super().swap(target)


async def test_appends_wait_also_where_it_is_forced(two: Two, clock: Clock) -> None:
    """Appends in flight are acknowledged by the old primary, which still copies them."""
    targets = (Target(PRIMARY, "embedded", two.primary), Target(SECONDARY, "embedded", two.secondary))
    holder = Counting(targets[0])
    route = MirroredRoute(ROUTE, targets, two.tables, holder, MirrorSettings())
    await route.open()
    two.secondary.down = True
    async with running(route):
        await append(holder.target.back, b"one")
        done = await route.cut_over(force=True, wait_seconds=5)
        assert (done.swapped, done.forced, holder.was_held, holder.held) == (True, True, True, False)
        assert done.held_ms < 5000
        assert "connection refused" in done.reasons[0]


async def test_one_stream_that_cannot_be_configured_leaves_the_others_alone(two: Two) -> None:
    arrival = StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)
    names = [StreamRef(BASIN, name) for name in ("a", "b", "c")]
    route, holder = two.route()
    await route.open()
    async with running(route):
        for stream in names:
            await two.primary.perform(CreateStream(stream, arrival))
            await append(holder.target.back, b"one", stream=stream)
        two.secondary.not_configured = {names[1]}
        done = await route.cut_over()
        assert done.swapped
        assert done.reasons == [f"1 streams do not stamp records as before: no configuration for {names[1]}"]
        for stream in (names[0], names[2]):
            config = await two.secondary.back.perform(GetStreamConfig(stream))
            assert config.timestamping_mode is TimestampingMode.ARRIVAL


async def test_configuring_many_streams_does_not_keep_clients_waiting(two: Two, clock: Clock) -> None:
    route, holder = two.route()
    await route.open()
    async with running(route):
        for number in range(40):
            await append(holder.target.back, b"one", stream=StreamRef(BASIN, f"s{number}"))
        two.secondary.configuring_seconds = 2.0
        done = await route.cut_over(wait_seconds=600)
    assert done.swapped
    assert done.held_ms < 30_000
    assert "some streams do not stamp records as before" in done.reasons[0]


WRITER, NAME = b"w" * 16, b"n" * 16


async def test_writers_go_on_where_they_were(two: Two) -> None:
    """A writer that reconnects gets its position, so that nothing is duplicated; other attributes are copied too."""
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment", SegmentNames())
    await two.primary.perform(CreateStream(STREAM))
    async with running(route):
        await clients.perform(sending(b"one", writer=WRITER, position=1))
        async with clients.append_session(STREAM) as session:
            await session.send(sending(b"two", writer=b"x" * 16, position=7))
            await session.receive()
        assert await clients.perform(UpdateAttribute(STREAM, NAME, 5, NO_ATTRIBUTE))
        assert (await route.cut_over()).reasons == []
        assert await clients.perform(GetAttribute(STREAM, WRITER)) == 1
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await clients.perform(sending(b"one", writer=WRITER, position=1))
        await clients.perform(sending(b"three", writer=WRITER, position=2))
        assert (await route.cut_over()).reasons == []  # and back again
        values = [await two.primary.perform(GetAttribute(STREAM, name)) for name in (WRITER, b"x" * 16, NAME)]
        assert values == [2, 7, 5]
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 3


async def test_attributes_that_cannot_be_carried_over_are_told(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    await two.primary.perform(CreateStream(STREAM))
    two.secondary.no_attributes = True
    async with running(route):
        await holder.target.back.perform(sending(b"one", writer=WRITER, position=1))
        done = await route.cut_over()
    assert done.swapped
    assert done.reasons == ["1 writers may append records again: there are no attributes"]


async def test_what_is_sealed_is_sealed_on_both_sides(two: Two) -> None:
    """Both a stream sealed through the route and one sealed before there was a mirror."""
    before = StreamRef(BASIN, "before")
    await append(two.primary, b"one", stream=before)
    await two.primary.perform(Seal(before))
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment", SegmentNames())
    async with running(route):
        await append(clients, b"one")
        await clients.perform(Seal(STREAM))
        assert (await route.cut_over()).reasons == []
        for stream in (STREAM, before):
            assert (await clients.perform(GetByteStreamInfo(stream))).sealed
            with Fails(FailureCode.STREAM_SEALED):
                await append(clients, b"two", stream=stream)
        assert (await route.cut_over()).reasons == []


async def test_a_cut_over_that_cannot_be_written_down_did_not_happen(two: Two) -> None:
    """Everything else is stored before it: a process that dies just afterwards finds the new primary complete."""
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment", SegmentNames())
    await two.primary.perform(CreateStream(STREAM, StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)))
    kept = route._kept
    seen = []

    class Broken:
        async def put(self, *_arguments: object) -> None:
            seen.append(await two.secondary.back.perform(GetAttribute(STREAM, WRITER)))
            seen.append((await two.secondary.back.perform(GetStreamConfig(STREAM))).timestamping_mode)
            raise fail(FailureCode.STORAGE, "the disk is full")

    async with running(route):
        await clients.perform(sending(b"one", writer=WRITER, position=1))
        route._kept = Broken()  # type: ignore[assignment]
        with Fails(FailureCode.STORAGE, "the disk is full"):
            await route.cut_over()
        assert seen == [1, TimestampingMode.ARRIVAL]
        assert (route.primary, holder.target.name, holder.held) == (PRIMARY, PRIMARY, False)
        await clients.perform(sending(b"two", writer=WRITER, position=2))
        route._kept = kept
        assert (await route.cut_over()).swapped  # the mirror went on
        await append(clients, b"three", match=2)
        assert (await route.cut_over()).swapped
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 3


@pytest.mark.parametrize("error", [fail(FailureCode.STORAGE, "the disk is full"), RuntimeError("a fault of ours")])
async def test_a_mirror_that_failed_altogether_begins_again(two: Two, clock: Clock, error: Exception) -> None:
    route, holder = two.route()
    await route.open()
    visit, failures = route._states.visit, [error, error]

    async def fails_at_first(what: Any) -> None:
        if failures:
            raise failures.pop()
        await visit(what)

    route._states.visit = fails_at_first  # type: ignore[method-assign]
    async with running(route):
        await append(holder.target.back, b"one")
        await trio.sleep(1)
        assert route.status()["state"] == "interrupted"
        await trio.sleep(100)
        assert (await two.state()).compared == 1
        assert (route.status()["state"], route.status()["streams"]) == ("equal", 1)
        assert (await route.cut_over()).swapped


async def test_a_cut_over_while_a_mirror_that_failed_pauses(two: Two, clock: Clock) -> None:
    route, holder = two.route()
    await route.open()
    visit, failures = route._states.visit, [RuntimeError("a fault of ours")]

    async def fails_at_first(what: Any) -> None:
        if failures:
            raise failures.pop()
        await visit(what)

    route._states.visit = fails_at_first  # type: ignore[method-assign]
    async with running(route):
        await append(holder.target.back, b"one")
        await trio.sleep(1)
        done = await route.cut_over(force=True, wait_seconds=2)
        assert (done.swapped, holder.target.name) == (True, SECONDARY)
        await two.secondary.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_append=True)))
        await append(holder.target.back, b"other")
        await trio.sleep(100)
        assert (await two.state()).primary == SECONDARY
