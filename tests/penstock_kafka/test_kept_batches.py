"""Batches that the store keeps as they came: Kafka's readers get them, and all others the same records as before."""

from __future__ import annotations

import base64
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from support.examples import examples
from support.kafka.front import Client, fetched, fetching, records
from support.store import BASIN, NOW, Fails, Wall, appending, batches
from support.store import records as stored_records
from support.store.byte_reads import forget_recent

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import GetByteStreamInfo, Merge, ReadBytes, Seal
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    FromSeqNum,
    FromTimestamp,
    GetStreamConfig,
    Locate,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import Header, RecordBatch, StreamRef, event_time_of
from penstock.model.streams import BasinConfig, Cipher, StreamConfigPatch, TimestampingMode
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, header_of, read_batches, resealed
from penstock_kafka.codec.carrying import KEY, encoded_records, parts_of
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.kept import KAFKA_BATCHES, kept_in
from penstock_kafka.codec.record_messages import FetchResponse
from penstock_kafka.sequences import append_plain

KEPT, TAKEN = StreamRef(BASIN, "kept"), StreamRef(BASIN, "taken")
"""Streams with the same records: batches are kept in one, and taken as records in the other."""
NULLABLE = st.none() | st.binary(max_size=9)
HEADERS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), NULLABLE), max_size=2).map(tuple)
ENVELOPES = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS


@dataclass(frozen=True)
class Produced:
    """A batch of a producer."""

    batch: KafkaBatch


@dataclass(frozen=True)
class Plain:
    """Records of a client of another protocol."""

    bodies: tuple[bytes, ...]


@dataclass(frozen=True)
class Trimmed:
    """A trim to somewhere in the stream, in thousandths of it."""

    to: int


@st.composite
def produced(draw: st.DrawFn) -> Produced:
    rows = draw(st.lists(st.tuples(NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=5))
    stamps = draw(
        st.sampled_from([[NOW - 5] * 5, [NOW - 5, NOW - 5, NOW - 1, NOW, NOW], [NOW, 5, 6, 7, 8], [-1] * 5])
        | st.lists(st.integers(NOW - 9, NOW + 9), min_size=5, max_size=5)
    )
    batch = KafkaBatch(
        compression=draw(st.sampled_from(KafkaCompression)),
        keys=[key for key, *_ in rows],
        values=[value for _, value, _ in rows],
        headers={index: row[2] for index, row in enumerate(rows) if row[2]},
        timestamps=stamps[: len(rows)],
        offsets=range(len(rows)),
    )
    return Produced(batch)


PLAIN = st.builds(Plain, st.lists(st.binary(max_size=9), min_size=1, max_size=4).map(tuple))
STEPS = st.lists(produced() | PLAIN | st.builds(Trimmed, st.integers(0, 1000)), min_size=1, max_size=8)


def append_of(batch: KafkaBatch, stream: StreamRef = KEPT) -> Append:
    [read] = read_batches(encode_batch(batch))
    [part] = parts_of(read, whole=True)
    return append_plain(stream, part)


@asynccontextmanager
async def opened(directory: str | Path, envelopes: Layout = Layout.PLAIN) -> AsyncIterator[EmbeddedBack]:
    settings = EmbeddedSettings(directory=Path(directory), envelopes=envelopes)
    async with open_embedded(settings, Wall()) as back:
        if not (Path(directory) / "made").exists():
            (Path(directory) / "made").touch()
            await back.perform(CreateBasin(BASIN))
            for stream in (KEPT, TAKEN):
                await back.perform(CreateStream(stream))
        yield back


async def all_bytes(back: EmbeddedBack, stream: StreamRef) -> bytes:
    info = await back.perform(GetByteStreamInfo(stream))
    at, found = info.start_offset, b""
    while at < info.length and (data := (await back.perform(ReadBytes(stream, at, 7))).data):
        found += data
        at += len(data)
    return found


def as_kafka_reads(found: list[RecordBatch]) -> list[tuple[object, ...]]:
    data = b"".join(
        encoded_records(one) if (kept := kept_in(one, zstd=True)) is None else b"".join(kept) for one in found
    )
    return [
        (*columns, batch.headers.get(index, ()))
        for batch in read_batches(data)
        for index, columns in enumerate(zip(batch.offsets, batch.timestamps, batch.keys, batch.values, strict=True))
    ]


async def check_same(back: EmbeddedBack) -> None:
    """Both streams have the same records, for readers of all protocols, from every start."""
    tail, other = await back.perform(CheckTail(KEPT)), await back.perform(CheckTail(TAKEN))
    assert tail == other
    assert await all_bytes(back, KEPT) == await all_bytes(back, TAKEN)
    for start in range(tail.seq_num):
        kept, taken = [await stored_records(back, FromSeqNum(start), one) for one in (KEPT, TAKEN)]
        assert kept == taken
        assert await stored_records(back, FromSeqNum(start), KEPT, count=2) == taken[:2]
        theirs, ours = [
            as_kafka_reads(await batches(back, FromSeqNum(start), one, encoding=KAFKA_BATCHES)) for one in (KEPT, TAKEN)
        ]
        assert theirs == ours
        times = [(one.seq_num, event_time_of(one.headers) or one.timestamp) for one in taken]
        assert [(one[0], one[1]) for one in theirs] == times
        places = [await back.perform(Locate(one, FromSeqNum(start))) for one in (KEPT, TAKEN)]
        assert places[0] == places[1]
    for time in (0, NOW - 3, NOW, NOW + 1):
        places = [await back.perform(Locate(one, FromTimestamp(time))) for one in (KEPT, TAKEN)]
        assert places[0] == places[1]


@examples(share=8, least=5)
@given(STEPS, st.booleans())
def test_all_readers_find_the_same_records_in_kept_batches(steps: list[object], enveloped: bool) -> None:
    """From memory, from the file, and after a restart."""

    async def check() -> None:
        with tempfile.TemporaryDirectory() as directory:
            layout = ENVELOPES if enveloped else Layout.PLAIN
            async with opened(directory, layout) as back:
                for step in steps:
                    match step:
                        case Produced(batch):
                            append = append_of(batch)
                            assert append.wire is not None
                            await back.perform(append)
                            await back.perform(changed(append_of(batch, TAKEN), wire=None))
                        case Plain(bodies):
                            for stream in (KEPT, TAKEN):
                                await back.perform(appending(*bodies, stream=stream))
                        case Trimmed(to):
                            for stream in (KEPT, TAKEN):
                                end = (await back.perform(CheckTail(stream))).seq_num
                                await back.perform(Trim(stream, FromSeqNum(end * to // 1000)))
                await check_same(back)
                for stream in (KEPT, TAKEN):
                    forget_recent(back, stream)
                await check_same(back)
            async with opened(directory, layout) as back:
                await check_same(back)

    trio.run(check)


# ---- what is stored --------------------------------------------------------------------------------------------------


def rows(directory: Path) -> list[tuple[str | None, bytes]]:
    with sqlite3.connect(directory / "penstock.sqlite3") as db:
        return db.execute("SELECT encoding, payload FROM batches ORDER BY id").fetchall()


async def test_the_bytes_that_came_are_stored(tmp_path: Path) -> None:
    """All but the number of the first record and the leader's epoch, also where timestamps fall. The largest one in
    the header is lowered if it lies in the future."""
    came = replace(records(b"a", b"b", key=b"k"), compression=KafkaCompression.LZ4, timestamps=[NOW - 100] * 2)
    falling, future = replace(came, timestamps=[NOW - 200, NOW - 50]), replace(came, timestamps=[NOW + 900, NOW - 300])
    async with opened(tmp_path) as back:
        for batch in (came, falling, future):
            await back.perform(append_of(batch))
        stored = rows(tmp_path)
    for number, batch, (encoding, payload) in zip((0, 2, 4), (came, falling, future), stored, strict=True):
        data = encode_batch(batch)
        if batch is future:
            data = resealed(data, header_of(data)._replace(newest=NOW))
        assert encoding == KAFKA_BATCHES
        assert payload[:8] == number.to_bytes(8, "big") and payload[16:] == data[16:]


async def test_a_stream_that_stamps_its_records_keeps_stamped_batches(tmp_path: Path) -> None:
    async with opened(tmp_path) as back:
        patch = StreamConfigPatch(timestamping_mode=TimestampingMode.ARRIVAL)
        await back.perform(ReconfigureStream(KEPT, patch))
        assert (await back.perform(GetStreamConfig(KEPT))).timestamping_mode is TimestampingMode.ARRIVAL
        await back.perform(append_of(replace(records(b"a", b"b"), timestamps=[NOW - 9, NOW - 5])))
        assert [record.timestamp for record in await stored_records(back, FromSeqNum(0), KEPT)] == [NOW, NOW]
        [(encoding, payload)] = rows(tmp_path)
        [batch] = read_batches(payload)
    assert (encoding, batch.append_time, list(batch.timestamps)) == (KAFKA_BATCHES, True, [NOW, NOW])


async def test_a_large_batch_is_one_row_and_small_batches_for_others(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(4500)]
    async with opened(tmp_path) as back:
        await back.perform(append_of(records(*bodies)))
        await back.perform(append_of(records(b"after")))
        for _ in ("memory", "file"):
            found = await batches(back, FromSeqNum(3), KEPT)
            assert max(one.count for one in found) == 1000
            assert [body for one in found for body in one.columns.bodies] == [*bodies[3:], b"after"]
            [large, *_] = await batches(back, FromSeqNum(0), KEPT, encoding=KAFKA_BATCHES)
            assert large.count >= 4500 and kept_in(large, zstd=True)
            forget_recent(back, KEPT)
        assert len(rows(tmp_path)) == 2


async def test_an_encrypted_stream_keeps_no_batch(tmp_path: Path) -> None:
    key = EncryptionKey(base64.b64encode(bytes(32)).decode())
    async with opened(tmp_path) as back:
        await back.perform(CreateBasin("basin-secret", BasinConfig(stream_cipher=Cipher.AES_256_GCM)))
        secret = StreamRef("basin-secret", "stream")
        await back.perform(CreateStream(secret))
        before = CLIENT.set(changed(CLIENT.get(), encryption_key=key))
        await back.perform(append_of(records(b"secret", key=b"key"), secret))
        [found] = await stored_records(back, FromSeqNum(0), secret)
        CLIENT.reset(before)
        [(encoding, payload)] = rows(tmp_path)
    assert (found.body, found.headers) == (b"secret", (Header(KEY, b"key"),))
    assert encoding is None and b"secret" not in payload


async def test_streams_with_kept_batches_are_merged(tmp_path: Path) -> None:
    async with opened(tmp_path) as back:
        await back.perform(append_of(records(b"a", None, b"c", key=b"k")))
        await back.perform(append_of(records(b"d")))
        given = await all_bytes(back, KEPT)
        await back.perform(Seal(KEPT))
        await back.perform(Merge(TAKEN, (KEPT,)))
        assert await all_bytes(back, TAKEN) == given


async def test_batches_of_a_codec_that_is_gone_are_an_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as back:
        await back.perform(append_of(records(b"a")))
    with sqlite3.connect(tmp_path / "penstock.sqlite3") as db:
        db.execute("UPDATE batches SET encoding = 'other.batches'")
    async with opened(tmp_path) as back:
        with Fails(FailureCode.STORAGE, "other.batches, which no installed codec has"):
            await stored_records(back, FromSeqNum(0), KEPT)


# ---- through the front -----------------------------------------------------------------------------------------------


def sent(*values: bytes, codec: KafkaCompression = KafkaCompression.NONE) -> KafkaBatch:
    batch = records(*values, key=b"key")
    batch.compression = codec
    return batch


@pytest.mark.parametrize("codec", KafkaCompression)
async def test_a_fetch_returns_the_bytes_that_were_produced(client: Client, codec: KafkaCompression) -> None:
    batch = sent(b"a" * 100, b"b" * 100, codec=codec)
    for _ in range(3):
        await client.produce(batch)
    found = (await client.fetch(0)).records or b""
    one = encode_batch(batch)
    assert len(found) == 3 * len(one)
    assert [found[at + 16 : at + len(one)] for at in range(0, len(found), len(one))] == [one[16:]] * 3
    assert [offset for offset, *_ in fetched(await client.fetch(0))] == list(range(6))


async def test_a_fetch_within_a_batch_begins_with_its_record(client: Client) -> None:
    """So that no reader gets records that were trimmed."""
    await client.produce(sent(b"a", b"b", b"c"))
    await client.produce(sent(b"d"))
    assert fetched(await client.fetch(1)) == [(1, b"key", b"b"), (2, b"key", b"c"), (3, b"key", b"d")]


async def test_the_bounds_of_a_fetch_are_kept_by_whole_batches(client: Client) -> None:
    batch = sent(b"x" * 50, b"x" * 50)
    size = len(encode_batch(batch))
    for _ in range(5):
        await client.produce(batch)
    for most, count in ((1, 1), (size - 1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (10 * size, 5)):
        assert len(fetched(await client.fetch(0, each=most))) == 2 * count
        assert len(fetched(await client.fetch(0, most=most))) == 2 * count


async def test_fetches_that_follow_each_other_return_the_bytes_that_were_produced(
    client: Client, back: EmbeddedBack
) -> None:
    """Also where one begins within batches that the store has joined."""
    batch = sent(*[b"%d" % number for number in range(100)], codec=KafkaCompression.GZIP)
    size = len(encode_batch(batch))
    for _ in range(12):
        await client.produce(batch)
    forget_recent(back, StreamRef("penstock", "t"))
    for offset in range(0, 1200, 300):
        found = (await client.fetch(offset, each=3 * size)).records or b""
        assert [found[at : at + 8] for at in range(0, len(found), size)] == [
            number.to_bytes(8, "big") for number in range(offset, offset + 300, 100)
        ]
        assert [found[at + 16 : at + size] for at in range(0, len(found), size)] == [encode_batch(batch)[16:]] * 3


async def test_a_client_that_does_not_know_zstd_gets_other_batches(client: Client) -> None:
    await client.produce(sent(b"a", codec=KafkaCompression.ZSTD))
    for version, codec in ((9, KafkaCompression.NONE), (10, KafkaCompression.ZSTD)):
        response = await client.call(fetching({("t", 0): 0}), FetchResponse, version)
        found = response.topics[0].partitions[0]
        [batch] = read_batches(found.records or b"")
        assert (batch.compression, fetched(found)) == (codec, [(0, b"key", b"a")])


async def test_timestamps_that_kafka_cannot_spell(client: Client, back: EmbeddedBack) -> None:
    """A batch behind such a record is taken as records, and reading the record fails."""
    await client.produce(sent(b"a"))
    await back.perform(appending(b"late", stream=StreamRef("penstock", "t"), exact=2**63))
    assert (await client.produce(sent(b"b"))).base_offset == 2
    assert fetched(await client.fetch(0)) == [(0, b"key", b"a")]
    assert (await client.fetch(1)).error_code == KafkaError.INVALID_RECORD
    assert (await client.fetch(2)).error_code == KafkaError.INVALID_RECORD


def lying(batch: KafkaBatch, **header: int) -> bytes:
    data = encode_batch(batch)
    return resealed(data, header_of(data)._replace(**header))


BOMB = KafkaBatch(
    compression=KafkaCompression.ZSTD, keys=[None], values=[b"\0" * (20 << 20)], timestamps=[0], offsets=[0]
)


@pytest.mark.parametrize(
    "data",
    [
        encode_batch(replace(sent(b"a", b"b"), offsets=[0, 2])),
        encode_batch(replace(sent(b"a", b"b", b"c"), offsets=[0, 0, 2])),
        lying(sent(b"a", b"b"), last=2),
        lying(sent(b"a", b"b"), records=1),
        lying(sent(b"a", b"b"), records=3, last=2),
        lying(sent(b"a", b"b"), attributes=int(KafkaCompression.GZIP)),
        encode_batch(sent(b"a"))[:-1] + b"\1",
        encode_batch(BOMB),
    ],
    ids=["gap", "twice", "last", "fewer", "more", "codec", "checksum", "bomb"],
)
async def test_a_batch_that_lies_is_refused_when_it_is_produced(client: Client, data: bytes) -> None:
    refused = await client.produce(data)
    assert refused.error_code in (KafkaError.INVALID_RECORD, KafkaError.CORRUPT_MESSAGE, KafkaError.MESSAGE_TOO_LARGE)
    assert (await client.fetch(0)).high_watermark == 0


@pytest.mark.parametrize("codec", KafkaCompression)
async def test_every_changed_byte_is_refused_or_changes_what_all_read(
    client: Client, back: EmbeddedBack, codec: KafkaCompression
) -> None:
    """Changes with a checksum that fits: what is stored can be read by all, and no stored batch is damaged."""
    data = encode_batch(sent(b"a", b"bb", codec=codec))
    for at in range(21, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x11
        whole = bytes(changed)
        await client.produce(resealed(whole, header_of(whole)))
    tail = (await client.fetch(0)).high_watermark
    here = fetched(await client.fetch(0))
    there = await stored_records(back, FromSeqNum(0), StreamRef("penstock", "t"))
    assert len(here) == len(there) == tail
    assert [value or b"" for *_, value in here] == [record.body for record in there]
