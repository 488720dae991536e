"""A sync that fails: nothing is acknowledged after it, the log stays, the process ends, and the next start reads it.

`strace` makes one call in each thread fail, as the disk would.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from support.peers import need
from support.store import BASIN, STREAM, Fails, Wall, appending, bodies, sync_writer
from support.store.payload_files import check_files, file_names

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.errors import CannotStart, StoreFailed
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateBasin, CreateStream, FromSeqNum
from penstock.store.schema import FILE_NAME, prepare_file

APPENDS = 150
FIRST = 100
SOME = (1, 3, 8, 9, 11, 13, 14, 21, 34, 55, 89)
"""The start's, and those of commits, of checkpoints and of logs that begin anew; with large bodies, every second one of
a commit is that of a file of payloads."""
LARGE = 40_000
"""Bytes of bodies that go to files of payloads."""

sizes = pytest.mark.parametrize("size", [1, LARGE], ids=["small", "large"])


def traced(
    call: str, number: int, appends: int, size: int, directory: Path, log: Path
) -> subprocess.CompletedProcess[str]:
    """Run the writer, with an error instead of this call in each thread."""
    strace = need("strace")
    options = ["-f", "-qq", "-y", "--seccomp-bpf", "-o", str(log), "-e", "trace=fsync,fdatasync"]
    inject = ["-e", f"inject={call}:error=EIO:when={number}"]
    writer = [sys.executable, sync_writer.__file__, str(directory), str(appends), str(size)]
    done = subprocess.run([strace, *options, *inject, *writer], capture_output=True, text=True, timeout=60)
    if "ptrace" in done.stderr and not log.read_text():
        pytest.skip(f"strace is not allowed to trace: {done.stderr.splitlines()[0]}")
    return done


async def fail(call: str, number: int, place: Path, size: int, appends: int = APPENDS) -> list[str]:
    """Let a call fail in each thread, and check what comes of it; gives the calls that failed."""
    directory, log = place / "new" / "data", place / "trace"
    done = traced(call, number, appends, size, directory, log)
    calls = log.read_text().splitlines()
    failed = [line for line in calls if "INJECTED" in line]
    told = [int(line) for line in done.stdout.split()]
    # SQLite syncs the directory too when it has made a file, and goes on where that fails. The store has synced it
    # itself before it acknowledges anything, so that nothing depends on it.
    serious = [line for line in failed if f"fdatasync({line.split('(')[1].split('<')[0]}<{directory}>)" not in line]
    if serious:
        assert done.returncode == 1, f"it went on after {serious}"
        assert "cannot use the store" in done.stderr or "may not be on disk" in done.stderr, done.stderr
        if told:
            assert (directory / f"{FILE_NAME}-wal").stat().st_size, "the log is gone"
        after = calls[calls.index(serious[0]) + 1 :]
        assert not [line for line in after if f"{FILE_NAME}>" in line and "= 0" in line][2:], (
            "more than the pass under way"
        )
    else:
        assert (done.returncode, len(told)) == (0, appends), done.stderr
    async with open_embedded(EmbeddedSettings(directory=directory)) as back:
        if told:
            found = await bodies(back, FromSeqNum(0), sync_writer.STREAM)
            expected = [sync_writer.body(number, size) for number in told]
            assert found[: len(told)] == expected, "acknowledged records are gone"
            check_files(back)
    return serious


@sizes
@pytest.mark.parametrize("number", SOME)
async def test_some_syncs(number: int, tmp_path: Path, size: int) -> None:
    assert await fail("fdatasync", number, tmp_path, size), "nothing failed"


async def test_the_first_sync_of_a_directory(tmp_path: Path) -> None:
    assert await fail("fsync", 1, tmp_path, 1), "nothing failed"


def above(directory: Path) -> int:
    """Return the number of directories above one, in its file system."""
    return sum(parent.stat().st_dev == directory.stat().st_dev for parent in directory.parents)


@pytest.mark.parametrize("number", [1, 2, 5])
async def test_syncs_of_the_names_of_files_of_payloads(number: int, tmp_path: Path) -> None:
    """These come after those of the start: of the store's directory, and of those above it."""
    assert await fail("fsync", 3 + above(tmp_path) + number, tmp_path, LARGE), "nothing failed"
    assert len(file_names(tmp_path / "new" / "data")) >= number - 1


@sizes
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_each_of_the_first_hundred_syncs(tmp_path: Path, size: int) -> None:
    serious = 0
    for number in range(1, FIRST + 1):
        place = tmp_path / str(number)
        place.mkdir()
        serious += bool(await fail("fdatasync", number, place, size))
    assert serious >= FIRST - 3, "SQLite's own syncs of the directory are three of them at most"


@sizes
@pytest.mark.long
async def test_each_sync_of_a_directory(tmp_path: Path, size: int) -> None:
    number = 0
    while True:
        number += 1
        place = tmp_path / str(number)
        place.mkdir()
        if not await fail("fsync", number, place, size, appends=20):
            break
    assert number > 3, "the data directory, and two above it that were made"


@sizes
@pytest.mark.long
async def test_each_sync_of_a_close(tmp_path: Path, size: int) -> None:
    """The log is moved then, and removed: where that fails it stays."""
    for number in range(14, 60):
        place = tmp_path / str(number)
        place.mkdir()
        serious = await fail("fdatasync", number, place, size, appends=2)
        if not serious:
            break
    assert number < 59


async def test_a_failed_sync_of_a_checkpoint_ends_the_store(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    settings = EmbeddedSettings(directory=settings.directory, checkpoint_seconds=0.05)
    with pytest.raises(StoreFailed, match=r"may not be on disk: .*Input/output error"):
        async with open_embedded(settings, wall) as back:
            try:
                await back.perform(CreateBasin(BASIN))
                await back.perform(CreateStream(STREAM))
                await back.perform(appending(b"before"))
                monkeypatch.setattr(os, "fdatasync", broken)
                await trio.sleep(60)
            finally:
                with trio.CancelScope(shield=True):
                    with Fails(FailureCode.STORAGE, "may not be on disk"):
                        await back.perform(appending(b"after"))
                    assert back.store.trouble is not None
    assert (settings.directory / f"{FILE_NAME}-wal").stat().st_size, "the log stays"
    monkeypatch.undo()
    async with open_embedded(settings, wall) as back:
        assert await bodies(back, FromSeqNum(0)) == [b"before"]


async def test_a_failed_sync_of_the_directory_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(CannotStart, match="Input/output error"):
        async with open_embedded(EmbeddedSettings(directory=tmp_path / "data")):
            raise AssertionError("opened")


async def test_a_log_that_a_crash_left_is_written_once_more(
    settings: EmbeddedSettings, wall: Wall, tmp_path: Path
) -> None:
    """It may be in the system's cache alone, which tells of a failed sync only once."""
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"x"))
        shutil.copytree(settings.directory, tmp_path / "copy")
    (tmp_path / "copy" / f"{FILE_NAME}-shm").unlink()
    log = tmp_path / "copy" / f"{FILE_NAME}-wal"
    os.utime(log, ns=(0, 0))
    before = log.read_bytes()
    prepare_file(tmp_path / "copy")
    assert log.read_bytes() == before and log.stat().st_mtime_ns > 0
