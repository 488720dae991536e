"""Checksums of stored payloads: damage on the disk is told, and fails nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support.kafka.front import records as kafka_records
from support.store import STREAM, Fails, Wall, appending, bodies, sending
from support.store.byte_reads import forget_recent
from support.store.payload_files import opened

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings
from penstock.cli import main
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, Merge, ReadBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import KIB
from penstock.model.operations import Append, FromSeqNum, FromTimestamp, Locate, Read, Trim
from penstock.model.records import RecordBatch, StreamRef
from penstock.observe.metrics.families import STORE_DAMAGED_READS
from penstock.store.payload_files import path_of
from penstock.store.schema import FILE_NAME
from penstock.wire.grpc.status import Code
from penstock.wire.grpc.status import error_of as grpc_error
from penstock.wire.http_failures import failure_to_http
from penstock_kafka.codec.batches import encode_batch, read_batches
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.codec.errors import KafkaError
from penstock_kafka.codec.errors import error_of as kafka_error
from penstock_kafka.codec.kept import KAFKA_BATCHES
from penstock_kafka.sequences import append_plain
from penstock_s3p.codec.errors import error_reply

TARGET = StreamRef(STREAM.basin, "target")
WORDS = "records 2 to 3 of basin-one/stream are damaged"


def kept(*values: bytes) -> Append:
    [batch] = read_batches(encode_batch(kafka_records(*values)))
    [part] = parts_of(batch, whole=True)
    return append_plain(STREAM, part)


KINDS: dict[str, Callable[..., Append | AppendBytes]] = {"records": appending, "events": sending, "kept": kept}


def flip(data: bytearray) -> None:
    data[len(data) // 2] ^= 0x10


def zero(data: bytearray) -> None:
    data[-512:] = bytes(512)


def damage(directory: Path, change: Callable[[bytearray], None], first: int = 2) -> None:
    """Change the stored payload of the batch that begins with a record, where it is."""
    db = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    row = db.execute("SELECT payload, file, file_offset, file_bytes FROM batches WHERE first_seq = ?", (first,))
    payload, file, offset, size = row.fetchone()
    if file is None:
        data = bytearray(payload)
        change(data)
        db.execute("UPDATE batches SET payload = ? WHERE first_seq = ?", (bytes(data), first))
    else:
        with path_of(directory, file).open("r+b") as opened_file:
            opened_file.seek(offset)
            data = bytearray(opened_file.read(size))
            change(data)
            opened_file.seek(offset)
            opened_file.write(data)
    db.close()


def body(number: int) -> bytes:
    return b"%d" % number * KIB


async def three_batches(back: EmbeddedBack, kind: str) -> None:
    """Append three batches of two records each."""
    for number in (0, 2, 4):
        await back.perform(KINDS[kind](body(number), body(number + 1)))


async def readable(back: EmbeddedBack, start: int, encoding: str | None) -> tuple[int, Failure | None]:
    """Return how many records a read delivers, and how it fails."""
    forget_recent(back)
    delivered = 0
    read = Read(STREAM, FromSeqNum(start), wait=0, paged=encoding is not None)
    try:
        async with back.read_session(read if encoding is None else replace(read, encoding=encoding)) as session:
            while isinstance(batch := await session.next(), RecordBatch):
                assert list(batch.columns.bodies) == [body(seq) for seq in batch.columns.seq_nums]
                delivered += batch.count
    except OperationFailed as error:
        return delivered, error.failure
    return delivered, None


@pytest.mark.parametrize("change", [flip, zero])
@pytest.mark.parametrize("least", [1, 1 << 30], ids=["in files", "in rows"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_batch_fails_and_its_neighbours_do_not(
    settings: EmbeddedSettings, wall: Wall, kind: str, least: int, change: Callable[[bytearray], None]
) -> None:
    async with opened(replace(settings, payload_file_bytes=least), wall, STREAM, TARGET) as back:
        await three_batches(back, kind)
        damage(settings.directory, change)
        before = STORE_DAMAGED_READS.child().value
        for encoding in (None, KAFKA_BATCHES):
            for start, count in ((0, 2), (1, 1), (2, 0), (3, 0)):
                delivered, failure = await readable(back, start, encoding)
                assert delivered == count and failure is not None
                assert failure.code is FailureCode.DAMAGED and failure.message.startswith(WORDS), failure
            assert await readable(back, 4, encoding) == (2, None)
        assert STORE_DAMAGED_READS.child().value > before
        ends = [len(join_events([body(number) for number in range(end)])) for end in range(7)]
        found = await back.perform(ReadBytes(STREAM, 0, 1 << 20))
        assert found.data == join_events([body(0), body(1)])
        with Fails(FailureCode.DAMAGED, f"{WORDS}") as fails:
            await back.perform(ReadBytes(STREAM, ends[2], 1 << 20))
        assert f"the next bytes are at offset {ends[4]}" in fails.failure.message
        assert (await back.perform(ReadBytes(STREAM, ends[4], 1 << 20))).data == join_events([body(4), body(5)])
        with Fails(FailureCode.DAMAGED, WORDS):
            await back.perform(Merge(TARGET, (STREAM,)))
        await back.perform(Trim(STREAM, FromSeqNum(2)))  # bytes begin at the damaged batch
        assert (await back.perform(ReadBytes(STREAM, ends[4], 100))).data
        for start in (FromSeqNum(4), FromTimestamp(0), FromSeqNum(2)):
            await back.perform(Locate(STREAM, start))


async def test_a_payload_file_that_was_cut_fails_only_what_was_in_it(settings: EmbeddedSettings, wall: Wall) -> None:
    settings = replace(settings, payload_file_bytes=1)
    async with opened(settings, wall, STREAM) as back:
        await three_batches(back, "records")
        path = path_of(settings.directory, 1)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 10)
        assert await readable(back, 0, None) == (4, (await readable(back, 4, None))[1])
        with Fails(
            FailureCode.DAMAGED, "records 4 to 5 of basin-one/stream are damaged (penstock-00000001.payloads ends"
        ):
            await bodies(back, FromSeqNum(4))


async def test_a_store_of_version_7_is_read_without_checksums(settings: EmbeddedSettings, wall: Wall) -> None:
    async with opened(settings, wall, STREAM) as back:
        await three_batches(back, "records")
    db = sqlite3.connect(settings.directory / FILE_NAME)
    db.execute("ALTER TABLE batches DROP COLUMN checksum")
    db.execute("ALTER TABLE streams DROP COLUMN key_check")
    db.execute("PRAGMA user_version=7")
    db.commit()
    db.close()
    refused = check(settings.directory)
    assert refused.exit_code == 1 and "has schema version 7: start a gateway once" in refused.output
    async with opened(settings, wall) as back:
        assert await bodies(back, FromSeqNum(0)) == [body(number) for number in range(6)]
        await back.perform(appending(body(6)))
    result = check(settings.directory)
    assert result.exit_code == 0, result.output
    assert "checked 4 payloads of 1 streams" in result.output and "3 of them are of an older gateway" in result.output
    damage(settings.directory, lambda data: data.__setitem__(slice(0, 2), b"\xff\xff"))
    assert "stream 2..3: a stored batch is damaged" in check(settings.directory).output


def check(directory: Path, *options: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(main, ["store", "check", "--directory", str(directory), *options])


async def test_a_check_of_the_store_finds_all_damage(settings: EmbeddedSettings, wall: Wall) -> None:
    """Also beside a gateway, and not what is trimmed."""
    settings = replace(settings, payload_file_bytes=1500)
    async with opened(settings, wall, STREAM) as back:
        await three_batches(back, "records")
        await back.perform(appending(b"small"))
        await back.perform(appending(b"small, too"))
        for first in (0, 2, 6):
            damage(settings.directory, flip, first)
        await back.perform(Trim(STREAM, FromSeqNum(2)))
        beside = check(settings.directory)
        assert beside.exit_code == 1 and "the structure of its database was not examined" in beside.output
    result = check(settings.directory)
    assert result.exit_code == 1
    damaged = [line.partition(" (")[0] for line in result.output.splitlines()]
    assert [line.split(":")[1] for line in damaged if line.startswith("damaged")] == [
        " basin-one/stream 2..3",
        " basin-one/stream 6..6",
    ]
    assert "checked 4 payloads of 1 streams" in result.output
    assert [line for line in beside.output.splitlines() if line.startswith("damaged")] == damaged[:2]
    db = sqlite3.connect(settings.directory / FILE_NAME, isolation_level=None)
    db.execute("UPDATE batches SET first_offset = first_offset + 1 WHERE first_seq = 7")
    db.close()
    assert '"reason":"the row before it ends at offset' in check(settings.directory, "--json").output


def test_each_protocol_tells_damage_as_final() -> None:
    failure = Failure(FailureCode.DAMAGED, WORDS)
    assert not failure.retryable
    status, spelled = failure_to_http(failure)
    assert status == 500 and b'"code":"damaged"' in spelled and WORDS.encode() in spelled
    assert kafka_error(failure) is KafkaError.CORRUPT_MESSAGE, "consumers stop at it and name the offset"
    assert grpc_error(failure).code is Code.DATA_LOSS
    assert error_reply(failure).code == "ERR_DAMAGED"
