"""A cut-over makes the secondary the primary once both are equal, and loses nothing."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.bridges.mirror import PRIMARY, ROUTE, SECONDARY, Two, append, routed, running
from support.management import asking, overview
from support.store import BASIN, STREAM, Fails, appending, records

from penstock.app.management.overview import RouteView
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateStream, FromSeqNum, GetStreamConfig, Read, Trim
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig, TimestampingMode
from penstock.routing.mirror.settings import OnRefused

Clock = trio.testing.MockClock


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
    """Clients are at work in the middle of it: acknowledged records are there, once, in order."""
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
        with Fails(FailureCode.TRANSACTION_CONFLICT, "in progress"):
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
