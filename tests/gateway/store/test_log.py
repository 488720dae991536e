"""The write-ahead log: what an append writes to it, and its length."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import pytest
from support.store import BASIN, STREAM, Wall, appending, bodies, eventually, sending

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.limits import KIB, MIB
from penstock.model.operations import CreateBasin, CreateStream, FromSeqNum, FromTailOffset
from penstock.model.records import StreamRef
from penstock.store.schema import FILE_NAME, PAGE_BYTES

FRAME: Final = PAGE_BYTES + 24
"""Bytes of a page in the log."""


def lengths(back: EmbeddedBack) -> tuple[int, int]:
    """Bytes in the log, and those of them that are in the file."""
    return back._store._log.lengths()


async def test_its_length_is_what_sqlite_says_it_is(back: EmbeddedBack) -> None:
    for _ in range(10):
        await back.perform(appending(b"x"))
    written, moved = lengths(back)
    busy, frames, done = back._store._checkpoints.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert (written, moved, busy) == (frames * FRAME, 0, 0)
    assert lengths(back) == (frames * FRAME, done * FRAME)


@pytest.mark.parametrize("bytes_of_segments", [False, True], ids=["records", "bytes"])
async def test_an_append_of_one_record_writes_two_pages(settings: EmbeddedSettings, bytes_of_segments: bool) -> None:
    """Three where the writer's position is kept as well."""
    async with open_embedded(settings) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"x"))
        before, appends = lengths(back)[0], 500
        for number in range(appends):
            await back.perform(sending(b"x", position=number + 1) if bytes_of_segments else appending(b"x"))
        a_commit = (lengths(back)[0] - before) / appends
        assert a_commit < (3.1 if bytes_of_segments else 2.1) * FRAME


async def append_many(settings: EmbeddedSettings, appends: int) -> int:
    """Append `appends` records of one byte in sequence, and return the greatest size of the log's file, in bytes."""
    log = settings.directory / f"{FILE_NAME}-wal"
    longest = 0
    async with open_embedded(settings) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        for number in range(appends):
            await back.perform(appending(b"x"))
            if number % 16 == 0:
                longest = max(longest, log.stat().st_size)
        assert len(await bodies(back, FromTailOffset(appends))) == appends
    return longest


async def test_small_appends_keep_it_short(settings: EmbeddedSettings) -> None:
    """These write 25 MiB to it."""
    settings = EmbeddedSettings(directory=settings.directory, checkpoint_bytes=256 * KIB, log_bytes=MIB)
    assert await append_many(settings, 1500) <= MIB


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_50_000_small_appends_keep_it_short(settings: EmbeddedSettings) -> None:
    """These write 0.8 GiB to it."""
    longest = await append_many(settings, 50_000)
    print(f"the log was at most {longest / MIB:.1f} MiB long")
    assert longest <= 64 * MIB


async def test_changes_without_a_size_move_it_too(settings: EmbeddedSettings) -> None:
    settings = EmbeddedSettings(directory=settings.directory, checkpoint_seconds=1e9, log_bytes=512 * KIB)
    async with open_embedded(settings) as back:
        await back.perform(CreateBasin(BASIN))
        longest = 0
        for number in range(150):
            await back.perform(CreateStream(StreamRef(BASIN, f"stream-{number:03}")))
            longest = max(longest, lengths(back)[0])
        assert longest < 512 * KIB, "these write 2 MiB"


async def test_an_idle_one_is_moved(settings: EmbeddedSettings) -> None:
    settings = EmbeddedSettings(directory=settings.directory, checkpoint_seconds=0.05)
    async with open_embedded(settings) as back:
        await back.perform(CreateBasin(BASIN))
        await eventually(lambda: len(set(lengths(back))) == 1)
        assert lengths(back)[0] > 0
        await back.perform(CreateStream(STREAM))
        assert lengths(back)[0] < 10 * FRAME, "it began anew"


async def test_one_that_a_crash_left_is_moved_without_a_commit(tmp_path: Path, wall: Wall) -> None:
    """Records acknowledged before are there, though nothing is written after the start."""
    directory, copy = tmp_path / "data", tmp_path / "copy"
    async with open_embedded(EmbeddedSettings(directory=directory), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"x"))
        copy.mkdir()
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            (copy / name).write_bytes((directory / name).read_bytes())
    async with open_embedded(EmbeddedSettings(directory=copy, checkpoint_seconds=0.05), wall) as back:
        written, moved = lengths(back)
        assert written > moved == 0
        await eventually(lambda: lengths(back) == (written, written))
        assert await bodies(back, FromSeqNum(0)) == [b"x"]


async def test_a_reader_that_stays_holds_no_append_up(settings: EmbeddedSettings) -> None:
    """Such as a SQLite shell: the log grows by what is written meanwhile, and its file is cut when that ends."""
    settings = EmbeddedSettings(
        directory=settings.directory, checkpoint_bytes=256 * KIB, log_bytes=MIB, payload_file_bytes=MIB
    )
    log = settings.directory / f"{FILE_NAME}-wal"
    async with open_embedded(settings) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        shell = sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)
        shell.execute("BEGIN")
        shell.execute("SELECT count(*) FROM streams").fetchone()
        for _ in range(20):
            await back.perform(appending(bytes(200_000)))
        assert log.stat().st_size > 4_000_000
        shell.execute("ROLLBACK")
        shell.close()
        for _ in range(20):
            await back.perform(appending(bytes(200_000)))
        assert log.stat().st_size <= MIB
