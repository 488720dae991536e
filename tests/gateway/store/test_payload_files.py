"""Large payloads in files beside the database: where they lie, that they read the same, and what a start finds."""

from __future__ import annotations

import base64
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.kafka.front import records as kafka_records
from support.store import (
    BASIN,
    STREAM,
    Blocked,
    Wall,
    appending,
    batches,
    bodies,
    sending,
)
from support.store.payload_files import (
    LARGE,
    body,
    check_files,
    descriptors,
    file_names,
    forget,
    from_disk,
    opened,
    places,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.encryption import EncryptionKey
from penstock.core.errors import CannotStart
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import Merge, ReadBytes, Seal
from penstock.model.limits import MIB
from penstock.model.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTimestamp,
    Locate,
    Operation,
    Trim,
)
from penstock.model.records import RecordBatch, StreamRef
from penstock.model.streams import BasinConfig, Cipher
from penstock.store import append_changes, payload_files
from penstock.store.payload_files import (
    MOST_OPEN,
    BatchParameters,
    OpenPayloads,
    Place,
    UnreadablePayload,
    checksum_of,
    path_of,
)
from penstock.store.schema import _MIGRATIONS, APPLICATION_ID, FILE_NAME
from penstock_kafka.codec.batches import encode_batch, read_batches
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.codec.kept import KAFKA_BATCHES
from penstock_kafka.sequences import append_plain

OTHER, SOURCE, KEPT = (StreamRef(BASIN, name) for name in ("other", "source", "kept"))
SECRET = StreamRef("basin-secret", "stream")
KEY = EncryptionKey(base64.b64encode(bytes(range(32))).decode())


@contextmanager
def presenting_the_key() -> Iterator[None]:
    before = CLIENT.set(replace(CLIENT.get(), encryption_key=KEY))
    try:
        yield
    finally:
        CLIENT.reset(before)


# ---- what is read is the same ----------------------------------------------------------------------------------------

READ = (STREAM, OTHER, SOURCE, KEPT)


class Twins:
    """Two stores with the same history: one with files of payloads, and one without."""

    def __init__(self, directory: Path, wall: Wall) -> None:
        self._settings = [
            EmbeddedSettings(directory=directory / "files"),
            EmbeddedSettings(directory=directory / "rows", payload_file_bytes=1 << 40),
        ]
        self._wall = wall
        self.backs: list[EmbeddedBack] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self.backs = [await stack.enter_async_context(opened(some, self._wall)) for some in self._settings]
            yield

    async def perform(self, *operations: Operation[object]) -> None:
        for operation in operations:
            found = [await back.perform(operation) for back in self.backs]
            assert found[0] == found[1]

    async def check(self, *, from_disk: bool) -> None:
        """Check that all ways to read give the same from both."""
        with presenting_the_key():
            files, rows = [await self._all(back, from_disk) for back in self.backs]
        assert files.keys() == rows.keys()
        for name in files:
            assert files[name] == rows[name], name

    async def _all(self, back: EmbeddedBack, from_disk: bool) -> dict[object, object]:
        found: dict[object, object] = {}
        for stream in (*READ, SECRET):
            tail = await back.perform(CheckTail(stream))
            for start in range(tail.seq_num):
                if from_disk:
                    forget(back, stream)
                found[stream, start] = [_plain(one) for one in await batches(back, FromSeqNum(start), stream)]
            if from_disk:
                forget(back, stream)
            if tail.seq_num:
                found[stream, "some"] = [_plain(one) for one in await batches(back, FromSeqNum(0), stream, count=2)]
            for number in range(tail.seq_num):
                located = await back.perform(Locate(stream, FromSeqNum(number)))
                found[stream, number, "id"] = located
                assert located.record_id is not None
                found[stream, number, "by id"] = await back.perform(Locate(stream, FromRecordId(located.record_id)))
                found[stream, number, "by ms"] = await back.perform(Locate(stream, FromTimestamp(located.timestamp)))
                if stream != SECRET:
                    for offset in (located.offset or 0, (located.offset or 0) + 5):
                        found[stream, offset] = await back.perform(Locate(stream, FromByteOffset(offset)))
            if stream != SECRET:
                found[stream, "bytes"] = await _bytes(back, stream, from_disk)
        found["kept"] = [_plain(one) for one in await batches(back, FromSeqNum(0), KEPT, encoding=KAFKA_BATCHES)]
        return found


def _plain(batch: RecordBatch) -> tuple[object, ...]:
    wire = None if batch.wire is None else (batch.wire.encoding, batch.wire.data)
    return wire, batch.first_seq_num, batch.count, batch.metered, list(batch.records()), list(batch.record_ids())


async def _bytes(back: EmbeddedBack, stream: StreamRef, from_disk: bool) -> list[bytes]:
    """Return all bytes by large reads, and by small ones that begin within rows."""
    found = []
    for most in (MIB, 33_333):
        pieces, offset = [], 0
        while data := (await back.perform(ReadBytes(stream, offset, most))).data:
            pieces.append(data)
            offset += len(data)
            if from_disk:
                forget(back, stream)
        found.append(b"".join(pieces))
    assert found[0] == found[1]
    return found


def kafka_batch(*values: bytes) -> Append:
    """Return an append of a batch that is kept as it came."""
    [read] = read_batches(encode_batch(kafka_records(*values)))
    [part] = parts_of(read, whole=True)
    return append_plain(KEPT, part)


@pytest.mark.slow
async def test_all_ways_to_read_give_what_rows_would_give(tmp_path: Path, wall: Wall) -> None:
    """Large and small, several in a row of the file and in turn with other streams, in memory and after a restart."""
    twins = Twins(tmp_path, wall)
    async with twins.opened():
        await twins.perform(CreateBasin(BASIN), *(CreateStream(stream) for stream in READ))
        await twins.perform(
            CreateBasin(SECRET.basin, BasinConfig(stream_cipher=Cipher.AEGIS_256)), CreateStream(SECRET)
        )
        for number in range(3):  # these lie behind each other
            await twins.perform(appending(body(("one", number)), body(("two", number), 300), body(("three", number))))
            wall.now += 10
        await twins.perform(appending(b"small"), appending(body("large again")), appending(b"small", body("mixed")))
        for number in range(3):  # and these in turn
            await twins.perform(sending(body(("event", number)), b"small", stream=SOURCE, position=2 * number + 2))
            await twins.perform(sending(body(("before", number)), stream=OTHER))
            await twins.perform(kafka_batch(body(("kept", number)), b"small", body(("kept too", number))))
            with presenting_the_key():
                await twins.perform(appending(body(("secret", number)), b"small", stream=SECRET))
            wall.now += 10
        await twins.perform(kafka_batch(b"small"), kafka_batch(body("kept last")), kafka_batch(body("kept at last")))
        await twins.check(from_disk=False)
        await twins.check(from_disk=True)
        assert len(check_files(twins.backs[0])) == 1 and not places(twins.backs[1])
    async with twins.opened():
        await twins.check(from_disk=True)
        await twins.perform(Seal(SOURCE), Merge(OTHER, (SOURCE,)), CreateStream(SOURCE))
        await twins.perform(Merge(OTHER, (KEPT,)), CreateStream(KEPT))
        await twins.check(from_disk=True)
    async with twins.opened():
        await twins.check(from_disk=True)
        check_files(twins.backs[0])


async def test_a_large_payload_goes_to_a_file_and_a_small_one_stays_in_its_row(
    back: EmbeddedBack, settings: EmbeddedSettings
) -> None:
    await back.perform(appending(b"x" * 100))
    assert not file_names(settings.directory), "none is made before there is something for it"
    await back.perform(appending(body("large")))
    assert file_names(settings.directory) == ["penstock-00000001.payloads"]
    file = settings.directory / "penstock-00000001.payloads"
    assert file.stat().st_mode & 0o777 == 0o600
    rows = back._store._look_ups.execute(
        "SELECT length(payload), file, file_offset, file_bytes FROM batches"
    ).fetchall()
    size = file.stat().st_size
    assert rows == [(rows[0][0], None, None, None), (0, 1, 0, size)] and rows[0][0] > 100
    assert body("large") in file.read_bytes() and size < LARGE + 100


@pytest.mark.slow
async def test_the_bound_is_that_of_the_setting(settings: EmbeddedSettings, wall: Wall) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(b"first: its number is not in its payload"))
        await back.perform(appending(b"x" * 100))
        [_, (size,)] = back._store._look_ups.execute("SELECT length(payload) FROM batches ORDER BY id").fetchall()
    for bound, expected in ((size + 1, 0), (size, 1), (size - 1, 2)):
        async with opened(replace(settings, payload_file_bytes=bound), wall) as back:
            await back.perform(appending(b"x" * 100))
            assert len(places(back)) == expected
    async with opened(settings, wall) as back:
        assert (await from_disk(back))[1:] == [b"x" * 100] * 4


# ---- files -----------------------------------------------------------------------------------------------------------


async def test_a_new_file_is_begun_after_a_restart_and_when_one_is_full(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch, by_hand: None
) -> None:
    """A file is as full as it may be, or the first group after that is too much for it."""
    monkeypatch.setattr(payload_files, "FILE_BYTES", 2 * LARGE)
    async with opened(settings, wall, STREAM) as back:
        for number in range(3):
            await back.perform(appending(body(number)))
    async with opened(settings, wall) as back:
        assert file_names(settings.directory) == [f"penstock-0000000{number}.payloads" for number in (1, 2)]
        assert [place.file for place in places(back)] == [1, 1, 2]
        assert await from_disk(back) == [body(number) for number in range(3)]
        await back.perform(appending(body(3), body(4), body(5)))
        await back.perform(appending(body(6)))
        assert [place.file for place in places(back)] == [1, 1, 2, 3, 4]
        assert await from_disk(back) == [body(number) for number in range(7)]
        check_files(back)
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(number) for number in range(7)]


async def test_one_group_of_more_rows_than_one_write_takes(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_files, "_PARTS", 3)
    streams = [StreamRef(BASIN, f"s{number}") for number in range(10)]
    async with opened(settings, wall, STREAM, *streams) as back:
        async with trio.open_nursery() as nursery, Blocked(back):
            for stream in streams:
                nursery.start_soon(back.perform, appending(body(stream.stream), stream=stream))
            await trio.testing.wait_all_tasks_blocked()
        for stream in streams:
            assert await from_disk(back, stream) == [body(stream.stream)]
        check_files(back)


@pytest.mark.slow
async def test_one_append_of_bytes_that_is_several_rows(back: EmbeddedBack) -> None:
    """A segment client's, of more than a batch can be."""
    events = [body(number, 5000) for number in range(700)]
    await back.perform(sending(*events))
    assert len(places(back)) > 2
    assert await from_disk(back) == events
    check_files(back)


@pytest.mark.slow
async def test_a_reader_opens_few_files_at_once(settings: EmbeddedSettings, wall: Wall, small_files: None) -> None:
    count = MOST_OPEN + 5
    async with opened(replace(settings, reader_threads=1), wall, STREAM) as back:
        for number in range(count):
            await back.perform(appending(body(number)))
        assert len(check_files(back)) == count
        for _ in range(3):
            assert await from_disk(back) == [body(number) for number in range(count)]
            assert descriptors(settings.directory) == MOST_OPEN + 1, "one is that of the writer"
        forget(back)
        assert await bodies(back, FromSeqNum(0), count=1) == [body(0)]
    assert descriptors(settings.directory) == 0


def test_the_file_that_was_read_last_is_closed_last(tmp_path: Path) -> None:
    for number in range(MOST_OPEN + 1):
        path_of(tmp_path, number).write_bytes(b"%03d" % number)
    files = OpenPayloads(tmp_path)
    try:
        for number in range(MOST_OPEN):
            assert files.read([Place(number, 1, 2)], [None]) == [b"%02d" % number]
        joined = files.read([Place(0, 0, 1), Place(0, 1, 1), Place(MOST_OPEN, 0, 3)], [None] * 3)
        assert joined == [b"00", b"%03d" % MOST_OPEN]
        shutil.rmtree(tmp_path)
        assert files.read([Place(0, 0, 3)], [None]) == [b"000"]
        with pytest.raises(UnreadablePayload, match="No such file"):
            files.read([Place(1, 0, 3)], [None])
        assert files.read([Place(3, 0, 3)], [None]) == [b"003"]
    finally:
        files.close()


def test_the_place_of_a_row_is_where_the_statement_has_it() -> None:
    """Payload, encoding, place and checksum are the last columns of the insertion; a new column goes before them."""
    sql = append_changes._INSERT_BATCH
    names = re.search(r"\((.*?)\)\s*VALUES\s*\((.*?)\)", sql, re.DOTALL)
    assert names is not None
    columns, marks = (re.split(r",\s*", part.strip()) for part in names.groups())
    assert columns[-6:] == ["payload", "encoding", "file", "file_offset", "file_bytes", "checksum"]
    assert marks == ["?"] * len(columns)
    row = BatchParameters([*range(len(columns) - 6), b"payload", "encoding", None, None, None, None])
    assert row.payload == b"payload"
    row.seal()
    row.move(Place(7, 8, 9))
    assert row == [*range(len(columns) - 6), b"", "encoding", 7, 8, 9, checksum_of(b"payload")]


async def test_each_append_has_as_many_parameters_as_columns(back: EmbeddedBack) -> None:
    """Also one whose batch is kept, which has an encoding."""
    await back.perform(CreateStream(KEPT))
    for append in (appending(body("x")), kafka_batch(body("x"))):
        async with trio.open_nursery() as nursery, Blocked(back):
            nursery.start_soon(back.perform, append)
            await trio.testing.wait_all_tasks_blocked()
            statements = [some for change in back._store.committer._group for some in change.statements]
        [row] = [row for _, row in statements if isinstance(row, BatchParameters)]
        assert len(row) == append_changes._INSERT_BATCH.count("?")
        assert row[-6] == b"" and row[-5] in (None, KAFKA_BATCHES) and all(isinstance(some, int) for some in row[-4:])
        assert all(isinstance(some, int) for some in row[:-6]), "numbers that SQLite has"


# ---- what a start finds ----------------------------------------------------------------------------------------------


async def test_files_without_a_row_are_removed_at_the_start_and_no_others(
    settings: EmbeddedSettings, wall: Wall, by_hand: None
) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
    names = ["notes.txt", "penstock-1.payloads", "penstock-000000002.payloads", "penstock-00000002.payloads.bak"]
    names += ["a-penstock-00000002.payloads", "penstock-99999999999999999999.payloads", "access.sqlite3"]
    for name in names:
        (settings.directory / name).write_text("mine")
    left = path_of(settings.directory, 7)
    left.write_bytes(b"a group that was not committed")
    async with opened(settings, wall) as back:
        assert not left.exists()
        assert [name for name in names if (settings.directory / name).read_text() != "mine"] == []
        await back.perform(appending(body(1)))
        assert await from_disk(back) == [body(0), body(1)]
        check_files(back)


async def test_a_file_in_which_nothing_is_left_is_removed_at_the_start(
    settings: EmbeddedSettings, wall: Wall, by_hand: None
) -> None:
    """As after a crash between a purge and the removal; also if the file itself is gone already."""
    for is_gone in (False, True):
        async with opened(settings, wall, *(() if is_gone else (STREAM,))) as back:
            await back.perform(appending(body(0)))
            await back.perform(Trim(STREAM, FromSeqNum((await back.perform(CheckTail(STREAM))).seq_num)))
            await back._store.sweeper.purge()
            assert back._store._look_ups.execute("SELECT live FROM payload_files").fetchall() == [(0,)]
            [name] = file_names(settings.directory)
        if is_gone:
            (settings.directory / name).unlink()
        async with opened(settings, wall) as back:
            assert not file_names(settings.directory)
            assert back._store._look_ups.execute("SELECT live FROM payload_files").fetchall() == []


async def test_files_without_their_database_are_not_removed(
    settings: EmbeddedSettings, wall: Wall, small_files: None
) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
    names = file_names(settings.directory)
    aside = settings.directory / "aside"
    aside.mkdir()
    for file in settings.directory.glob(f"{FILE_NAME}*"):
        file.rename(aside / file.name)
    for _ in range(2):
        with pytest.raises(CannotStart, match=r"has files of payloads \(penstock-00000001\.payloads\)"):
            async with open_embedded(settings, wall):
                raise AssertionError("opened")
    assert names and file_names(settings.directory) == names
    for file in aside.iterdir():
        file.replace(settings.directory / file.name)
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(0)]


async def test_a_store_without_one_of_its_files_does_not_start(
    settings: EmbeddedSettings, wall: Wall, small_files: None
) -> None:
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(body(0)))
        await back.perform(appending(body(1)))
    file = path_of(settings.directory, 1)
    file.rename(settings.directory / "aside")
    for _ in range(2):
        with pytest.raises(CannotStart, match=r"lacks its file penstock-00000001\.payloads"):
            async with open_embedded(settings, wall):
                raise AssertionError("opened")
    (settings.directory / "aside").rename(file)
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(0), body(1)]
        check_files(back)


# ---- older stores ----------------------------------------------------------------------------------------------------


def as_version_6(directory: Path) -> None:
    """Replace the database by one of version 6, with the same content."""
    path, new = directory / FILE_NAME, directory / "new"
    db = sqlite3.connect(new, isolation_level=None)
    db.execute("PRAGMA page_size=8192")
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.create_function("resolved_config", 2, lambda own, _basin: own)
    for migration in _MIGRATIONS[:6]:
        db.executescript(migration)
    db.execute("PRAGMA user_version=6")
    db.execute("ATTACH ? AS source", (str(path),))
    tables = [name for (name,) in db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall()]
    for table in tables:
        columns = ", ".join(name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})"))
        db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}")
    assert "payload_files" not in tables
    db.close()
    path.unlink()
    new.rename(path)


@pytest.mark.slow
async def test_a_store_of_version_6_reads_the_same(settings: EmbeddedSettings, wall: Wall, by_hand: None) -> None:
    """Its large payloads stay in their rows until these go; new ones go to files."""
    large = [body(number) for number in range(5)]
    async with opened(replace(settings, payload_file_bytes=1 << 40), wall, STREAM, SOURCE, KEPT) as back:
        for one in large:
            await back.perform(appending(one))
            await back.perform(sending(one, b"small", stream=SOURCE))
        await back.perform(kafka_batch(*large))
    as_version_6(settings.directory)
    async with opened(settings, wall) as back:
        assert await from_disk(back) == large and await from_disk(back, KEPT) == large
        assert await from_disk(back, SOURCE) == [some for one in large for some in (one, b"small")]
        assert not places(back) and not file_names(settings.directory)
        for number in range(5, 8):
            await back.perform(appending(body(number)))
            await back.perform(sending(body(number), stream=SOURCE))
        assert len(places(back)) == 6
    async with opened(settings, wall) as back:
        assert await from_disk(back) == [body(number) for number in range(8)]
        assert (await from_disk(back, SOURCE))[-3:] == [body(number) for number in range(5, 8)]
        assert (await back.perform(Locate(STREAM, FromByteOffset(LARGE * 6)))).seq_num == 6
        await back.perform(Trim(STREAM, FromSeqNum(6)))
        await back.perform(DeleteStream(KEPT))
        await back._store.sweeper.purge()
        assert await from_disk(back) == [body(6), body(7)] and len(places(back)) == 5
        check_files(back)
