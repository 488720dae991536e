"""Disk faults: which operations fail, what is rolled back, and that the store goes on."""

import sqlite3
import threading
import time

import trio
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Blocked,
    Fails,
    FullDisk,
    Unwritable,
    Wall,
    acknowledged,
    appending,
    bodies,
    eventually,
    fence,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    FromSeqNum,
    GetStreamConfig,
    ListStreams,
    Operation,
    Read,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, Retention, StreamConfigPatch
from penstock.store.schema import FILE_NAME, connect_reader

NEW = StreamRef(BASIN, "new")


async def test_a_full_disk_fails_appends_and_nothing_else(back: EmbeddedBack) -> None:
    assert (await back.perform(appending(b"before"))).end.seq_num == 1
    large = appending(b"x" * 500_000)
    with FullDisk(back):
        with Fails(FailureCode.STORAGE, "No space left") as fails:
            await back.perform(large)
        assert fails.failure.retryable and fails.failure.side_effect_possible
        assert await back.perform(CheckTail(STREAM)) == (1, NOW)
        assert await bodies(back, FromSeqNum(0)) == [b"before"]
    assert (await back.perform(appending(b"after", match=1))).end.seq_num == 2
    assert await bodies(back, FromSeqNum(0)) == [b"before", b"after"]
    assert back._store.appends.admission.in_flight == 0


async def test_everything_that_was_decided_on_top_fails_too(back: EmbeddedBack) -> None:
    """One group is under way and another waits, when the disk is found to be full."""
    await back.perform(CreateBasin("basin-two"))
    failed: list[int] = []

    async def fails(number: int, operation: Operation[object]) -> None:
        with Fails(FailureCode.STORAGE):
            await back.perform(operation)
        failed.append(number)

    on_top: list[Operation[object]] = [
        appending(b"small", match=3),
        appending(b"small", match=99),  # it was checked against a state that never existed, so no mismatch is certain
        fence(b"tok"),
        Trim(STREAM, FromSeqNum(3)),
        ReconfigureStream(STREAM, StreamConfigPatch(retention=Retention(5))),
        CreateStream(NEW),
        appending(b"x", stream=NEW),
        DeleteStream(NEW),
        DeleteStream(STREAM),
        CreateStream(STREAM),
        appending(b"y", match=0),
        DeleteBasin(BASIN),
        CreateBasin(BASIN, BasinConfig(create_stream_on_append=True)),
        appending(b"z", match=0),
    ]
    committer = back._store.committer
    with FullDisk(back):
        async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
            async with Blocked(back):
                for number in range(3):
                    await session.send(appending(b"x" * 300_000, match=number))
                    while not committer._group:
                        await trio.lowlevel.checkpoint()
                assert committer._pending
                for number, operation in enumerate(on_top):
                    waiting = len(committer._pending)
                    nursery.start_soon(fails, number, operation)
                    while len(committer._pending) == waiting:
                        await trio.lowlevel.checkpoint()
            with Fails(FailureCode.STORAGE):
                await session.receive()
            await session.send(appending(b"not applied"))
    assert sorted(failed) == list(range(len(on_top)))
    assert not committer.busy
    assert await back.perform(CheckTail(STREAM)) == (0, 0)
    assert [info.name for info in (await back.perform(ListStreams(BASIN))).items] == [STREAM.stream]
    assert (await back.perform(GetStreamConfig(STREAM))).retention == Retention(604_800)
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(CheckTail(NEW))
    assert (await back.perform(appending(b"first", match=0, token=""))).end.seq_num == 1
    assert await bodies(back, FromSeqNum(0)) == [b"first"]


async def test_followers_go_on_after_a_failed_commit(back: EmbeddedBack) -> None:
    async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        assert isinstance(await session.next(), Following)
        with FullDisk(back), Fails(FailureCode.STORAGE):
            await back.perform(appending(b"x" * 300_000))
        await back.perform(appending(b"x"))
        found = await session.next()
        assert found is not None and not isinstance(found, Following)
        assert (found.first_seq_num, found.count) == (0, 1)


async def test_those_that_waited_for_room_are_started_on_what_is_left(settings: EmbeddedSettings, wall: Wall) -> None:
    settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=400_000)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as session:
            with FullDisk(back):
                await session.send(appending(b"x" * 300_000))
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(_survives, back, appending(b"y" * 200_000))
            with Fails(FailureCode.STORAGE):
                await session.receive()
        admission = back._store.appends.admission
        assert (admission.in_flight, admission.waiting) == (0, 0)
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"z"))
            assert len(await acknowledged(session, 1)) == 1


async def test_a_session_whose_append_was_lost_applies_nothing_that_waited(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    """Also if the loss of another client's append makes the room that the waiting one needs."""
    settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=400_000)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        async with (
            back.append_session(STREAM) as other,
            back.append_session(STREAM) as session,
            trio.open_nursery() as nursery,
        ):
            with FullDisk(back):
                async with Blocked(back):
                    await other.send(appending(b"x" * 200_000))
                    await session.send(appending(b"lost" * 40_000))
                    nursery.start_soon(session.send, appending(b"after it" * 10_000))
                    await trio.testing.wait_all_tasks_blocked()
                for one in (other, session):
                    with Fails(FailureCode.STORAGE):
                        await one.receive()
        assert await back.perform(CheckTail(STREAM)) == (0, 0)
        assert back._store.appends.admission.in_flight == 0


async def test_a_send_that_still_waits_may_be_given_up_after_its_session_failed(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=400_000)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        admission = back._store.appends.admission
        async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:
            with FullDisk(back):
                async with Blocked(back):
                    await session.send(appending(b"x" * 300_000))
                    nursery.start_soon(session.send, appending(b"y" * 300_000))
                    await trio.testing.wait_all_tasks_blocked()
                    admission.in_flight += 300_000  # another client's, which stays
                with Fails(FailureCode.STORAGE):
                    await session.receive()
            assert admission.waiting == 1
            nursery.cancel_scope.cancel()
        admission.leave(300_000)
        assert (admission.in_flight, admission.waiting) == (0, 0)


async def test_a_failing_look_up_fails_its_operation_and_nothing_else(settings: EmbeddedSettings, wall: Wall) -> None:
    """Also where it happens to one that waited for room, and is started by the store itself."""
    settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        look_ups = back._store._look_ups

        async def fails() -> None:
            with Fails(FailureCode.STORAGE, "could not read"):
                await back.perform(appending(b"x", stream=NEW))

        async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
            async with Blocked(back):
                await session.send(appending(b"x" * 900))
                nursery.start_soon(fails)
                await trio.testing.wait_all_tasks_blocked()
                look_ups.execute("PRAGMA query_only=OFF")
                look_ups.execute("CREATE TEMP TABLE streams (x)")
            await acknowledged(session, 1)
        look_ups.execute("DROP TABLE temp.streams")
        assert back._store.appends.admission.in_flight == 0
        assert (await back.perform(appending(b"after"))).end.seq_num == 2


async def _survives(back: EmbeddedBack, operation: Operation[object]) -> None:
    try:
        await back.perform(operation)
    except OperationFailed as error:
        assert error.failure.code is FailureCode.STORAGE


async def test_a_store_that_cannot_write_tries_by_itself(back: EmbeddedBack) -> None:
    """Clients are told to stay away meanwhile, so that none may find out that it can again."""
    store = back._store
    await back.perform(appending(b"before"))
    assert store.trouble is None
    with Unwritable(back):
        with Fails(FailureCode.STORAGE):
            await back.perform(appending(b"lost"))
        assert store.trouble == "the store cannot write: interrupted"
        await trio.sleep(1.5)
        assert store.trouble is not None
    await eventually(lambda: store.trouble is None)
    assert await bodies(back, FromSeqNum(0)) == [b"before"]


async def test_what_cannot_be_read_is_said(back: EmbeddedBack) -> None:
    await back.perform(appending(b"x"))
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    stream.recent._batches.clear()
    back._store._writer.execute("UPDATE batches SET payload = x'ff'")
    with Fails(FailureCode.DAMAGED, "record 0 of basin-one/stream is damaged"):
        await bodies(back, FromSeqNum(0))
    back._store._writer.execute("DELETE FROM batches")
    with Fails(FailureCode.STORAGE, "record 0 of basin-one/stream is missing"):
        await bodies(back, FromSeqNum(0))
    back._store._writer.execute("DROP TABLE batches")
    with Fails(FailureCode.STORAGE, "no such table"):
        await bodies(back, FromSeqNum(0))


async def test_the_reason_of_a_read_that_sqlite_rolled_back(back: EmbeddedBack) -> None:
    def fail_as_sqlite_does(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    with Fails(FailureCode.STORAGE, "could not read: disk I/O error"):
        await back._store.reader.run(fail_as_sqlite_does)
    assert await bodies(back, FromSeqNum(0), wait=0) == []


async def test_a_log_that_readers_hold_on_to_begins_anew_all_the_same(settings: EmbeddedSettings, wall: Wall) -> None:
    """There is always some reader in the middle of a transaction, though none of them stays for long."""
    settings = EmbeddedSettings(
        directory=settings.directory, checkpoint_bytes=256 * KIB, log_bytes=MIB, tail_cache_bytes=1
    )
    path = settings.directory / f"{FILE_NAME}-wal"
    ended = threading.Event()

    def read(db: sqlite3.Connection, seconds: float) -> None:
        time.sleep(seconds)
        while not ended.is_set():
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM streams").fetchone()
            time.sleep(0.02)
            db.execute("ROLLBACK")
        db.close()

    async with open_embedded(settings, wall) as back, trio.open_nursery() as nursery:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        for number in range(4):
            nursery.start_soon(trio.to_thread.run_sync, read, connect_reader(settings.directory), number / 200)
        try:
            for _ in range(200):
                await back.perform(appending(bytes(200_000)))
            assert path.stat().st_size < 12 * MIB
        finally:
            ended.set()
