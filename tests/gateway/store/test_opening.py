"""Opening and closing: whose directory it is, whose file, and what is left behind."""

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from support.store import BASIN, NOW, STREAM, Wall, appending, bodies, records, sending

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.errors import CannotStart
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import ReadBytes
from penstock.model.failures import OperationFailed
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    FromRecordId,
    FromSeqNum,
    FromTimestamp,
    GetStreamConfig,
    Locate,
    ProvisionResult,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, Retention, StreamConfig, TimestampingMode
from penstock.store.schema import _MIGRATIONS, APPLICATION_ID, FILE_NAME


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
        (_other_application, "another application"),
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
    """Files that were there keep their permissions."""
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


_FIELDS = {
    "storage_class": ("express", "standard", "gold"),
    "retention": (Retention(None), Retention(5), Retention(604_800)),
    "timestamping_mode": tuple(TimestampingMode),
    "timestamping_uncapped": (True, False, True),
    "delete_on_empty_seconds": (0, 60, 2**64 - 1),
}


def _layers(randomness: random.Random) -> StreamConfig:
    """A layer that says some of it."""
    said = {name: randomness.choice((None, *values)) for name, values in _FIELDS.items()}
    return StreamConfig(**said)  # type: ignore[arg-type]


async def test_a_store_whose_streams_inherited_keeps_what_they_had(settings: EmbeddedSettings, wall: Wall) -> None:
    """Version 1 kept a layer for each stream, and looked at the basin's with each use."""
    randomness = random.Random(1)
    basins = {f"basin-{number:03}": _layers(randomness) for number in range(8)}
    expected: dict[StreamRef, StreamConfig] = {}
    settings.directory.mkdir()
    db = sqlite3.connect(settings.directory / FILE_NAME)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.executescript(f"BEGIN; {_MIGRATIONS[0]} PRAGMA user_version=1; COMMIT;")
    for number, (name, default) in enumerate(basins.items()):
        config = msgspec.json.encode(BasinConfig(default_stream_config=default)).decode()
        db.execute(
            "INSERT INTO basins (id, name, config, created_at, requested_config) VALUES (?, ?, ?, 1, ?)",
            (number, name, config, config),
        )
        for stream in range(40):
            layer = StreamConfig() if stream == 0 else _layers(randomness)
            config = msgspec.json.encode(layer).decode()
            db.execute(
                "INSERT INTO streams (basin, name, config, created_at, request_token, requested_config, modified_at,"
                " emptied_at) VALUES (?, ?, ?, 1, 'token', ?, 1, 1)",
                (number, str(stream), config, config),
            )
            expected[StreamRef(name, str(stream))] = layer.resolve(default)
    db.commit()
    db.close()
    async with open_embedded(settings, wall) as back:
        found = {ref: await back.perform(GetStreamConfig(ref)) for ref in expected}
        assert found == expected
        repeated = await back.perform(CreateStream(StreamRef("basin-000", "0"), StreamConfig(), "token"))
        assert repeated.result is ProvisionResult.NOOP, "it was asked for as it was asked for"


async def test_a_file_of_version_1_is_brought_up_to_date(settings: EmbeddedSettings, wall: Wall) -> None:
    """Its content is found by number, time, identifier and byte, without the indexes that version 1 had for that."""
    settings.directory.mkdir()
    db = sqlite3.connect(settings.directory / FILE_NAME)
    db.execute("PRAGMA page_size=8192")
    db.executescript(Path(__file__).with_name("version_1.sql").read_text())
    db.close()
    events = StreamRef(BASIN, "bytes")
    async with open_embedded(settings, wall) as back:
        look_ups = back._store._look_ups
        assert look_ups.execute("PRAGMA user_version").fetchone() == (len(_MIGRATIONS),)
        names = look_ups.execute(
            "SELECT name FROM sqlite_schema WHERE tbl_name = 'batches' AND type = 'index'"
        ).fetchall()
        assert names == [("batches_by_seq",)]
        found = await records(back, FromSeqNum(0))
        assert [record.body for record in found] == [b"record %d" % number for number in range(120)] + [b"held"]
        for record in found:
            first = next(one for one in found if one.timestamp == record.timestamp)
            assert (await back.perform(Locate(STREAM, FromTimestamp(record.timestamp)))).seq_num == first.seq_num
            located = await back.perform(Locate(STREAM, FromSeqNum(record.seq_num)))
            assert await back.perform(Locate(STREAM, FromRecordId(located.record_id))) == located
        data = join_events([event for number in range(20) for event in (b"event %d" % number, b"another")])
        for offset in range(0, len(data), 7):
            assert (await back.perform(ReadBytes(events, offset, 9))).data == data[offset : offset + 9]
        assert (await back.perform(appending(b"more", token="held"))).start.seq_num == 121
        await back.perform(sending(b"more", stream=events, position=21))


async def test_the_file_is_what_the_documents_say(back: EmbeddedBack, settings: EmbeddedSettings) -> None:
    await back.perform(appending(b"x"))
    db = sqlite3.connect(f"file:{settings.directory / FILE_NAME}?mode=ro", uri=True)
    try:
        pragmas = ("application_id", "user_version", "journal_mode", "page_size")
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas] == [APPLICATION_ID, 9, "wal", 8192]
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
