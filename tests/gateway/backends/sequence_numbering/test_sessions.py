"""Append and read sessions of a numbered back: following, conditions, timestamps, failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from support.native import FakeNative, MemoryTables
from support.store import (
    NOW,
    STREAM,
    Fails,
    Wall,
    acknowledged,
    appending,
    bodies,
    command,
    records,
    trim_record,
)
from trio.testing import MockClock

from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings, open_indexed
from penstock.core.back import Following
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    EnsureStream,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    GetStreamConfig,
    Locate,
    ProvisionResult,
    Read,
    Trim,
)
from penstock.model.records import RecordBatch, RecordId, StreamPosition
from penstock.model.streams import INFINITE, Retention, StreamConfig, TimestampingMode


def opened(native: FakeNative, wall: Wall, state: Any = None, **settings: Any) -> Any:
    return open_indexed(native, "fake", state or MemoryTables(), IndexedSettings(**settings), wall)


@pytest.fixture
async def back(native: FakeNative, wall: Wall) -> AsyncIterator[IndexedBack]:
    async with opened(native, wall) as found:
        yield found


async def test_a_follower_is_given_what_others_append_and_what_clients_do(
    back: IndexedBack, native: FakeNative
) -> None:
    native.store([b"there"])
    async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        first = await session.next()
        assert isinstance(first, RecordBatch) and first.columns.bodies == [b"there"]
        assert isinstance(await session.next(), Following) and not session.behind()
        native.store([b"other"])
        assert [record.body for record in (await session.next()).records()] == [b"other"]  # type: ignore[union-attr]
        await back.perform(appending(b"mine"))
        batch = await session.next()
        assert isinstance(batch, RecordBatch)
        assert (batch.first_seq_num, batch.columns.bodies) == (2, [b"mine"])
        assert session.tail().seq_num == 3


async def test_a_timestamp_that_resolves_to_the_tail_is_at_the_tail(back: IndexedBack, native: FakeNative) -> None:
    """It follows, and is refused where the read may not; only one after the tail's is beyond it."""
    for tail in (StreamPosition(0, 0), StreamPosition(1, NOW)):
        if tail.seq_num:
            native.store([b"gone"])
            await back.perform(Trim(STREAM, FromSeqNum(1)))
        async with back.read_session(Read(STREAM, FromTimestamp(tail.timestamp))) as session:
            assert await session.next() == Following(tail)
        for start, bounds in ((tail.timestamp, {"count": 1}), (tail.timestamp + 1, {})):
            with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as refused:
                await bodies(back, FromTimestamp(start), **bounds)
            assert refused.failure.details == {"tail": tail._asdict()}


async def test_followers_share_one_reader(back: IndexedBack, native: FakeNative) -> None:
    """And the very same batch."""
    got: list[RecordBatch] = []

    async def follow(task_status: trio.TaskStatus[None]) -> None:
        async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
            assert isinstance(await session.next(), Following)
            task_status.started()
            got.append(await session.next())  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            await nursery.start(follow)
        scans = native.scans
        native.store([b"a", b"b"])
    assert len(got) == 5 and len(set(map(id, got))) == 1
    assert native.scans - scans <= 2


async def test_no_reader_follows_when_all_have_gone(back: IndexedBack, native: FakeNative) -> None:
    async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
        await session.next()
        await trio.testing.wait_all_tasks_blocked()
        assert len(native.changed) == 1
    await trio.testing.wait_all_tasks_blocked()
    assert len(native.changed) == 0


async def test_a_wait_ends_in_time(autojump_clock: MockClock, back: IndexedBack, native: FakeNative) -> None:
    started = trio.current_time()
    async with back.read_session(Read(STREAM, FromTailOffset(0), wait=25)) as session:
        assert isinstance(await session.next(), Following)
        assert await session.next() is None
    assert 25 <= trio.current_time() - started < 26


async def test_a_follower_is_told_that_the_server_was_lost(
    autojump_clock: MockClock, back: IndexedBack, native: FakeNative
) -> None:
    async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
        await session.next()
        native.broken = True
        native.changed.unpark_all()
        with Fails(FailureCode.HOT_SERVER):
            await session.next()
    native.broken = False
    native.store([b"later"])
    assert await bodies(back, FromSeqNum(0)) == [b"later"]


async def test_a_read_from_an_identifier_in_the_future_waits_for_it(
    autojump_clock: MockClock, back: IndexedBack, wall: Wall
) -> None:
    async with back.read_session(Read(STREAM, FromRecordId(RecordId(NOW + 10, 0)))) as session:
        assert isinstance(await session.next(), Following)
        await back.perform(appending(b"before"))
        wall.now += 10
        await back.perform(appending(b"then"))
        batch = await session.next()
    assert isinstance(batch, RecordBatch) and batch.columns.bodies == [b"then"] and batch.first_seq_num == 1


async def test_an_acknowledgement_after_the_record_was_read_says_what_its_reader_was_told(
    autojump_clock: MockClock, back: IndexedBack, native: FakeNative
) -> None:
    native.held = True
    async with back.append_session(STREAM) as session:
        native.store([b"other"])
        await session.send(appending(b"mine"))
        read = await records(back, FromSeqNum(0))
        assert [record.body for record in read] == [b"other", b"mine"]
        native.held = False
        native.changed.unpark_all()
        (appended,) = await acknowledged(session, 1)
    assert appended.start == (read[1].seq_num, read[1].timestamp)


async def test_nothing_behind_a_failure_is_applied(back: IndexedBack, native: FakeNative) -> None:
    async with back.append_session(STREAM) as session:
        for body in (b"a", b"refused", b"b"):
            await session.send(appending(body))
        assert len(await acknowledged(session, 1)) == 1
        with Fails(FailureCode.NOT_REPRESENTABLE):
            await session.receive()
    assert native.bodies == [b"a"]


async def test_what_the_index_cannot_keep_is_not_acknowledged(
    autojump_clock: MockClock, native: FakeNative, wall: Wall
) -> None:
    tables = MemoryTables()
    async with opened(native, wall, tables) as back:
        await back.perform(appending(b"a"))
        tables.broken = True
        with Fails(FailureCode.UNAVAILABLE, "its position is unknown"):
            await back.perform(appending(b"b"))
        with Fails(FailureCode.STORAGE):
            await back.perform(CheckTail(STREAM))
        tables.broken = False
        assert (await back.perform(appending(b"c"))).start.seq_num == 2


async def test_clients_timestamps_are_kept_where_the_server_has_none(
    autojump_clock: MockClock, segment: FakeNative, wall: Wall
) -> None:
    tables = MemoryTables()
    async with opened(segment, wall, tables) as back:
        await back.perform(appending(b"a", b"b", b"c", timestamps=[NOW - 5, None, NOW + 99]))
        segment.held = True
        async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:
            wall.now += 10
            await session.send(appending(b"d", timestamps=[NOW + 3]))
            nursery.start_soon(back.perform, CheckTail(STREAM))  # comes to it first, and waits
            await trio.testing.wait_all_tasks_blocked()
            segment.held = False
            segment.changed.unpark_all()
            await acknowledged(session, 1)
        told = [record.timestamp for record in await records(back, FromSeqNum(0))]
    assert told == [NOW - 5, NOW, NOW, NOW + 3]
    async with opened(segment, wall, tables) as back:
        assert [record.timestamp for record in await records(back, FromSeqNum(0))] == told


async def test_an_exact_timestamp_that_falls_is_refused(segment: FakeNative, wall: Wall) -> None:
    async with opened(segment, wall) as back:
        assert (await back.perform(appending(b"a", exact=5))).last_id == (5, 0)
        assert (await back.perform(appending(b"b", exact=5))).last_id == (5, 1)
        with Fails(FailureCode.NON_MONOTONIC_TIMESTAMP):
            await back.perform(appending(b"c", exact=4))
        assert segment.bodies == [b"a", b"b"]


async def test_a_condition_holds_for_what_others_append_too(segment: FakeNative, wall: Wall) -> None:
    async with opened(segment, wall) as back:
        await back.perform(appending(b"a", match=0))
        segment.store([b"other"])
        with Fails(FailureCode.SEQ_NUM_MISMATCH) as failed:
            await back.perform(appending(b"b", match=1))
        assert failed.failure.details == {"seq_num_mismatch": 2}
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"c"))
            await session.send(appending(b"d", match=3))
            await session.send(appending(b"e"))
            session.close()
            assert [one.start.seq_num for one in await acknowledged(session, 3)] == [2, 3, 4]
            assert await session.receive() == []


async def test_what_the_server_cannot_do_is_refused(back: IndexedBack, native: FakeNative) -> None:
    with Fails(FailureCode.NOT_IMPLEMENTED, "fencing"):
        await back.perform(appending(b"a", token="t"))
    if not native.offsets:
        with Fails(FailureCode.NOT_IMPLEMENTED, "conditional"):
            await back.perform(appending(b"a", match=0))
    assert native.bodies == []


async def test_streams_are_created_where_that_is_configured(native: FakeNative, wall: Wall) -> None:
    native.exists = False
    async with opened(native, wall) as back:
        for attempt in (appending(b"a"), CheckTail(STREAM)):
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(attempt)
    async with opened(native, wall, create_streams=True) as back:
        assert (await back.perform(appending(b"a"))).start.seq_num == 0


async def test_a_stream_that_comes_again_is_counted_from_0(back: IndexedBack, native: FakeNative) -> None:
    await back.perform(appending(b"a", b"b"))
    await back.perform(DeleteStream(STREAM))
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(Locate(STREAM, FromSeqNum(0)))
    created = await back.perform(CreateStream(STREAM))
    assert created.result is ProvisionResult.CREATED and created.info.created_at == NOW
    assert (await back.perform(appending(b"c"))).start.seq_num == 0
    with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
        await back.perform(CreateStream(STREAM))
    assert (await back.perform(EnsureStream(STREAM))).result is ProvisionResult.NOOP


async def test_a_stream_that_others_deleted_is_forgotten(native: FakeNative, wall: Wall) -> None:
    tables = MemoryTables()
    async with opened(native, wall, tables) as back:
        await back.perform(appending(b"a", b"b"))
        async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
            await session.next()
            await native.delete(STREAM)
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await session.next()
        await native.create(STREAM)
        assert (await back.perform(appending(b"c"))).start.seq_num == 0


async def test_a_stream_that_others_deleted_is_forgotten_with_its_configuration(
    back: IndexedBack, native: FakeNative, wall: Wall
) -> None:
    """Else the numbers of the old stream would be those of the next one of its name."""
    await back.perform(appending(b"a", b"b"))
    await native.delete(STREAM)
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(GetStreamConfig(STREAM))
    await native.create(STREAM)
    wall.now += 1
    native.store([b"of another length", b"d", b"e"])
    read = await records(back, FromSeqNum(0), count=3)
    assert [(record.seq_num, record.body) for record in read] == [(0, b"of another length"), (1, b"d"), (2, b"e")]


async def test_a_configuration_says_what_is_so_and_nothing_else_is_taken(back: IndexedBack, native: FakeNative) -> None:
    config = await back.perform(GetStreamConfig(STREAM))
    assert config.retention == INFINITE
    stamps = TimestampingMode.CLIENT_PREFER if native.offsets else TimestampingMode.ARRIVAL
    assert config.timestamping_mode is stamps
    native.exists = False
    with Fails(FailureCode.NOT_IMPLEMENTED, "retention"):
        await back.perform(CreateStream(STREAM, StreamConfig(retention=Retention(60))))
    assert not native.exists
    await back.perform(CreateStream(STREAM, config))


async def test_a_stream_that_was_trimmed_before_it_was_seen_begins_with_0(native: FakeNative, wall: Wall) -> None:
    native.store([b"a", b"b", b"c"])
    native.cut(1)
    async with opened(native, wall) as back:
        read = await records(back, FromSeqNum(0))
        assert [(record.seq_num, record.body) for record in read] == [(0, b"b"), (1, b"c")]


async def test_trimming_all_leaves_the_numbers(native: FakeNative, wall: Wall) -> None:
    tables = MemoryTables()
    async with opened(native, wall, tables) as back:
        await back.perform(appending(b"a", b"b"))
        assert (await back.perform(Trim(STREAM, FromSeqNum(99)))).seq_num == 2
    async with opened(native, wall, tables) as back:
        assert (await back.perform(CheckTail(STREAM))).seq_num == 2
        assert await bodies(back, FromSeqNum(0), count=1) == []
        wall.now += 1
        assert (await back.perform(appending(b"c"))).start.seq_num == 2
        assert [record.seq_num for record in await records(back, FromSeqNum(0))] == [2]


async def test_a_trim_command_is_carried_out(back: IndexedBack, native: FakeNative) -> None:
    await back.perform(appending(b"a", b"b"))
    await back.perform(trim_record(1))
    assert native.first == 1
    await back.perform(trim_record(99))
    assert await records(back, FromSeqNum(0), count=1) == []
    assert native.first == 4 and (await back.perform(CheckTail(STREAM))).seq_num == 4


async def test_a_broken_batch_is_refused(back: IndexedBack, native: FakeNative) -> None:
    for broken in (appending(), command(b"nonsense", b""), command(b"trim", b"short")):
        with Fails(FailureCode.INVALID):
            await back.perform(broken)
    assert native.bodies == []
