"""Appends of very many records: stored in batches that every reader can be given, and read in little memory."""

from __future__ import annotations

import base64
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from msgspec.structs import replace
from support.kafka.front import records as kafka_records
from support.store import STREAM, Fails, Wall, appending, batches, records
from support.store.byte_reads import forget_recent
from support.store.payload_files import opened

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings
from penstock.cli import main
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import Merge, ReadBytes
from penstock.model.failures import FailureCode
from penstock.model.limits import MIB
from penstock.model.operations import (
    Append,
    CreateBasin,
    CreateStream,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTimestamp,
    Locate,
    Read,
)
from penstock.model.records import BatchPart, Header, RecordBatch, RecordId, StreamRef
from penstock.model.streams import BasinConfig, Cipher
from penstock.store import sequencer
from penstock_kafka.codec.batches import encode_batch, read_batches
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.codec.kept import KAFKA_BATCHES
from penstock_kafka.sequences import append_plain

TARGET = StreamRef(STREAM.basin, "target")
COUNT = 12_345
TIMES = [1_000 + index // 1_700 for index in range(COUNT)]


def stored_counts(back: EmbeddedBack) -> list[int]:
    rows = back._store._look_ups.execute("SELECT count FROM batches ORDER BY id")
    return [count for (count,) in rows]


def whole(append: Append) -> tuple[BatchPart]:
    """Return an append in one part, as older gateways stored it."""
    return (BatchPart(0, len(append.bodies), append.metered),)


async def test_an_append_is_stored_in_batches_within_the_limits_of_all_readers(back: EmbeddedBack) -> None:
    """In one step: its conditions, commands and acknowledgement are those of all of it."""
    await back.perform(appending(b"first"))
    bodies = [b"%d" % index for index in range(2_500)]
    headers = {7: (Header(b"a", b"b"),), 1_003: (Header(b"c", b"d"),), 2_001: (Header(b"", b"fence"),)}
    bodies[2_001] = b"token"
    appended = await back.perform(appending(*bodies, headers=headers, match=1))
    assert (appended.start.seq_num, appended.end.seq_num) == (1, 2_501)
    assert stored_counts(back) == [1, 1_000, 1_000, 500]
    with Fails(FailureCode.FENCING_TOKEN_MISMATCH):
        await back.perform(appending(b"x", token="other"))
    for _ in range(2):
        found = await records(back, FromSeqNum(1))
        assert [record.body for record in found] == bodies
        assert {record.seq_num - 1: record.headers for record in found if record.headers} == headers
        assert all(batch.count <= 1_000 for batch in await batches(back, FromSeqNum(0)))
        forget_recent(back)
    await back.perform(appending(*[b"x" * 400_000] * 5))
    assert stored_counts(back)[4:] == [2, 2, 1], "a batch has at most 1 MiB"
    with Fails(FailureCode.SEQ_NUM_MISMATCH):
        await back.perform(appending(*bodies, match=1))


async def test_a_kept_batch_of_very_many_records_is_cut(back: EmbeddedBack) -> None:
    for count, stored in ((10_000, [10_000]), (10_001, [1_000] * 10 + [1])):
        [read] = read_batches(encode_batch(kafka_records(*[b"v"] * count)))
        [part] = parts_of(read, whole=True)
        before = len(stored_counts(back))
        await back.perform(append_plain(STREAM, part))
        assert stored_counts(back)[before:] == stored
        forget_recent(back)
    found = await batches(back, FromSeqNum(0), encoding=KAFKA_BATCHES)
    assert sum(batch.count for batch in found) == 20_001


async def test_an_encrypted_append_is_cut_by_its_plain_records(back: EmbeddedBack) -> None:
    secret = StreamRef("basin-secret", "stream")
    await back.perform(CreateBasin(secret.basin, BasinConfig(stream_cipher=Cipher.AEGIS_256)))
    await back.perform(CreateStream(secret))
    bodies = [b"%d" % index for index in range(1_500)]
    append = appending(*bodies, stream=secret)
    key = EncryptionKey(base64.b64encode(bytes(32)).decode())
    before = CLIENT.set(replace(CLIENT.get(), encryption_key=key))
    try:
        await back.perform(append)
        forget_recent(back, secret)
        assert [record.body for record in await records(back, FromSeqNum(0), secret)] == bodies
    finally:
        CLIENT.reset(before)
    rows = back._store._look_ups.execute("SELECT count, metered FROM batches").fetchall()
    assert [count for count, _ in rows] == [1_000, 500] and sum(metered for _, metered in rows) == append.metered


@pytest.mark.parametrize("room", [MIB, 1 << 30])
async def test_readers_without_room_for_what_is_decoded_read_it_again(back: EmbeddedBack, room: int) -> None:
    """Several at once, of a batch in another encoding than theirs; the room is given back by those that go, too."""
    values = [b"%d" % index for index in range(9_999)]
    [read] = read_batches(encode_batch(kafka_records(*values)))
    [part] = parts_of(read, whole=True)
    await back.perform(append_plain(STREAM, part))
    forget_recent(back)
    reads = back._store.reads
    reads.decoded_room = room
    delivered: list[list[bytes]] = [[], [], []]

    async def run(number: int) -> None:
        async with back.read_session(Read(STREAM, FromSeqNum(0), wait=0)) as session:
            while isinstance(batch := await session.next(), RecordBatch):
                delivered[number] += batch.columns.bodies
                assert reads.decoded_room >= 0
                if number == 2:
                    return

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(run, number)
    assert delivered == [values, values, values[:1_000]]
    assert reads.decoded_room == room


async def test_a_large_kept_row_of_an_older_gateway_is_read_in_parts(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "is_large", lambda *_: False)
    values = [b"%d" % index for index in range(20_001)]
    [read] = read_batches(encode_batch(kafka_records(*values)))
    [part] = parts_of(read, whole=True)
    await back.perform(append_plain(STREAM, part))
    assert stored_counts(back) == [20_001]
    for encoding in (None, KAFKA_BATCHES):
        forget_recent(back)
        found = await batches(back, FromSeqNum(15_500), encoding=encoding)
        assert all(batch.count <= 1_000 for batch in found)
        assert [body for batch in found for body in batch.columns.bodies] == values[15_500:]


async def test_a_large_row_of_an_older_gateway_reads_the_same(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ways to read find each record where it is in a store that has the same records in many rows."""
    bodies = [b"" if index % 1_111 == 5 else b"%d" % index for index in range(COUNT)]
    wall.now = 10_000
    found: list[list[object]] = []
    for number, cut in enumerate((whole, sequencer.parts_of)):
        monkeypatch.setattr(sequencer, "parts_of", cut)
        directory = settings.directory / str(number)
        async with opened(EmbeddedSettings(directory=directory, tail_cache_bytes=1), wall, STREAM, TARGET) as back:
            await back.perform(appending(b"before", timestamps=[999]))
            await back.perform(appending(*bodies, timestamps=TIMES))
            await back.perform(appending(b"behind", timestamps=[5_000]))
            assert len(stored_counts(back)) == (3 if cut is whole else 15)
            forget_recent(back)
            results: list[object] = []
            for start in (0, 1, 2, 1_000, 1_001, 7_777, COUNT, COUNT + 1):
                delivered = await batches(back, FromSeqNum(start))
                assert all(batch.count <= 1_000 for batch in delivered)
                results.append([record for batch in delivered for record in batch.records()])
                results.append([record_id for batch in delivered for record_id in batch.record_ids()])
                results.append(await records(back, FromSeqNum(start), count=1))
            for position in (FromSeqNum(3_456), FromTimestamp(1_003), FromRecordId(RecordId(1_004, 1_600))):
                results.append(await back.perform(Locate(STREAM, position)))
                results.append(await records(back, position, count=3))
            data = b"".join(join_events([body]) for body in (b"before", *bodies, b"behind") if body)
            for offset in (0, 14, 50_000, len(data) - 20):
                results.append(await back.perform(Locate(STREAM, FromByteOffset(offset))))
                assert (await back.perform(ReadBytes(STREAM, offset, 3_000))).data == data[offset : offset + 3_000]
            await back.perform(Merge(TARGET, (STREAM,)))
            assert (await back.perform(ReadBytes(TARGET, 0, MIB))).data == data
            found.append(results)
        assert CliRunner().invoke(main, ["store", "check", "--directory", str(directory)]).exit_code == 0
    assert found[0] == found[1]


READERS = """
    import resource
    import sys
    from pathlib import Path

    import trio

    from penstock.backends.embedded import EmbeddedSettings, open_embedded
    from penstock.model.records import StreamRef
    from penstock.model.operations import FromSeqNum, FromTimestamp, Locate, Read

    STREAM = StreamRef("basin-one", "stream")


    async def read(back):
        for start in (0, 250_000, 499_999):
            async with back.read_session(Read(STREAM, FromSeqNum(start), count=1)) as session:
                batch = await session.next()
                assert list(batch.columns.bodies) == [b"0"] and batch.first_seq_num == start
        await back.perform(Locate(STREAM, FromSeqNum(400_000)))


    async def main():
        async with open_embedded(EmbeddedSettings(directory=Path(sys.argv[1]))) as back:
            await back.perform(Locate(STREAM, FromSeqNum(0)))
            used = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
            most = (int(used.split()[1]) << 10) + (96 << 20)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(read, back)


    trio.run(main)
"""


async def test_two_readers_of_half_a_million_records_in_little_memory(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one row, as older gateways stored them. 96 MiB suffice; decoded, they take three times as much."""
    monkeypatch.setattr(sequencer, "parts_of", whole)
    async with opened(settings, wall, STREAM) as back:
        await back.perform(appending(*[b"0"] * 500_000))
        assert stored_counts(back) == [500_000]
    script = tmp_path / "readers.py"
    script.write_text(textwrap.dedent(READERS))
    done = subprocess.run([sys.executable, script, settings.directory], capture_output=True, text=True, timeout=120)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr[-2000:]
