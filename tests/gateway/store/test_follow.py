"""Reads that follow the tail: nothing twice, nothing lost, one encoding for all (S2 fact sheet 5.4, S3P 8.3)."""

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import BASIN, NOW, STREAM, Fails, Wall, acknowledged, appending, records, trim_record

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Read,
    Trim,
)
from penstock.model.records import RecordBatch, RecordId, StreamRef
from penstock.model.streams import BasinConfig
from penstock.store.reads import StoreReadSession


async def batch_of(session: StoreReadSession) -> RecordBatch:
    found = await session.next()
    assert isinstance(found, RecordBatch), found
    return found


async def test_following_is_said_once_and_live_batches_carry_the_tail(back: EmbeddedBack) -> None:
    await back.perform(appending(b"old"))
    async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        assert (await batch_of(session)).tail == (1, NOW)
        assert await session.next() == Following((1, NOW))  # type: ignore[arg-type]
        for number in range(3):
            await back.perform(appending(b"new"))
            live = await batch_of(session)
            assert (live.first_seq_num, live.count, live.tail) == (1 + number, 1, (2 + number, NOW))
            assert session.tail() == live.tail


async def test_appended_between_the_tail_check_and_the_wait_is_delivered_exactly_once(back: EmbeddedBack) -> None:
    """In every interleaving of an appender and a follower that runs after each of its steps."""
    delivered: list[int] = []
    total = 200

    async def follow() -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0), count=total, wait=60)) as session:
            while (found := await session.next()) is not None:
                if isinstance(found, RecordBatch):
                    delivered.extend(found.columns.seq_nums)
                for _ in range(len(delivered) % 4):
                    await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        for number in range(total):
            nursery.start_soon(back.perform, appending(b"x"))
            for _ in range(number % 7):
                await trio.lowlevel.checkpoint()
    assert delivered == list(range(total))


async def test_followers_share_one_batch_and_one_encoding(back: EmbeddedBack) -> None:
    found: list[RecordBatch] = []

    async def follow() -> None:
        async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
            await session.next()
            found.append(await batch_of(session))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await back.perform(appending(b"x"))
    assert len(found) == 50 and all(batch is found[0] for batch in found)


async def test_those_a_little_behind_share_what_was_joined(back: EmbeddedBack) -> None:
    async with (
        back.read_session(Read(STREAM, FromSeqNum(0))) as one,
        back.read_session(Read(STREAM, FromSeqNum(0))) as other,
    ):
        for session in (one, other):
            assert isinstance(await session.next(), Following)
        async with back.append_session(STREAM) as appends:
            for number in range(5):
                await appends.send(appending(b"%d" % number))
            await acknowledged(appends, 5)
        joined = await batch_of(one)
        assert joined.columns.bodies == [b"0", b"1", b"2", b"3", b"4"] and joined.tail == (5, NOW)
        assert await batch_of(other) is joined
        await back.perform(appending(b"5"))
        assert await batch_of(one) is await batch_of(other)


async def test_joins_for_readers_at_many_places_are_not_all_kept(back: EmbeddedBack) -> None:
    for number in range(50):
        await back.perform(appending(b"%d" % number, b"x"))
    for number in range(99):
        assert (await records(back, FromSeqNum(number), count=1))[0].seq_num == number
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    assert len(stream.recent._joined) <= 4


async def test_a_slow_follower_falls_back_to_the_file_and_returns(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, tail_cache_bytes=50_000), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            for _ in range(100):
                await back.perform(appending(b"x" * 5000))
            stream = session._stream
            assert 0 < len(stream.recent._batches) < 10
            seen = 0
            while seen < 100:
                batch = await batch_of(session)
                assert batch.first_seq_num == seen
                seen += batch.count
            assert batch.tail == (100, NOW)
            assert isinstance(await session.next(), Following)
            await back.perform(appending(b"live"))
            assert (await batch_of(session)).first_seq_num == 100


async def test_live_batches_are_cut_by_the_bounds(back: EmbeddedBack) -> None:
    async with (
        back.read_session(Read(STREAM, FromSeqNum(0), count=3, wait=9)) as by_count,
        back.read_session(Read(STREAM, FromSeqNum(0), max_bytes=29, wait=9)) as by_bytes,
        back.read_session(Read(STREAM, FromSeqNum(0), until=30, wait=9)) as by_time,
    ):
        for session in (by_count, by_bytes, by_time):
            assert isinstance(await session.next(), Following)
        await back.perform(appending(b"a", b"b", timestamps=[10, 20]))
        for session in (by_count, by_bytes, by_time):
            assert (await batch_of(session)).columns.bodies == [b"a", b"b"]
        await back.perform(appending(b"c", b"d", timestamps=[29, 30]))
        assert (await batch_of(by_count)).columns.bodies == [b"c"]
        assert (await batch_of(by_bytes)).columns.bodies == [b"c"]
        assert (await batch_of(by_time)).columns.bodies == [b"c"]
        for session in (by_count, by_bytes, by_time):
            assert await session.next() is None


class TestWait:
    async def test_it_expires_and_only_batches_arm_it_again(
        self, mock_clock: trio.testing.MockClock, back: EmbeddedBack
    ) -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0), wait=10)) as session:
            assert isinstance(await session.next(), Following)
            mock_clock.jump(9)
            await back.perform(appending(b"x"))
            assert (await batch_of(session)).count == 1
            for _ in range(3):  # a heartbeat timer cancels and comes back; the deadline does not move
                with trio.move_on_after(3) as heartbeat:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(session.next)
                        await trio.testing.wait_all_tasks_blocked()
                        mock_clock.jump(3)
                assert heartbeat.cancelled_caught
            async with trio.open_nursery() as nursery:
                results: list[object] = []

                async def last() -> None:
                    results.append(await session.next())

                nursery.start_soon(last)
                await trio.testing.wait_all_tasks_blocked()
                assert not results
                mock_clock.jump(1)
            assert results == [None]
            await back.perform(appending(b"too late"))
            assert await session.next() is None

    async def test_what_is_there_when_it_has_expired_is_still_given(
        self, mock_clock: trio.testing.MockClock, back: EmbeddedBack
    ) -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0), wait=10)) as session:
            assert isinstance(await session.next(), Following)
            await back.perform(appending(b"x"))
            mock_clock.jump(11)
            assert (await batch_of(session)).count == 1

    async def test_records_with_lower_identifiers_do_not_end_it(
        self, mock_clock: trio.testing.MockClock, back: EmbeddedBack
    ) -> None:
        await back.perform(appending(b"old", exact=10))
        start = FromRecordId(RecordId(20, 1))
        async with back.read_session(Read(STREAM, start, count=5, wait=10)) as session:
            assert isinstance(await session.next(), Following)
            results: list[RecordBatch] = []

            async def read() -> None:
                results.append(await batch_of(session))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                for exact, names in ((15, [b"a"]), (20, [b"b"]), (20, [b"c", b"d"])):
                    await trio.testing.wait_all_tasks_blocked()
                    mock_clock.jump(3)
                    assert not results
                    await back.perform(appending(*names, exact=exact))
            assert results[0].columns.bodies == [b"c", b"d"]
            assert list(results[0].record_ids()) == [RecordId(20, 1), RecordId(20, 2)]
        async with back.read_session(Read(STREAM, FromRecordId(RecordId(99, 0)), count=5, wait=10)) as session:
            assert isinstance(await session.next(), Following)
            await back.perform(appending(b"below", exact=98))
            mock_clock.jump(10)
            assert await session.next() is None

    async def test_the_next_identifier_is_followed_without_looking_it_up(
        self, mock_clock: trio.testing.MockClock, back: EmbeddedBack
    ) -> None:
        last = (await back.perform(appending(b"old", exact=10))).last_id
        assert last is not None
        start = FromRecordId(RecordId(last.ms, last.seq + 1))
        async with back.read_session(Read(STREAM, start, count=5, wait=10)) as session:
            assert session._least_id is None
            assert isinstance(await session.next(), Following)
            await back.perform(appending(b"new", exact=10))
            assert (await batch_of(session)).first_id == RecordId(10, 1)


async def test_a_timestamp_start_where_nothing_is_retained_follows(back: EmbeddedBack) -> None:
    await back.perform(appending(b"x", timestamps=[10]))
    await back.perform(Trim(STREAM, FromSeqNum(1)))
    async with back.read_session(Read(STREAM, FromTimestamp(5))) as session:
        assert isinstance(await session.next(), Following)
        await back.perform(appending(b"y", timestamps=[11]))
        assert (await batch_of(session)).first_seq_num == 1


async def test_trimmed_while_it_is_being_read(back: EmbeddedBack) -> None:
    for _ in range(5):
        await back.perform(appending(*[b"x" * 1000] * 1000))
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    stream.recent._batches.clear()
    async with back.read_session(Read(STREAM, FromSeqNum(0), wait=0)) as session:
        assert (await batch_of(session)).first_seq_num == 0
        await back.perform(trim_record(4500))
        await back._store.sweeper.purge()
        positions = [(batch.first_seq_num, batch.count) for batch in [await batch_of(session), await batch_of(session)]]
        assert positions in ([(4500, 500), (5000, 1)], [(4500, 501)]), positions
        assert await session.next() is None


@pytest.mark.parametrize("whole_basin", [False, True])
async def test_deleted_while_it_is_being_followed(back: EmbeddedBack, whole_basin: bool) -> None:
    failed = trio.Event()

    async def follow() -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), Following)
            for _ in range(2):
                with Fails(FailureCode.STREAM_NOT_FOUND):
                    await session.next()
        failed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await back.perform(DeleteBasin(BASIN) if whole_basin else DeleteStream(STREAM))
        if not whole_basin:
            await back.perform(CreateStream(STREAM))
            await back.perform(appending(b"another stream of this name"))
        await failed.wait()


async def test_a_stream_is_not_forgotten_between_being_created_and_being_followed(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    """Room for one stream in memory, many creations and appends in one group."""
    async with open_embedded(replace(settings, cached_streams=1), wall) as back:
        await back.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_read=True)))
        refs = [StreamRef(BASIN, f"s{number}") for number in range(20)]
        delivered: list[StreamRef] = []

        async def follow(ref: StreamRef) -> None:
            async with back.read_session(Read(ref, FromSeqNum(0))) as session:
                assert isinstance(await session.next(), Following)
                assert (await batch_of(session)).count == 1
                delivered.append(ref)

        async def create_two(name: str) -> None:
            await back.perform(CreateStream(StreamRef(BASIN, f"{name} a")))
            await back.perform(CreateStream(StreamRef(BASIN, f"{name} b")))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for ref in refs:
                    nursery.start_soon(follow, ref)
                    nursery.start_soon(create_two, ref.stream)
                await trio.testing.wait_all_tasks_blocked(0.05)
                for ref in refs:
                    await back.perform(appending(b"x", stream=ref))
        assert sorted(delivered) == sorted(refs)


async def test_followers_of_other_streams_sleep_on(back: EmbeddedBack) -> None:
    other = StreamRef(BASIN, "other")
    await back.perform(CreateStream(other))
    async with back.read_session(Read(other, FromSeqNum(0))) as session:
        assert isinstance(await session.next(), Following)
        with trio.move_on_after(0.05) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(back.perform, appending(b"x"))
                await session.next()
        assert scope.cancelled_caught
