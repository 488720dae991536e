"""Files of payloads that are damaged, cannot be written, or cannot be synced; transactions that fail afterwards."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Blocked,
    Fails,
    NoCommit,
    Unwritable,
    Wall,
    appending,
    bodies,
    sending,
)
from support.store.disks import small_file_system
from support.store.payload_files import (
    LARGE,
    blocks,
    body,
    can_punch,
    check_files,
    descriptors,
    file_names,
    forget,
    from_disk,
    opened,
    places,
)

from penstock.backends.embedded import EmbeddedSettings
from penstock.core.errors import StoreFailed
from penstock.model.byte_operations import Merge, ReadBytes, Seal
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    FromByteOffset,
    FromSeqNum,
    FromTimestamp,
    Locate,
    Operation,
)
from penstock.model.records import StreamRef
from penstock.store.payload_files import path_of

Damage = Callable[[Path], None]
OTHER = StreamRef(BASIN, "other")


# ---- files that are damaged ------------------------------------------------------------------------------------------


def shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def become_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def vanish(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("is_open", [False, True], ids=["at first", "after a read"])
@pytest.mark.parametrize("damage", [shorten, empty, become_a_directory, vanish], ids=lambda damage: damage.__name__)
async def test_a_damaged_file_fails_reads_of_what_is_in_it_and_nothing_else(
    settings: EmbeddedSettings, wall: Wall, small_files: None, damage: Damage, is_open: bool
) -> None:
    """The failure names the file. One that a reader has open stays readable even if its name is gone."""
    name = "penstock-00000002.payloads"
    code = FailureCode.DAMAGED if damage in (shorten, empty) else FailureCode.STORAGE
    async with opened(settings, wall, STREAM, OTHER) as back:
        await back.perform(appending(body(0)))
        await back.perform(sending(body(1)))
        await back.perform(appending(body(2), stream=OTHER))
        if is_open:
            assert await from_disk(back) == [body(0), body(1)]
        damage(settings.directory / name)
        stays = is_open and damage in (become_a_directory, vanish)
        forget(back, STREAM, OTHER)
        begin = 8 + LARGE  # of the event that the second record is
        if stays:
            assert await bodies(back, FromSeqNum(0)) == [body(0), body(1)]
        else:
            for start in (FromSeqNum(1), FromTimestamp(NOW), FromByteOffset(begin)):
                with Fails(code, name) as fails:
                    await bodies(back, start)
                assert str(settings.directory) not in fails.failure.message, "clients are not told where the store is"
            assert (await back.perform(Locate(STREAM, FromSeqNum(1)))).offset == begin, "the row knows where it begins"
            for offset in (begin, begin + 100):
                with Fails(code, name):
                    await back.perform(ReadBytes(STREAM, offset, 100))
            await back.perform(Seal(STREAM))
            with Fails(code, name):
                await back.perform(Merge(OTHER, (STREAM,)))
            assert back._store.trouble is None
        assert (await back.perform(Locate(STREAM, FromSeqNum(0)))).offset == 0
        assert (await back.perform(ReadBytes(STREAM, 8, 100))).data == body(0)[:100]
        assert await from_disk(back, OTHER) == [body(2)]
        await back.perform(appending(body(3), stream=OTHER))
        assert await from_disk(back, OTHER) == [body(2), body(3)]
        await back.perform(DeleteStream(STREAM))
        await back._store.sweeper.purge()
        assert await from_disk(back, OTHER) == [body(2), body(3)]


# ---- writes that fail ------------------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes: a write across that is a short one, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_fails_large_appends_and_leaves_room_for_small_ones(
    tmp_path: Path, wall: Wall, by_hand: None
) -> None:
    """The part of a payload that was written is cut off: it would take the room that a deletion needs."""
    with small_file_system(tmp_path / "disk", 3) as disk:
        settings = EmbeddedSettings(directory=disk / "data", checkpoint_seconds=1e9)
        async with opened(settings, wall, STREAM, OTHER) as back:
            count = 0
            with Fails(FailureCode.STORAGE, "No space left"):
                while True:
                    await back.perform(appending(body(count, 300_000), stream=OTHER))
                    count += 1
            assert count > 3
            for number in range(5):
                assert (await back.perform(appending(b"small"))).end.seq_num == number + 1
                with Fails(FailureCode.STORAGE, "No space left"):
                    await back.perform(appending(body("large", 300_000), match=number + 1))
            assert await from_disk(back) == [b"small"] * 5
            check_files(back)
            await back.perform(DeleteStream(OTHER))
            await back._store.sweeper.purge()
            for number in range(count - 1):
                await back.perform(appending(body(number, 300_000)))
            assert await from_disk(back) == [b"small"] * 5 + [body(number, 300_000) for number in range(count - 1)]
            check_files(back)


@pytest.mark.parametrize("pages", [2, 3, 4])
async def test_a_disk_that_has_room_for_a_payload_and_not_for_its_row_gets_the_room_back(
    tmp_path: Path, wall: Wall, by_hand: None, pages: int
) -> None:
    """At once: else appends that fail fill the disk up, and only one that succeeds ends that. It takes two pages."""

    def free() -> int:
        found = os.statvfs(disk)
        return found.f_bfree * found.f_bsize

    with small_file_system(tmp_path / "disk", 3) as disk:
        settings = EmbeddedSettings(directory=disk / "data", checkpoint_seconds=1e9)
        async with opened(settings, wall, STREAM) as back:
            await back.perform(appending(body(0)))
            if not can_punch(settings.directory):
                pytest.skip("space is not given back here")
            (disk / "filler").write_bytes(bytes(free() - 40_960 - pages * 4096))
            before = free()
            for number in range(3):
                with Fails(FailureCode.STORAGE):
                    await back.perform(appending(body(number)))
                assert free() >= before - (pages + 1) * 4096
            (disk / "filler").unlink()
            assert (await back.perform(appending(body(1), match=1))).end.seq_num == 2
            assert await from_disk(back) == [body(0), body(1)]
            check_files(back)


async def test_nothing_that_was_decided_on_top_of_a_failed_payload_stays(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    async with opened(settings, wall, STREAM, OTHER) as back:
        await back.perform(appending(body(0, 300_000)))
        size = path_of(settings.directory, 1).stat().st_size
        failed: list[int] = []

        async def fails(number: int, operation: Operation[object]) -> None:
            with Fails(FailureCode.STORAGE, "File too large"):
                await back.perform(operation)
            failed.append(number)

        group: list[Operation[object]] = [
            appending(body(1, 300_000), match=1),
            appending(b"small", match=2),
            sending(body(2), stream=OTHER, position=1),
            CreateStream(StreamRef(BASIN, "new")),
            DeleteStream(OTHER),
        ]
        with largest_file(size + 200_000):
            async with trio.open_nursery() as nursery, Blocked(back):
                for number, operation in enumerate(group):
                    nursery.start_soon(fails, number, operation)
                    await trio.testing.wait_all_tasks_blocked()
            assert sorted(failed) == [0, 1, 2, 3, 4]
            assert path_of(settings.directory, 1).stat().st_size == size, "what was written is cut off"
            assert await back.perform(CheckTail(STREAM)) == (1, NOW)
            assert await from_disk(back) == [body(0, 300_000)]
            assert (await back.perform(appending(body(3), match=1))).end.seq_num == 2
        await back.perform(appending(body(4, 300_000), match=2))
        await back.perform(sending(body(2), stream=OTHER, position=1))
        assert back._store.trouble is None
        assert await from_disk(back) == [body(0, 300_000), body(3), body(4, 300_000)]
        check_files(back)
        assert [place.offset for place in places(back)][1] == size, "there is no gap"
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(0, 300_000), body(3), body(4, 300_000)]
        assert await from_disk(back, OTHER) == [body(2)]


async def test_a_short_write_is_continued(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux writes less than was asked only where the rest fails, but may do otherwise."""
    pwritev, pwrite = os.pwritev, os.pwrite
    writes: list[int] = []

    def some(file: int, pieces: Sequence[bytes], offset: int) -> int:
        data = b"".join(pieces)
        writes.append(len(data))
        return pwritev(file, [data[: len(data) * 2 // 3]], offset)

    def less(file: int, data: bytes, offset: int) -> int:
        writes.append(len(data))
        return pwrite(file, data[: max(len(data) // 2, 1)], offset)

    async with opened(settings, wall, STREAM, OTHER) as back:
        await back.perform(appending(body(0)))
        monkeypatch.setattr(os, "pwritev", some)
        monkeypatch.setattr(os, "pwrite", less)
        async with trio.open_nursery() as nursery, Blocked(back):
            nursery.start_soon(back.perform, appending(body(1), body(2)))
            nursery.start_soon(back.perform, appending(body(3), stream=OTHER))
            await trio.testing.wait_all_tasks_blocked()
        monkeypatch.undo()
        assert len(writes) > 10
        await back.perform(appending(body(4)))
        assert await from_disk(back) == [body(0), body(1), body(2), body(4)]
        assert await from_disk(back, OTHER) == [body(3)]
        check_files(back)


@pytest.mark.parametrize("broken", [Unwritable, NoCommit])
async def test_a_transaction_that_fails_leaves_a_gap_and_no_row(
    settings: EmbeddedSettings, wall: Wall, broken: type[Unwritable | NoCommit]
) -> None:
    """Its place is not used again, since a log that a crash leaves may still have the row. Its space is given back when
    another transaction has taken its place in the log.
    """
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
        before = check_files(back)
        with broken(back):
            for _ in range(2):
                with Fails(FailureCode.STORAGE):
                    await back.perform(appending(body("lost"), match=1))
            assert check_files(back) == before
            with Fails(FailureCode.STORAGE):
                await back.perform(appending(b"lost too", match=1))
        file = path_of(settings.directory, 1)
        assert file.read_bytes().count(body("lost")) == 2
        taken = blocks(settings.directory)
        await back.perform(appending(b"small", match=1))
        can_free = can_punch(settings.directory)
        assert file.read_bytes().count(body("lost")) == (0 if can_free else 2)
        assert blocks(settings.directory) < taken or not can_free
        await back.perform(appending(body(1), match=2))
        first, second = places(back)
        assert second.offset >= first.size + 2 * LARGE
        assert await from_disk(back) == [body(0), b"small", body(1)]
        check_files(back)
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(0), b"small", body(1)]
        check_files(back)


@pytest.mark.parametrize("broken", [Unwritable, NoCommit])
async def test_files_of_transactions_that_failed_are_removed(
    settings: EmbeddedSettings, wall: Wall, by_hand: None, small_files: None, broken: type[Unwritable | NoCommit]
) -> None:
    """By the next start at the latest: no row says that they are there."""
    async with opened(settings, wall, STREAM) as back:
        with broken(back):
            for _ in range(3):
                with Fails(FailureCode.STORAGE):
                    await back.perform(appending(body("lost")))
        await back.perform(appending(body(0)))
        assert await from_disk(back) == [body(0)]
        await back._store.sweeper.purge()
        check_files(back)
    async with opened(settings, wall) as back:
        assert file_names(settings.directory) == ["penstock-00000004.payloads"]
        assert await from_disk(back) == [body(0)]


async def test_a_file_that_cannot_be_made_fails_the_append_and_nothing_else(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    async with opened(settings, wall, STREAM) as back:
        path_of(settings.directory, 1).mkdir()
        with Fails(FailureCode.STORAGE, "Is a directory: 'penstock-00000001.payloads'"):
            await back.perform(appending(body(0)))
        await back.perform(appending(b"small"))
        path_of(settings.directory, 1).rmdir()
        await back.perform(appending(body(1)))
        assert await from_disk(back) == [b"small", body(1)]
        assert descriptors(settings.directory) == 2
    assert descriptors(settings.directory) == 0


@pytest.mark.parametrize("call", ["fdatasync", "fsync"], ids=["of the file", "of its name"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_failed_sync_of_a_file_of_payloads_ends_the_store(
    settings: EmbeddedSettings,
    wall: Wall,
    monkeypatch: pytest.MonkeyPatch,
    small_files: None,
    call: str,
    is_first: bool,
) -> None:
    def broken(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    expected = [] if is_first else [body("before")]
    with pytest.raises(StoreFailed, match=r"may not be on disk: .*a sync failed: Input/output error"):
        async with opened(settings, wall, STREAM) as back:
            for one in expected:
                await back.perform(appending(one))
            monkeypatch.setattr(os, call, broken)
            with Fails(FailureCode.STORAGE, "may not be on disk"):
                await back.perform(appending(body("lost")))
            with Fails(FailureCode.STORAGE, "may not be on disk"):
                await back.perform(appending(b"after"))
            await trio.sleep_forever()
    monkeypatch.undo()
    assert descriptors(settings.directory) == 0
    async with opened(settings, wall) as back:
        assert await from_disk(back) == expected
        assert len(file_names(settings.directory)) == len(expected)
        await back.perform(appending(body("next")))
        assert await from_disk(back) == [*expected, body("next")]
        check_files(back)
