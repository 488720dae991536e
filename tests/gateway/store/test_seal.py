"""Sealed streams: nothing is appended any more, by any protocol (segment fact sheet, 1.3)."""

import trio
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Blocked,
    Fails,
    FullDisk,
    Wall,
    acknowledged,
    appending,
    bodies,
    sending,
    trim_record,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock.model.byte_operations import GetByteStreamInfo, Seal
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    EnsureStream,
    FromSeqNum,
    Operation,
    Read,
    Trim,
)
from penstock.model.records import StreamRef


async def refuses_appends(back: EmbeddedBack) -> None:
    appends: list[Operation[object]] = [
        appending(b"x"),
        appending(b"x", match=99),
        trim_record(1),
        sending(b"x"),
        sending(b"x", position=1, offset=99),
    ]
    for append in appends:
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(append)


async def test_nothing_is_appended_any_more(back: EmbeddedBack, wall: Wall) -> None:
    await back.perform(appending(b"x"))
    wall.now += 5
    assert await back.perform(Seal(STREAM)) == 9
    assert await back.perform(Seal(STREAM)) == 9
    await refuses_appends(back)
    assert await bodies(back, FromSeqNum(0)) == [b"x"]
    assert await back.perform(CheckTail(STREAM)) == (1, NOW)
    stream = back._store.registry.stream(STREAM)
    assert stream is not None and stream.durable.last_modified == NOW + 5


async def test_it_survives_a_restart_and_trims(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(sending(b"one", b"two"))
        await back.perform(Seal(STREAM))
        await back.perform(Trim(STREAM, FromSeqNum(2)))
        await back._store.sweeper.purge()
    async with open_embedded(settings, wall) as back:
        await refuses_appends(back)
        assert await back.perform(Seal(STREAM)) == 22


async def test_when_a_stream_was_last_changed_outlives_its_records(settings: EmbeddedSettings, wall: Wall) -> None:
    async def modified(back: EmbeddedBack) -> int:
        return (await back.perform(GetByteStreamInfo(STREAM))).last_modified

    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        assert await modified(back) == NOW
        wall.now += 5
        await back.perform(sending(b"x"))
        assert await modified(back) == NOW + 5
    wall.now += 5
    for _ in range(2):
        async with open_embedded(settings, wall) as back:
            assert await modified(back) == NOW + 5
            await back.perform(Trim(STREAM, FromSeqNum(1)))
            await back._store.sweeper.purge()
            assert back._store._look_ups.execute("SELECT count(*) FROM batches").fetchone() == (0,)
    async with open_embedded(settings, wall) as back:
        await back.perform(Seal(STREAM))
        assert await modified(back) == NOW + 10


async def test_deleting_it_frees_the_name(back: EmbeddedBack) -> None:
    await back.perform(appending(b"x"))
    await back.perform(Seal(STREAM))
    await back.perform(EnsureStream(STREAM))
    await refuses_appends(back)
    await back.perform(DeleteStream(STREAM))
    await back.perform(CreateStream(STREAM))
    assert (await back.perform(sending(b"y"))).offset == 9


async def test_a_stream_that_is_not_there(back: EmbeddedBack) -> None:
    for stream in (StreamRef(BASIN, "other"), StreamRef("no-basin", "s")):
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(Seal(stream))


async def test_what_a_session_sent_before_is_kept_and_what_it_sends_later_is_not(back: EmbeddedBack) -> None:
    lengths: list[int] = []

    async def seal() -> None:
        lengths.append(await back.perform(Seal(STREAM)))

    async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
        async with Blocked(back):
            await session.send(sending(b"a", position=1))
            await session.send(appending(b"b"))
            nursery.start_soon(seal)
            await trio.testing.wait_all_tasks_blocked()
            await session.send(sending(b"c", position=2))
            await session.send(appending(b"d"))
            assert not lengths
        assert [ack.offset for ack in await acknowledged(session, 2)] == [9, 18]
        with Fails(FailureCode.STREAM_SEALED):
            await session.receive()
    assert lengths == [18]
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"b"]


async def test_those_that_waited_for_room_come_too_late(settings: EmbeddedSettings, wall: Wall) -> None:
    settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))

        async def late() -> None:
            with Fails(FailureCode.STREAM_SEALED):
                await back.perform(sending(b"y" * 900))

        lengths: list[int] = []

        async def seal() -> None:
            lengths.append(await back.perform(Seal(STREAM)))

        async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
            async with Blocked(back):
                await session.send(sending(b"x" * 900))
                nursery.start_soon(late)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(seal)
                await trio.testing.wait_all_tasks_blocked()
            await acknowledged(session, 1)
        assert lengths == [908]


async def test_readers_of_records_go_on_waiting_and_others_are_woken(back: EmbeddedBack) -> None:
    """Only readers of bytes are woken: they have to see the seal."""
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    followers = stream.followers
    ended: list[str] = []

    async def follow() -> None:
        await followers.park()
        ended.append("follower")

    async with trio.open_nursery() as nursery, back.read_session(Read(STREAM, FromSeqNum(0))) as session:

        async def read() -> None:
            await session.next()
            ended.append("reader")

        assert isinstance(await session.next(), Following)
        nursery.start_soon(follow)
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await back.perform(Seal(STREAM))
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["follower"]
        nursery.cancel_scope.cancel()


async def test_a_seal_that_could_not_be_written_never_was(back: EmbeddedBack) -> None:
    async def fails() -> None:
        with Fails(FailureCode.STORAGE):
            await back.perform(Seal(STREAM))

    with FullDisk(back):
        async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
            await session.send(sending(b"x" * 300_000))
            nursery.start_soon(fails)
            with Fails(FailureCode.STORAGE):
                await session.receive()
    assert (await back.perform(appending(b"x"))).offset == 9
