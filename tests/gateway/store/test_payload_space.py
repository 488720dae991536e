"""The space of deleted payloads in files beside the database: it is given back, and not before readers have ended."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import (
    BASIN,
    STREAM,
    Fails,
    Unwritable,
    Wall,
    appending,
    eventually,
    trim_record,
)
from support.store.payload_files import (
    LARGE,
    blocks,
    body,
    can_punch,
    check_files,
    file_names,
    from_disk,
    opened,
    places,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings
from penstock.core.back import Following
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    FromSeqNum,
    Locate,
    Read,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.store import payload_files, sweeper, sweeps
from penstock.store.payload_files import path_of
from penstock.store.schema import ReaderConnection

Way = Callable[[EmbeddedBack, Wall], Awaitable[None]]
OTHER = StreamRef(BASIN, "other")
WEEK = 7 * 24 * 3600 * 1000


def rows(back: EmbeddedBack) -> int:
    found: int = back._store._look_ups.execute("SELECT count(*) FROM batches").fetchone()[0]
    return found


async def trim(back: EmbeddedBack, _wall: Wall) -> None:
    await back.perform(Trim(STREAM, FromSeqNum(10)))


async def trim_by_a_record(back: EmbeddedBack, _wall: Wall) -> None:
    await back.perform(trim_record(10))


async def delete_the_stream(back: EmbeddedBack, _wall: Wall) -> None:
    await back.perform(DeleteStream(STREAM))


async def delete_the_basin(back: EmbeddedBack, _wall: Wall) -> None:
    await back.perform(DeleteBasin(BASIN))


async def expire(back: EmbeddedBack, wall: Wall) -> None:
    wall.now += WEEK + 1
    await back.perform(appending(body("new"), stream=ELSEWHERE))
    await back._store.sweeper.expire(back._store.sweeper._clock())


ELSEWHERE = StreamRef("basin-two", "stream")
WAYS = [
    trim,
    *(
        pytest.param(way, marks=pytest.mark.slow)
        for way in (trim_by_a_record, delete_the_stream, delete_the_basin, expire)
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_the_space_of_deleted_payloads_is_given_back(
    settings: EmbeddedSettings, wall: Wall, by_hand: None, way: Way
) -> None:
    """That of other streams is between it, and stays as it is."""
    async with opened(settings, wall, STREAM, ELSEWHERE) as back:
        for number in range(10):
            await back.perform(appending(body(number)))
            if number in (3, 5):
                await back.perform(appending(body(("else", number)), stream=ELSEWHERE))
        [live] = check_files(back).values()
        before = blocks(settings.directory)
        assert before >= live > 12 * LARGE
        await way(back, wall)
        check_files(back)
        await back._store.sweeper.purge()
        left = [place.size for place in places(back)]
        assert sum(check_files(back).values()) == sum(left) and len(left) == (2 if way is not expire else 1)
        kept = [body("new")] if way is expire else [body(("else", number)) for number in (3, 5)]
        assert await from_disk(back, ELSEWHERE) == kept
        [file] = [path_of(settings.directory, 1)]
        assert file.stat().st_size >= live, "places stay where they are"
        if not can_punch(settings.directory):
            pytest.skip("this file system does not free parts of files")
        assert blocks(settings.directory) <= sum(left) + 10 * 4096, "whole blocks are freed"
    async with opened(settings, wall) as back:
        assert await from_disk(back, ELSEWHERE) == kept


async def test_files_in_which_nothing_is_left_are_removed(
    settings: EmbeddedSettings, wall: Wall, by_hand: None, small_files: None
) -> None:
    """But for that to which payloads are appended."""
    async with opened(settings, wall, STREAM, OTHER) as back:
        for number in range(6):
            await back.perform(appending(body(number), stream=OTHER if number == 2 else STREAM))
        await back.perform(Trim(STREAM, FromSeqNum(2)))
        assert len(file_names(settings.directory)) == 6
        await back._store.sweeper.purge()
        assert sorted(check_files(back)) == [3, 4, 5, 6]
        assert file_names(settings.directory) == [f"penstock-0000000{number}.payloads" for number in (3, 4, 5, 6)]
        await back.perform(Trim(STREAM, FromSeqNum(5)))
        await back._store.sweeper.purge()
        assert sorted(check_files(back)) == [3]
        assert file_names(settings.directory) == [f"penstock-0000000{number}.payloads" for number in (3, 6)]
        counted = back._store._look_ups.execute("SELECT number, live > 0 FROM payload_files ORDER BY number").fetchall()
        assert counted == [(3, 1), (6, 0)]
        await back.perform(appending(body("next")))
        await back._store.sweeper.purge()
        assert file_names(settings.directory) == [f"penstock-0000000{number}.payloads" for number in (3, 7)]
        assert await from_disk(back) == [body("next")] and await from_disk(back, OTHER) == [body(2)]
        await back.perform(DeleteStream(STREAM))
        await back.perform(DeleteStream(OTHER))
        await back._store.sweeper.purge()
        assert check_files(back) == {}
        assert file_names(settings.directory) == ["penstock-00000007.payloads"]
    async with opened(settings, wall) as back:
        assert file_names(settings.directory) == []
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(body("again")))
        assert await from_disk(back) == [body("again")]


async def test_a_file_that_cannot_be_removed_is_left_to_the_next_start(
    settings: EmbeddedSettings, wall: Wall, by_hand: None, small_files: None
) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
        await back.perform(appending(body(1)))
        file, aside = path_of(settings.directory, 1), settings.directory / "aside"
        file.rename(aside)
        file.mkdir()
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        await back._store.sweeper.purge()
        file.rmdir()
        aside.rename(file)
        await back._store.sweeper.purge()
        assert len(file_names(settings.directory)) == 2
        assert await from_disk(back) == [body(1)]
    async with opened(settings, wall) as back:
        assert file_names(settings.directory) == ["penstock-00000002.payloads"]
        assert await from_disk(back) == [body(1)]


@pytest.mark.slow
async def test_the_sweeper_gives_space_back_by_itself(
    settings: EmbeddedSettings, wall: Wall, small_files: None
) -> None:
    async with opened(settings, wall, STREAM) as back:
        for number in range(4):
            await back.perform(appending(body(number)))
        await back.perform(Trim(STREAM, FromSeqNum(3)))
        await eventually(lambda: file_names(settings.directory) == ["penstock-00000004.payloads"])
        assert await from_disk(back) == [body(3)]


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_reader_in_the_middle_of_its_transaction_keeps_the_space(
    settings: EmbeddedSettings, wall: Wall, by_hand: None, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """It has found the place, and not opened the file yet. The space is freed when it has ended."""
    if is_removed:
        monkeypatch.setattr(payload_files, "FILE_BYTES", 1)
    found, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def read(db: ReaderConnection) -> bytes:
        row = db.execute(
            "SELECT payload, file, file_offset, file_bytes, checksum FROM batches WHERE last_seq = 0"
        ).fetchone()
        found.set()
        assert go_on.wait(60)
        data = db.payload(*row)
        order.append("read")
        return data

    async with opened(settings, wall, STREAM) as back, trio.open_nursery() as nursery:
        await back.perform(appending(body(0)))
        await back.perform(appending(body(1)))
        reader = back._store.reader
        freed = path_of(settings.directory, 1)
        payload = freed.read_bytes()[: places(back)[0].size]

        async def purge() -> None:
            await back._store.sweeper.purge()
            order.append("freed")

        async def hold() -> None:
            assert await reader.run(read) == payload

        nursery.start_soon(hold)
        await trio.to_thread.run_sync(found.wait)
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        nursery.start_soon(purge)
        try:
            await eventually(lambda: rows(back) == 1)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert freed.read_bytes()[: len(payload)] == payload and order == []
            assert await from_disk(back) == [body(1)], "others read on"
        finally:
            go_on.set()
        await eventually(lambda: order == ["read", "freed"])
        assert not freed.exists() if is_removed else freed.read_bytes()[: len(payload)] != payload
        check_files(back)


async def test_a_purge_that_fails_frees_nothing(settings: EmbeddedSettings, wall: Wall, by_hand: None) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
        await back.perform(appending(body(1)))
        content = path_of(settings.directory, 1).read_bytes()
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        with Unwritable(back), Fails(FailureCode.STORAGE):
            await back._store.sweeper.purge()
        assert path_of(settings.directory, 1).read_bytes() == content
        check_files(back)
        await back._store.sweeper.purge()
        assert len(places(back)) == 1
        check_files(back)


@pytest.mark.slow
async def test_readers_go_on_while_space_is_given_back_behind_them(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers, appends, trims and the sweeper, all at once: what is read is what was written."""
    monkeypatch.setattr(payload_files, "FILE_BYTES", 10 * LARGE)
    monkeypatch.setattr(sweeper, "PURGE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(sweeps, "ROWS_AT_ONCE", 3)
    streams = (STREAM, OTHER)
    sizes = (LARGE, 100, LARGE, 2 * LARGE)
    found = Counter[str]()

    def written(stream: StreamRef, number: int) -> bytes:
        return body((stream.stream, number), sizes[number % len(sizes)])

    async def read(back: EmbeddedBack, stream: StreamRef) -> None:
        while True:
            async with back.read_session(Read(stream, FromSeqNum(0), wait=0, clamp=True)) as session:
                while (batch := await session.next()) is not None:
                    if not isinstance(batch, Following):
                        for record in batch.records():
                            assert record.body == written(stream, record.seq_num)
                            found[stream.stream] += 1

    async def read_bytes(back: EmbeddedBack, stream: StreamRef) -> None:
        while True:
            tail = await back.perform(CheckTail(stream))
            if not tail.seq_num:
                await trio.lowlevel.checkpoint()
                continue
            located = await back.perform(Locate(stream, FromSeqNum(tail.seq_num - 1)))
            if located.at_tail or located.offset is None:
                continue
            data = join_events([written(stream, located.seq_num)])
            try:
                read = await back.perform(ReadBytes(stream, located.offset, len(data)))
            except OperationFailed as error:
                assert error.failure.code is FailureCode.OFFSET_TRUNCATED
                continue
            assert data.startswith(read.data)
            found["bytes"] += 1

    tail_cache = replace(settings, tail_cache_bytes=1, reader_threads=4)
    async with opened(tail_cache, wall, *streams) as back, trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(read, back, stream)
            nursery.start_soon(read_bytes, back, stream)
        for number in range(80):
            for stream in streams:
                await back.perform(appending(written(stream, number), stream=stream))
                if number % 7 == 0:
                    await back.perform(Trim(stream, FromSeqNum(max(number - 12, 0))))
        await eventually(lambda: rows(back) <= 40)
        nursery.cancel_scope.cancel()
        assert min(found.values()) > 20 and len(found) == 3
    async with opened(settings, wall) as back:
        await back._store.reader.passed()
        assert len(check_files(back)) <= 8
