"""Large payloads in files beside the database: where they lie, that they read the same, and how their space goes."""

from __future__ import annotations

import base64
import errno
import itertools
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.kafka.front import records as kafka_records
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Blocked,
    Fails,
    Unwritable,
    Wall,
    appending,
    batches,
    bodies,
    eventually,
    sending,
    stored_bytes,
    trim_record,
)
from support.store.byte_reads import forget_recent
from support.store.disks import small_file_system
from support.store.payload_files import check_files, descriptors, file_names, places

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.encryption import EncryptionKey
from penstock.core.errors import CannotStart, StoreFailed
from penstock.core.identity import CLIENT
from penstock.protocols.kafka.sequences import append_plain
from penstock.store import append_changes, payload_files, sweeps
from penstock.store.payload_files import MOST_OPEN, BatchParameters, OpenPayloads, PayloadFiles, Place, path_of
from penstock.store.schema import _MIGRATIONS, APPLICATION_ID, FILE_NAME, ReaderConnection
from penstock.store.sweeper import Sweeper
from penstock_codecs.byte_operations import GetSegmentInfo, Merge, ReadBytes, Seal
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.kafka.batches import encode_batch, read_batches
from penstock_codecs.kafka.carrying import parts_of
from penstock_codecs.kafka.kept import KAFKA_BATCHES
from penstock_codecs.limits import KIB, MIB
from penstock_codecs.model import Record, RecordBatch, StreamRef
from penstock_codecs.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTimestamp,
    Locate,
    Operation,
    Trim,
)
from penstock_codecs.streams import BasinConfig, Cipher

Way = Callable[[EmbeddedBack, Wall], Awaitable[None]]
Damage = Callable[[Path], None]
OTHER, SOURCE, KEPT = (StreamRef(BASIN, name) for name in ("other", "source", "kept"))
SECRET = StreamRef("basin-secret", "stream")
KEY = EncryptionKey(base64.b64encode(bytes(range(32))).decode())
LARGE = 40_000
"""Bytes of a body whose payload goes to a file; those of 100 bytes do not."""
WEEK = 7 * 24 * 3600 * 1000


def body(name: object, size: int = LARGE) -> bytes:
    """Return a body of which no two pieces are alike."""
    return b"".join(b"%r %d;" % (name, at) for at in range(0, size, 4))[:size]


@contextmanager
def presenting_the_key() -> Iterator[None]:
    before = CLIENT.set(replace(CLIENT.get(), encryption_key=KEY))
    try:
        yield
    finally:
        CLIENT.reset(before)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests purge, and the sweeper do nothing by itself."""

    async def idle(_sweeper: Sweeper) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Sweeper, "run", idle)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a new file after each transaction."""
    monkeypatch.setattr(payload_files, "FILE_BYTES", 1)


@asynccontextmanager
async def opened(settings: EmbeddedSettings, wall: Wall, *streams: StreamRef) -> AsyncIterator[EmbeddedBack]:
    """Open a store, and make streams."""
    async with open_embedded(settings, wall) as back:
        for name in {stream.basin for stream in streams}:
            await back.perform(CreateBasin(name))
        for stream in streams:
            await back.perform(CreateStream(stream))
        yield back


def forget(back: EmbeddedBack, *streams: StreamRef) -> None:
    """Forget what is in memory, so that reads go to the disk."""
    for stream in streams or (STREAM,):
        forget_recent(back, stream)


async def from_disk(back: EmbeddedBack, stream: StreamRef = STREAM) -> list[bytes]:
    """Return a stream's bodies, read from the disk."""
    await back.perform(CheckTail(stream))
    forget(back, stream)
    return await bodies(back, FromSeqNum(0), stream)


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


async def test_one_append_of_bytes_that_is_several_rows(back: EmbeddedBack) -> None:
    """A segment client's, of more than a batch can be."""
    events = [body(number, 5000) for number in range(700)]
    await back.perform(sending(*events))
    assert len(places(back)) > 2
    assert await from_disk(back) == events
    check_files(back)


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
            assert files.read([Place(number, 1, 2)]) == [b"%02d" % number]
        assert files.read([Place(0, 0, 1), Place(0, 1, 1), Place(MOST_OPEN, 0, 3)]) == [b"00", b"%03d" % MOST_OPEN]
        shutil.rmtree(tmp_path)
        assert files.read([Place(0, 0, 3)]) == [b"000"]
        with pytest.raises(FileNotFoundError):
            files.read([Place(1, 0, 3)])
        assert files.read([Place(0, 0, 0), Place(3, 0, 3)]) == [b"", b"003"]
    finally:
        files.close()


def test_the_place_of_a_row_is_where_the_statement_has_it() -> None:
    """Payload, encoding, and the place are the last columns of the insertion; a new column goes before them."""
    sql = append_changes._INSERT_BATCH
    names = re.search(r"\((.*?)\)\s*VALUES\s*\((.*?)\)", sql, re.DOTALL)
    assert names is not None
    columns, marks = (re.split(r",\s*", part.strip()) for part in names.groups())
    assert columns[-5:] == ["payload", "encoding", "file", "file_offset", "file_bytes"]
    assert marks == ["?"] * len(columns)
    row = BatchParameters([*range(len(columns) - 5), b"payload", "encoding", None, None, None])
    assert row.payload == b"payload"
    row.move(Place(7, 8, 9))
    assert row == [*range(len(columns) - 5), b"", "encoding", 7, 8, 9]


async def test_each_append_has_as_many_parameters_as_columns(back: EmbeddedBack) -> None:
    """Also one whose batch is kept, which has an encoding."""
    await back.perform(CreateStream(KEPT))
    for append in (appending(body("x")), kafka_batch(body("x"))):
        seen: list[BatchParameters] = []
        take = back._store.files.take
        back._store.files.take = lambda statements, take=take, seen=seen: (  # type: ignore[method-assign, misc]
            seen.extend(row for _, row in statements if isinstance(row, BatchParameters)) or take(statements)
        )
        await back.perform(append)
        [row] = seen
        assert len(row) == append_changes._INSERT_BATCH.count("?")
        assert row[-5] == b"" and row[-4] in (None, KAFKA_BATCHES) and all(isinstance(some, int) for some in row[-3:])
        assert all(isinstance(some, int) for some in row[:-5]), "numbers that SQLite has"


# ---- space -----------------------------------------------------------------------------------------------------------


def can_punch(directory: Path) -> bool:
    """Return whether the file system of a directory frees parts of a file."""
    path = path_of(directory, 99_999_999)
    path.write_bytes(os.urandom(MIB))
    os.sync()
    PayloadFiles(directory, 1, 1).free([Place(99_999_999, 0, MIB)])
    freed = path.stat().st_blocks == 0
    path.unlink()
    return freed


def blocks(directory: Path) -> int:
    """Return the bytes that the files of payloads take on the disk."""
    return sum((directory / name).stat().st_blocks * 512 for name in file_names(directory))


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
    await back._store.sweeper.expire()


ELSEWHERE = StreamRef("basin-two", "stream")
WAYS = [trim, trim_by_a_record, delete_the_stream, delete_the_basin, expire]


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
        row = db.execute("SELECT payload, file, file_offset, file_bytes FROM batches WHERE last_seq = 0").fetchone()
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


# ---- what a crash leaves ---------------------------------------------------------------------------------------------


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
    async with opened(settings, wall, STREAM, OTHER) as back:
        await back.perform(appending(body(0)))
        await back.perform(sending(body(1)))
        await back.perform(appending(body(2), stream=OTHER))
        if is_open:
            assert await from_disk(back) == [body(0), body(1)]
        damage(settings.directory / name)
        stays = is_open and damage in (become_a_directory, vanish)
        forget(back, STREAM, OTHER)
        located = (await back.perform(Locate(STREAM, FromSeqNum(0)))).offset
        assert located == 0
        begin = 0 if stays else LARGE
        if stays:
            assert await bodies(back, FromSeqNum(0)) == [body(0), body(1)]
        else:
            for start in (FromSeqNum(1), FromTimestamp(NOW), FromByteOffset(begin)):
                with Fails(FailureCode.STORAGE, name):
                    await bodies(back, start)
            with Fails(FailureCode.STORAGE, name):
                await back.perform(Locate(STREAM, FromSeqNum(1)))
            for offset in (begin, begin + 100):
                with Fails(FailureCode.STORAGE, name):
                    await back.perform(ReadBytes(STREAM, offset, 100))
            await back.perform(Seal(STREAM))
            with Fails(FailureCode.STORAGE, name):
                await back.perform(Merge(OTHER, (STREAM,)))
            assert back._store.trouble is None
        assert (await back.perform(ReadBytes(STREAM, 8, 100))).data in (body(0)[:100], body(0)[8:108])
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
    """What was written before the disk was full is given back: it would be the room that a deletion needs."""
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


class NoCommit:
    """While it is entered, transactions fail at their end, after all that they wrote."""

    def __init__(self, back: EmbeddedBack) -> None:
        self._db = back._store._writer

    def __enter__(self) -> None:
        def decide(action: int, what: str | None, *_more: object) -> int:
            is_end = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
            return sqlite3.SQLITE_DENY if is_end else sqlite3.SQLITE_OK

        self._db.set_authorizer(decide)

    def __exit__(self, *_exception: object) -> None:
        self._db.set_authorizer(None)


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
        with Fails(FailureCode.STORAGE, "Is a directory"):
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


# ---- random histories ------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Appended:
    """Appends to streams in one group; `is_lost`: the transaction fails, after the payloads were written."""

    sizes: tuple[tuple[str, int], ...]
    is_bytes: bool
    is_lost: bool


@dataclass(frozen=True)
class Trimmed:
    name: str
    seq_num: int


@dataclass(frozen=True)
class Deleted:
    name: str


@dataclass(frozen=True)
class Purged:
    """`chunks`: the statements of so many are carried out, and nothing is freed, as if a crash came; None: all is."""

    chunks: int | None


@dataclass(frozen=True)
class Restarted:
    """`is_crash`: the store goes on with a copy of its files, as they were while it was open."""

    is_crash: bool


SIZES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((1, 30, 50, 90, 5000))), min_size=1, max_size=4)
STEPS = st.one_of(
    st.builds(Appended, SIZES.map(tuple), st.booleans(), st.sampled_from((False, False, False, True))),
    st.builds(Appended, SIZES.map(tuple), st.booleans(), st.just(False)),
    st.builds(Trimmed, st.sampled_from(NAMES), st.integers(0, 12)),
    st.builds(Deleted, st.sampled_from(NAMES)),
    st.builds(Purged, st.none() | st.integers(1, 3)),
    st.builds(Restarted, st.booleans()),
)


@dataclass
class Stream:
    bodies: list[bytes] = field(default_factory=list)
    trim_point: int = 0


class History:
    """A store whose payloads of 60 bytes and more go to files of 200, and what must be in its streams."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "0"
        self.streams: dict[str, Stream] = {}
        self._numbers = itertools.count()
        self._wall = Wall()

    async def run(self, steps: Sequence[object]) -> None:
        rest = iter([Restarted(False), *steps])
        step = next(rest, None)
        while step is not None:
            assert isinstance(step, Restarted)
            settings = EmbeddedSettings(directory=self.directory, payload_file_bytes=60, tail_cache_bytes=1)
            async with open_embedded(settings, self._wall) as back:
                if not self.streams:
                    await back.perform(EnsureBasin(BASIN))
                await self._check(back)
                for step in rest:
                    if isinstance(step, Restarted):
                        break
                    await self._do(back, step)
                    await self._check(back)
                else:
                    step = None
                if isinstance(step, Restarted) and step.is_crash:
                    self._copy()
        async with open_embedded(EmbeddedSettings(directory=self.directory)) as back:
            await self._check(back)
            await back._store.sweeper.purge()
            used = check_files(back)
            await self._check(back)
            assert file_names(self.directory) == [path_of(self.directory, number).name for number in sorted(used)]

    async def _do(self, back: EmbeddedBack, step: object) -> None:
        match step:
            case Appended():
                await self._append(back, step)
            case Trimmed(name, seq_num):
                stream = self.streams.get(name)
                if stream is not None:
                    stream.trim_point = max(stream.trim_point, min(seq_num, len(stream.bodies)))
                    await back.perform(Trim(StreamRef(BASIN, name), FromSeqNum(seq_num)))
            case Deleted(name):
                if self.streams.pop(name, None) is not None:
                    await back.perform(DeleteStream(StreamRef(BASIN, name)))
            case Purged(None):
                await back._store.sweeper.purge()
            case Purged(chunks):
                assert chunks is not None
                for _ in range(chunks):
                    purge = sweeps.purge_chunk(back._store._look_ups, 0)
                    if purge is not None:
                        await back._store.committer.settle(None, purge.statements)

    async def _append(self, back: EmbeddedBack, step: Appended) -> None:
        for name, _ in step.sizes:
            if name not in self.streams:
                self.streams[name] = Stream()
                await back.perform(CreateStream(StreamRef(BASIN, name)))
        added = [(name, body(next(self._numbers), size)) for name, size in step.sizes]

        async def append(name: str, data: bytes) -> None:
            ref = StreamRef(BASIN, name)
            operation = sending(data, stream=ref) if step.is_bytes else appending(data, stream=ref)
            with Fails(FailureCode.STORAGE) if step.is_lost else nullcontext():
                await back.perform(operation)

        with NoCommit(back) if step.is_lost else nullcontext():
            async with trio.open_nursery() as nursery, Blocked(back):
                for name, data in added:
                    nursery.start_soon(append, name, data)
                    await trio.testing.wait_all_tasks_blocked()
        if not step.is_lost:
            for name, data in added:
                self.streams[name].bodies.append(data)

    async def _check(self, back: EmbeddedBack) -> None:
        check_files(back)
        for name, stream in self.streams.items():
            ref = StreamRef(BASIN, name)
            assert (await back.perform(CheckTail(ref))).seq_num == len(stream.bodies)
            if stream.trim_point < len(stream.bodies):
                forget(back, ref)
                assert await bodies(back, FromSeqNum(stream.trim_point), ref) == stream.bodies[stream.trim_point :]
                first = (await back.perform(GetSegmentInfo(ref))).start_offset
                data = (await back.perform(ReadBytes(ref, first, MIB))).data
                assert data == stored_bytes(back, ref)[-len(data) :] and stream.bodies[-1] in data

    def _copy(self) -> None:
        after = self.directory.with_name(str(int(self.directory.name) + 1))
        shutil.copytree(self.directory, after, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
        self.directory = after


@examples(share=4, least=5)
@given(st.lists(STEPS, max_size=20))
def test_whatever_happens_payloads_are_counted_and_read_right(steps: list[object]) -> None:
    async def idle(_sweeper: Sweeper) -> None:
        await trio.sleep_forever()

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload_files, "FILE_BYTES", 200)
        patch.setattr(sweeps, "ROWS_AT_ONCE", 2)
        patch.setattr(Sweeper, "run", idle)
        trio.run(History(Path(directory)).run, steps)
