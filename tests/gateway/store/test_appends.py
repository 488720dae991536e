"""Appends through the back: durable, in order, one failure ends a session (S2 fact sheet 2.3, 5.2)."""

import sys

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Fails,
    Wall,
    acknowledged,
    appending,
    bodies,
    fence,
    records,
    trim_record,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    Appended,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    GetStreamConfig,
    ListStreams,
)
from penstock.model.records import Header, RecordId, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, Retention, StreamConfig

OTHER = StreamRef("basin-two", "made")


async def test_an_acknowledgement_tells_positions_and_the_record_is_visible(back: EmbeddedBack) -> None:
    first = await back.perform(appending(b"x", b"y"))
    at = StreamPosition(2, NOW)
    assert first == Appended(StreamPosition(0, NOW), at, at, RecordId(NOW, 1), offset=18, restamped=0)
    assert await back.perform(CheckTail(STREAM)) == at
    assert await bodies(back, FromSeqNum(0)) == [b"x", b"y"]


async def test_everything_is_there_after_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    headers = {1: (Header(b"name", b"value"), Header(b"name", b""))}
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"", bytes(range(256)), headers=headers, timestamps=[5, 2**40]))
        await back.perform(fence(b"tok"))
        before = await records(back, FromSeqNum(0))
    wall.now -= 1000
    async with open_embedded(settings, wall) as back:
        assert await records(back, FromSeqNum(0)) == before
        with Fails(FailureCode.FENCING_TOKEN_MISMATCH):
            await back.perform(appending(b"a", token="other"))
        appended = await back.perform(appending(b"a", match=3))
        assert appended.last_id == RecordId(NOW, 1), "the clock went back, identifiers did not"


async def test_the_tail_survives_a_trim_of_everything_and_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"a", b"b", exact=NOW + 7))
        await back.perform(trim_record(99))
        await back._store.sweeper.purge()
        assert back._store._look_ups.execute("SELECT count(*) FROM batches").fetchone() == (0,)
    async with open_embedded(settings, wall) as back:
        assert await back.perform(CheckTail(STREAM)) == (3, NOW + 7)
        assert (await back.perform(appending(b"c"))).last_id == RecordId(NOW + 7, 3)
        assert await bodies(back, FromSeqNum(0)) == [b"c"]


async def test_a_session_acknowledges_in_order(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session:
        for number in range(100):
            await session.send(appending(b"%d" % number))
        acks = await acknowledged(session, 100)
    assert [ack.start.seq_num for ack in acks] == list(range(100))
    assert all(ack.tail.seq_num >= ack.end.seq_num for ack in acks)
    assert await bodies(back, FromSeqNum(0)) == [b"%d" % number for number in range(100)]


async def test_after_its_first_failure_a_session_applies_nothing(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session:
        for match in (0, 1, 99, 2, None):
            await session.send(appending(b"x", match=match))
        assert [ack.end.seq_num for ack in await acknowledged(session, 2)] == [1, 2]
        for _ in range(2):
            with Fails(FailureCode.SEQ_NUM_MISMATCH) as fails:
                await session.receive()
            assert fails.failure.details == {"seq_num_mismatch": 2}
        await session.send(appending(b"late"))
    assert (await back.perform(CheckTail(STREAM))).seq_num == 2
    assert (await back.perform(appending(b"others go on", match=2))).end.seq_num == 3


async def test_appends_take_their_place_before_the_first_checkpoint(back: EmbeddedBack) -> None:
    order: list[str] = []

    async def one(name: str) -> None:
        order.append(name)
        await back.perform(appending(name.encode()))

    async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
        for number in range(20):
            nursery.start_soon(one, f"task {number}")
            await trio.lowlevel.checkpoint()
            order.append(f"sent {number}")
            await session.send(appending(order[-1].encode()))
        acknowledged = 0
        while acknowledged < 20:
            acknowledged += len(await session.receive())
    assert await bodies(back, FromSeqNum(0)) == [name.encode() for name in order]


async def test_only_one_of_several_with_one_expectation_wins(back: EmbeddedBack) -> None:
    outcomes: list[str] = []

    async def contend(name: bytes) -> None:
        try:
            await back.perform(appending(name, match=0))
            outcomes.append("won")
        except OperationFailed as error:
            assert error.failure.details == {"seq_num_mismatch": 1}
            assert (await back.perform(CheckTail(STREAM))).seq_num == 1, "told before it was durable"
            outcomes.append("lost")

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(contend, b"%d" % number)
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]


async def test_a_failure_is_told_only_when_what_it_depends_on_is_durable(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session:
        await session.send(appending(b"on its way"))
        assert (await back.perform(CheckTail(STREAM))).seq_num == 0, "it is not durable yet"
        with Fails(FailureCode.SEQ_NUM_MISMATCH) as fails:
            await back.perform(appending(b"b", match=5))
    assert fails.failure.details == {"seq_num_mismatch": 1}
    assert (await back.perform(CheckTail(STREAM))).seq_num == 1


# ---- room ----------------------------------------------------------------------------------------------------


async def test_waiting_for_room_keeps_the_order_and_the_bound(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, append_inflight_bytes=5000), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        admission = back._store.appends.admission
        most = waited = 0
        order: list[bytes] = []

        async def append(number: int) -> None:
            nonlocal most, waited
            size = 9000 if number % 7 == 0 else 1000  # one that is larger than all the room goes alone
            body = b"%05d" % number * (size // 5)
            order.append(body)
            with trio.move_on_after(60):
                await back.perform(appending(body))
            most, waited = max(most, admission.in_flight), max(waited, admission.waiting)

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(append, number)
        assert await bodies(back, FromSeqNum(0)) == order
        assert most <= 9000 + 72 and waited > 10
        assert (admission.in_flight, admission.waiting) == (0, 0)


async def test_cancelled_while_waiting_for_room_it_never_happened(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, append_inflight_bytes=1000), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as first, back.append_session(STREAM) as session:
            await first.send(appending(b"large" * 1000))
            with trio.CancelScope() as scope:
                scope.cancel()
                await session.send(appending(b"never"))
            assert scope.cancelled_caught
            with trio.CancelScope() as scope:
                scope.cancel()
                await back.perform(appending(b"neither"))
            await session.send(appending(b"after"))
            assert [ack.end.seq_num for ack in await session.receive()] == [2]
        assert (await bodies(back, FromSeqNum(0)))[1:] == [b"after"]


async def test_cancelled_after_it_was_sequenced_it_happens_all_the_same(back: EmbeddedBack) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await back.perform(appending(b"on its way"))
    assert scope.cancelled_caught
    await back.perform(appending(b"next"))
    assert await bodies(back, FromSeqNum(0)) == [b"on its way", b"next"]


async def test_unreceived_acknowledgements_hold_up_the_sender(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.append_sessions.MAX_UNRECEIVED", 3)
    async with back.append_session(STREAM) as session:
        for _ in range(3):
            await session.send(appending(b"x"))
        with trio.move_on_after(0.05) as scope:
            await session.send(appending(b"x"))
        assert scope.cancelled_caught
        assert [ack.end.seq_num for ack in await acknowledged(session, 3)] == [1, 2, 3]
        await session.send(appending(b"y"))
        assert [ack.end.seq_num for ack in await session.receive()] == [4]


async def test_who_sends_much_lets_others_run(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:
        passes = 0

        async def other() -> None:
            nonlocal passes
            while True:
                await trio.lowlevel.checkpoint()
                passes += 1

        nursery.start_soon(other)
        for _ in range(640):
            await session.send(appending(b"x"))
        assert passes >= 5
        nursery.cancel_scope.cancel()


async def test_a_group_is_bounded_in_changes_too(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.committer.MOST_CHANGES", 10)
    committer = back._store.committer
    groups: list[int] = []
    take = committer._take_group
    monkeypatch.setattr(committer, "_take_group", lambda: groups.append(len(group := take())) or group)
    async with back.append_session(STREAM) as session:
        for number in range(25):
            await session.send(appending(b"%d" % number))
        await acknowledged(session, 25)
    assert groups == [10, 10, 5]
    assert await bodies(back, FromSeqNum(0)) == [b"%d" % number for number in range(25)]


async def test_what_is_durable_is_not_kept_for_who_does_not_receive(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, tail_cache_bytes=1), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        body = bytes(100_000)
        before = sys.getrefcount(body)
        async with back.append_session(STREAM) as session:
            for _ in range(10):
                await session.send(appending(body))
            while (await back.perform(CheckTail(STREAM))).seq_num < 10:
                await trio.lowlevel.checkpoint()
            assert back._store.appends.admission.in_flight == 0
            assert sys.getrefcount(body) == before
            assert len(await acknowledged(session, 10)) == 10


async def test_a_closed_session_ends_when_everything_is_acknowledged(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session:
        await session.send(appending(b"x"))
        session.close()
        session.close()
        assert [ack.end.seq_num for ack in await session.receive()] == [1]
        assert await session.receive() == await session.receive() == []
    async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
        nursery.start_soon(session.receive)
        await trio.testing.wait_all_tasks_blocked()
        session.close()


async def test_a_session_may_be_forbidden_to_create(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin(OTHER.basin, BasinConfig(create_stream_on_append=True)))
    with Fails(FailureCode.STREAM_NOT_FOUND):
        async with back.append_session(OTHER, create_if_missing=False):
            raise AssertionError("entered")


# ---- streams that are not there ------------------------------------------------------------------------------


async def test_unknown_basin_and_stream(back: EmbeddedBack) -> None:
    for stream, code in (
        (StreamRef("no-such-basin", "s"), FailureCode.BASIN_NOT_FOUND),
        (StreamRef(BASIN, "nope"), FailureCode.STREAM_NOT_FOUND),
    ):
        with Fails(code):
            await back.perform(appending(b"x", stream=stream))
        with Fails(code):
            async with back.append_session(stream):
                raise AssertionError("entered")
    assert not (await back.perform(ListStreams(BASIN, prefix="nope"))).items


async def test_a_basin_may_create_streams_on_append(back: EmbeddedBack) -> None:
    default = StreamConfig(retention=Retention(60), delete_on_empty_seconds=5)
    await back.perform(
        CreateBasin(OTHER.basin, BasinConfig(create_stream_on_append=True, default_stream_config=default))
    )
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(msgspec.structs.replace(appending(b"x", stream=OTHER), create_if_missing=False))
    with Fails(FailureCode.INVALID):
        await back.perform(appending(stream=OTHER))
    assert not (await back.perform(ListStreams(OTHER.basin))).items
    layer = StreamConfig(retention=Retention(90))
    append = msgspec.structs.replace(appending(b"x", stream=OTHER), create_config=layer)
    assert (await back.perform(append)).end.seq_num == 1
    assert (await back.perform(append)).end.seq_num == 2
    config = await back.perform(GetStreamConfig(OTHER))
    assert (config.retention, config.delete_on_empty_seconds) == (Retention(90), 5)

    third = StreamRef(OTHER.basin, "third")
    async with back.append_session(third, layer) as session:
        await session.send(appending(b"x", stream=third))
        assert [ack.end.seq_num for ack in await session.receive()] == [1]
    assert (await back.perform(GetStreamConfig(third))).retention == Retention(90)


async def test_a_failed_condition_on_a_new_stream_leaves_an_empty_stream(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin(OTHER.basin, BasinConfig(create_stream_on_append=True)))
    with Fails(FailureCode.SEQ_NUM_MISMATCH):
        await back.perform(appending(b"x", stream=OTHER, match=4))
    assert await back.perform(CheckTail(OTHER)) == (0, 0)


async def test_a_session_does_not_move_to_a_stream_that_takes_the_name(back: EmbeddedBack) -> None:
    async with back.append_session(STREAM) as session:
        await session.send(appending(b"x"))
        await session.receive()
        await back.perform(DeleteStream(STREAM))
        await back.perform(CreateStream(STREAM))
        await session.send(appending(b"y"))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await session.receive()
    assert await back.perform(CheckTail(STREAM)) == (0, 0)
