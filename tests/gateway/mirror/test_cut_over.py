"""A cut-over makes the secondary the primary, where both are equal, and nobody loses anything."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.management import asking, overview
from support.mirror import PRIMARY, ROUTE, SECONDARY, Two, append, running, settled
from support.store import BASIN, STREAM, Fails, appending, records, sending

from penstock.backs.base import Back
from penstock.config import RouteTable
from penstock.management.overview import RouteView
from penstock.mirror.mirror import Mirror
from penstock.mirror.route import MirroredRoute
from penstock.mirror.settings import MirrorSettings, OnRefused
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import Target, TargetHolder
from penstock_codecs.byte_operations import NO_ATTRIBUTE, GetAttribute, GetSegmentInfo, Seal, UpdateAttribute
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import CreateStream, FromSeqNum, GetStreamConfig, ListBasins, Read, Trim
from penstock_codecs.streams import StreamConfig, TimestampingMode

Clock = trio.testing.MockClock


def routed(two: Two, holder: TargetHolder) -> Router:
    """A router with this one route."""
    return Router([Route(ROUTE, RouteTable(name=ROUTE).rewriting(), holder)], two.tables)


async def test_the_secondary_takes_over(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("s2")
    async with running(route):
        await append(clients, b"one", b"two")
        done = await route.cut_over()
        assert (done.swapped, done.primary, done.secondary, done.reasons) == (True, SECONDARY, PRIMARY, [])
        assert holder.target.name == SECONDARY
        await append(clients, b"three", match=2)
        assert [record.body for record in await records(two.secondary.back, FromSeqNum(0))] == [
            b"one",
            b"two",
            b"three",
        ]
        done = await route.cut_over()  # and back again, with what was appended since
        assert (done.swapped, done.primary) == (True, PRIMARY)
        await append(clients, b"four", match=3)
        await route.cut_over()
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 4
    state = await two.state()
    assert (state.hashed, state.primary_hash == state.secondary_hash, state.faults) == (4, True, [])


async def test_appends_wait_and_readers_go_on_at_the_same_number(two: Two) -> None:
    """Clients at work in the middle of it: what was acknowledged is there, once, in order."""
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("s2")
    acknowledged: list[bytes] = []
    stop, some = trio.Event(), trio.Event()

    async def write() -> None:
        while not stop.is_set():
            body = b"%d" % len(acknowledged)
            await append(clients, body)
            acknowledged.append(body)
            if len(acknowledged) == 20:
                some.set()

    async with running(route):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await some.wait()
            for primary in (SECONDARY, PRIMARY, SECONDARY):
                done = await route.cut_over(wait_seconds=20)
                assert (done.swapped, done.primary) == (True, primary), done
            stop.set()
        assert (await route.cut_over()).swapped
    ours, theirs = await two.both()
    assert [record.body for record in ours] == acknowledged
    assert theirs == ours


async def test_sessions_of_the_old_primary_end_with_a_failure_to_try_again_after(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("s2")
    async with running(route):
        await append(clients, b"one")
        async with (
            clients.append_session(STREAM) as writer,
            clients.read_session(Read(STREAM, FromSeqNum(1))) as reader,
        ):
            await writer.send(appending(b"two"))
            assert len(await writer.receive()) == 1
            await reader.next()
            assert (await route.cut_over()).swapped
            with Fails(FailureCode.HOT_SERVER, SECONDARY) as failed:
                while True:
                    await reader.next()
            assert failed.failure.retryable and not failed.failure.side_effect_possible
            await writer.send(appending(b"three"))
            with Fails(FailureCode.HOT_SERVER, SECONDARY):
                await writer.receive()
        await append(clients, b"three", match=2)
    assert len(await records(two.secondary.back, FromSeqNum(0))) == 3


async def test_it_is_kept_across_restarts(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    async with running(route):
        await append(holder.target.back, b"one")
        assert (await route.cut_over()).swapped
    again, holder = two.route()
    await again.open()
    assert (holder.target.name, again.primary, again.secondary) == (SECONDARY, SECONDARY, PRIMARY)
    async with running(again):
        await append(holder.target.back, b"two")
        assert (await again.cut_over()).swapped
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 2
    back_again, holder = two.route()
    await back_again.open()
    assert holder.target.name == PRIMARY


async def test_a_secondary_that_cannot_be_reached(two: Two, clock: Clock) -> None:
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("s2")
    two.secondary.down = True
    async with running(route):
        await append(clients, b"one")
        with trio.fail_after(35):
            done = await route.cut_over(wait_seconds=30)
        assert (done.swapped, done.primary) == (False, PRIMARY)
        assert (
            done.reasons[0] == "the mirror has not caught up in time; the last failure: back there: connection refused"
        )
        assert done.held_ms == 0  # appends did not wait for what could not be
        await append(clients, b"two")  # it was let go
        two.secondary.down = False
        await trio.sleep(0.1)
        assert (await route.cut_over(wait_seconds=5)).swapped  # it does not wait for the next attempt


async def test_other_records_on_the_secondary_forbid_it_unless_it_is_forced(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    async with running(route):
        await append(holder.target.back, b"one")
        await append(holder.target.back, b"other", stream=StreamRef(BASIN, "other"))
        assert (await route.cut_over()).swapped and (await route.cut_over()).swapped
        await append(two.secondary.back, b"alien")
        done = await route.cut_over()
        assert (done.swapped, done.reasons) == (False, [f"stream {STREAM}: 1 records differ: extra"])
        assert holder.target.name == PRIMARY
        done = await route.cut_over(force=True)
        assert (done.swapped, done.forced, done.reasons) == (True, True, [f"stream {STREAM}: 1 records differ: extra"])
        assert holder.target.name == SECONDARY
        assert (await route.cut_over()).swapped  # the old primary was given the record since
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 2


async def test_shifted_numbers_forbid_it(two: Two) -> None:
    await append(two.primary, b"0", b"1", b"2")
    await two.primary.perform(Trim(STREAM, FromSeqNum(1)))
    route, _holder = two.route()
    await route.open()
    async with running(route):
        done = await route.cut_over()
    assert done.reasons == [f"stream {STREAM}: its sequence numbers are smaller by 1"]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (OnRefused.STOP, "the copy has stopped: the secondary refuses record 0: a record that it cannot carry"),
        (OnRefused.SKIP, "its sequence numbers are smaller by 1"),
    ],
)
async def test_refused_records_forbid_it(two: Two, policy: OnRefused, reason: str) -> None:
    two.secondary.refuses = lambda body: body == b"bad"
    route, holder = two.route(on_refused=policy)
    await route.open()
    async with running(route):
        await append(holder.target.back, b"bad")
        done = await route.cut_over()
    assert done.reasons == [f"stream {STREAM}: 1 records differ: refused; {reason}"]


async def test_the_new_primary_stamps_records_as_the_old_one_did(two: Two) -> None:
    arrival = StreamConfig(timestamping_mode=TimestampingMode.ARRIVAL)
    await two.primary.perform(CreateStream(STREAM, arrival))
    route, holder = two.route()
    await route.open()
    async with running(route):
        await append(holder.target.back, b"one")
        assert (await route.cut_over()).swapped
        config = await two.secondary.back.perform(GetStreamConfig(STREAM))
        assert (config.timestamping_mode, config.timestamping_uncapped) == (TimestampingMode.ARRIVAL, False)
        await append(holder.target.back, b"two", timestamps=[1])
        assert (await route.cut_over()).swapped
    ours, theirs = await two.both()
    assert theirs == ours and ours[1].timestamp > 1


async def test_one_at_a_time(two: Two, clock: Clock) -> None:
    route, holder = two.route()
    await route.open()
    two.secondary.down = True
    async with running(route), trio.open_nursery() as nursery:
        await append(holder.target.back, b"one")
        nursery.start_soon(route.cut_over)
        await trio.sleep(1)
        with Fails(FailureCode.TRANSACTION_CONFLICT, "under way"):
            await route.cut_over()
        nursery.cancel_scope.cancel()
    assert not holder.held


async def test_who_asked_and_went_away_leaves_nothing_held(two: Two, clock: Clock) -> None:
    route, holder = two.route()
    await route.open()
    two.secondary.down = True
    async with running(route):
        await append(holder.target.back, b"one")
        with trio.move_on_after(20):
            await route.cut_over(wait_seconds=30)
        assert not holder.held
        assert route.primary == PRIMARY
        two.secondary.down = False
        assert (await route.cut_over(wait_seconds=100)).swapped


async def test_by_the_management_listener(two: Two) -> None:
    route, holder = two.route()
    await route.open()
    view = RouteView(name=ROUTE, match="everything", back=PRIMARY, mirrored=route)
    async with running(route), asking(overview(two.tables, routes={ROUTE: view})) as asker:
        await append(holder.target.back, b"one")
        done = await asker.post(f"/routes/{ROUTE}/cut-over", {})
        assert (done["swapped"], done["primary"], done["reasons"]) == (True, SECONDARY, [])
        [shown] = (await asker.get("/routes"))["routes"]
        assert (shown["back"], shown["configured_back"]) == (SECONDARY, PRIMARY)
        assert (shown["mirror"]["primary"], shown["mirror"]["secondary"]) == (SECONDARY, PRIMARY)
        streams = await asker.get(f"/routes/{ROUTE}/streams?limit=1")
        assert (streams["has_more"], streams["streams"][0]["stream"]) == (False, str(STREAM))
        assert (await asker.get(f"/routes/{ROUTE}/streams?after={STREAM}"))["streams"] == []
        await append(two.primary, b"alien")
        done = await asker.post(f"/routes/{ROUTE}/cut-over", {"wait_seconds": 5}, 409)
        assert (done["swapped"], done["reasons"]) == (False, [f"stream {STREAM}: 1 records differ: extra"])
        done = await asker.post(f"/routes/{ROUTE}/cut-over", {"force": True})
        assert (done["swapped"], done["forced"], done["primary"]) == (True, True, PRIMARY)


class SlowToList:
    """A back that takes its time to list basins."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self.capabilities = back.capabilities
        self.read_session = back.read_session

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, ListBasins):
            await trio.sleep(10)
        return await self._back.perform(operation)


async def test_streams_that_found_no_place_in_the_queue_are_not_forgotten(two: Two, clock: Clock) -> None:
    """They are listed again, and whoever wants all of them equal waits for that."""
    names = [StreamRef(BASIN, name) for name in ("a", "b", "c", "d")]
    primary = Target(PRIMARY, "embedded", SlowToList(two.primary))  # type: ignore[arg-type]
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
    """What is under way is acknowledged by the old primary, which still copies it."""
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
    assert "not all streams stamp records as before" in done.reasons[0]


WRITER, NAME = b"w" * 16, b"n" * 16


async def test_writers_go_on_where_they_were(two: Two) -> None:
    """Who connects again is told its position, so that nothing is there twice; other attributes go along as well."""
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment")
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
    assert done.reasons == ["1 writers may send again what is there: there are no attributes"]


async def test_what_is_sealed_is_sealed_on_both_sides(two: Two) -> None:
    """Whether it was sealed by way of the route, or before there was a mirror."""
    before = StreamRef(BASIN, "before")
    await append(two.primary, b"one", stream=before)
    await two.primary.perform(Seal(before))
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment")
    async with running(route):
        await append(clients, b"one")
        await clients.perform(Seal(STREAM))
        assert (await route.cut_over()).reasons == []
        for stream in (STREAM, before):
            assert (await clients.perform(GetSegmentInfo(stream))).sealed
            with Fails(FailureCode.STREAM_SEALED):
                await append(clients, b"two", stream=stream)
        assert (await route.cut_over()).reasons == []


async def test_a_cut_over_that_cannot_be_written_down_did_not_happen(two: Two) -> None:
    """All that belongs to it is there before: who dies just after that finds the new primary complete."""
    route, holder = two.route()
    await route.open()
    clients = routed(two, holder).for_listener("segment")
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
