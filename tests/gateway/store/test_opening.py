"""Opening and closing: whose directory it is, whose file, and what is left behind."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.store import BASIN, NOW, STREAM, Wall, appending, bodies

from penstock.backs.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.errors import CannotStart
from penstock.store.schema import APPLICATION_ID, FILE_NAME
from penstock_codecs.failures import OperationFailed
from penstock_codecs.operations import CreateBasin, CreateStream, FromSeqNum


async def test_one_process_at_a_time(back: EmbeddedBack, settings: EmbeddedSettings) -> None:
    with pytest.raises(CannotStart, match="in use by another gateway"):
        async with open_embedded(settings):
            raise AssertionError("opened twice")
    await back.perform(appending(b"the first one is unharmed"))


def _other_application(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()


def _newer(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute("PRAGMA user_version=999")
    db.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def _directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_other_application, "some other application"),
        (_newer, "newer gateway"),
        (_garbage, "not a database"),
        (_directory, "unable to open"),
    ],
)
async def test_files_that_are_not_ours(settings: EmbeddedSettings, make: Callable[[Path], None], message: str) -> None:
    settings.directory.mkdir()
    make(settings.directory / FILE_NAME)
    with pytest.raises(CannotStart, match=message):
        async with open_embedded(settings):
            raise AssertionError("opened")


async def test_what_is_made_is_its_owners_alone(settings: EmbeddedSettings, wall: Wall) -> None:
    """And what was there keeps the rights that somebody gave it."""
    before = os.umask(0)
    try:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            made = {path.name: path.stat().st_mode & 0o777 for path in settings.directory.iterdir()}
    finally:
        os.umask(before)
    names = [FILE_NAME, f"{FILE_NAME}-shm", f"{FILE_NAME}-wal", "penstock.lock"]
    assert made == dict.fromkeys(names, 0o600)
    assert settings.directory.stat().st_mode & 0o777 == 0o700
    settings.directory.chmod(0o750)
    (settings.directory / FILE_NAME).chmod(0o640)
    async with open_embedded(settings, wall):
        assert settings.directory.stat().st_mode & 0o777 == 0o750
        assert (settings.directory / f"{FILE_NAME}-wal").stat().st_mode & 0o777 == 0o640


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotStart, match="cannot use the data directory"):
        async with open_embedded(EmbeddedSettings(directory=tmp_path / "file" / "data")):
            raise AssertionError("opened")


async def test_the_file_is_what_the_documents_say(back: EmbeddedBack, settings: EmbeddedSettings) -> None:
    await back.perform(appending(b"x"))
    db = sqlite3.connect(f"file:{settings.directory / FILE_NAME}?mode=ro", uri=True)
    try:
        pragmas = ("application_id", "user_version", "journal_mode", "page_size")
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas] == [APPLICATION_ID, 1, "wal", 8192]
        row = db.execute("SELECT first_seq, last_seq, first_ts, first_id_seq, count, metered, arrived_at FROM batches")
        assert row.fetchone() == (0, 0, NOW, 0, 1, 9, NOW)
    finally:
        db.close()
    writer = back._store._writer
    assert [writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "wal_autocheckpoint")] == [2, 0]


async def test_errors_come_out_of_the_block_as_they_are(settings: EmbeddedSettings) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_embedded(settings):
            _ = 1 / 0
    with trio.CancelScope() as scope:
        async with open_embedded(settings):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_what_was_decided_is_committed_on_the_way_out(settings: EmbeddedSettings, wall: Wall) -> None:
    with trio.CancelScope() as scope:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            async with back.append_session(STREAM) as session:
                for number in range(10):
                    await session.send(appending(b"%d" % number))
                scope.cancel()
                await trio.sleep_forever()
    with pytest.raises(OperationFailed, match="closing"):
        await back.perform(appending(b"too late"))
    assert not (settings.directory / f"{FILE_NAME}-wal").exists(), "the log was moved into the file"
    async with open_embedded(settings, wall) as back:
        assert await bodies(back, FromSeqNum(0)) == [b"%d" % number for number in range(10)]
