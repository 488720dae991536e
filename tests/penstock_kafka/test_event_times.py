"""Times of events in any order: consumers read what producers sent, and producers are told which time is stored."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed
from support.backs import SmallBatches
from support.kafka.front import Client, fetched, records, serving
from support.store import appending
from support.store import records as stored_records
from support.store.byte_reads import forget_recent

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import BackWrapper
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import ReadBytes
from penstock.model.operations import Append, Appended, CreateBasin, CreateStream, FromSeqNum, ReconfigureStream
from penstock.model.records import EVENT_TIME, Columns, Header, RecordBatch, RecordId, StreamRef
from penstock.model.streams import BasinConfig, Cipher, StreamConfigPatch, TimestampingMode
from penstock.routing.loss.loss import LossPolicy, carry
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.record_messages import (
    FetchPartitionResult,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

T = StreamRef("penstock", "t")
NOW = 1_700_000_000_000
FUTURE = 1 << 42
"""A time that the wall clock does not reach for a century."""


def timed(*times: int, codec: KafkaCompression = KafkaCompression.NONE, **producer: int) -> KafkaBatch:
    values = [b"%d" % time for time in times]
    return replace(records(*values, key=b"k", **producer), compression=codec, timestamps=list(times))


def times_in(result: FetchPartitionResult) -> list[tuple[int, int]]:
    """Offset and CreateTime of each record, which has its time as its value, too."""
    rows = [
        (offset, time, value)
        for batch in read_batches(result.records or b"")
        for offset, time, value in zip(batch.offsets, batch.timestamps, batch.values, strict=True)
    ]
    assert all(int(value or b"") == time for _, time, value in rows), rows
    assert not any(batch.append_time or batch.headers for batch in read_batches(result.records or b""))
    return [row[:2] for row in rows]


@pytest.mark.parametrize("codec", KafkaCompression)
async def test_consumers_read_the_times_that_producers_sent(
    client: Client, back: EmbeddedBack, codec: KafkaCompression
) -> None:
    """Two producers in one partition, a backfill, and a clock that is ahead; from memory, from the file, and from
    within a batch. The answers say that CreateTime is kept."""
    sent = [
        timed(NOW, NOW + 2, NOW + 9, codec=codec),
        timed(NOW + 1, NOW + 3, codec=codec, producer=7, sequence=0),
        timed(5, 2, 3, codec=codec),
        timed(FUTURE, NOW + 4, FUTURE + 1, codec=codec),
        timed(NOW + 5, codec=codec, producer=7, sequence=2),
    ]
    for batch in sent:
        result = await client.produce(batch)
        assert (result.error_code, result.log_append_time_ms) == (0, -1)
    times = list(enumerate(time for batch in sent for time in batch.timestamps))
    for _ in ("memory", "file"):
        for start in range(len(times)):
            assert times_in(await client.fetch(start)) == times[start:]
        forget_recent(back, T)
    found = await stored_records(back, FromSeqNum(0), T)
    assert [record.timestamp for record in found] == sorted(record.timestamp for record in found)
    assert found[-1].timestamp < FUTURE
    own = {record.seq_num: header.value for record in found for header in record.headers if header.name == EVENT_TIME}
    assert own == {number: b"%d" % time for number, time in times if found[number].timestamp != time}
    assert set(own) >= {3, 4, 5, 6, 7, 8, 10}


async def test_records_are_found_by_their_event_times(client: Client) -> None:
    """The first record whose CreateTime is not before the time."""
    for batch in (timed(NOW, NOW + 5), timed(NOW - 100, NOW + 2), timed(NOW + 7, NOW + 6)):
        await client.produce(batch)

    async def at(time: int) -> tuple[int, int]:
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=time)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        found = (await client.call(request, ListOffsetsResponse)).topics[0].partitions[0]
        return found.offset, found.timestamp

    assert [await at(time) for time in (0, NOW, NOW + 1, NOW + 6)] == [(0, NOW), (0, NOW), (1, NOW + 5), (4, NOW + 7)]
    assert await at(-3) == (4, NOW + 7)
    assert await at(NOW + 8) == (-1, -1)


async def test_a_topic_that_stamps_its_records_says_so(client: Client, back: EmbeddedBack) -> None:
    """Also when an idempotent producer sends a batch again, and where records come without any time."""
    await back.perform(ReconfigureStream(T, StreamConfigPatch(timestamping_mode=TimestampingMode.ARRIVAL)))
    batch = replace(records(b"a", b"b", producer=3, sequence=0), timestamps=[NOW, NOW + 1])
    first, again = await client.produce(batch), await client.produce(batch)
    assert first.log_append_time_ms == again.log_append_time_ms > NOW + 1
    patch = StreamConfigPatch(timestamping_mode=TimestampingMode.CLIENT_PREFER)
    await back.perform(ReconfigureStream(T, patch))
    without = await client.produce(replace(records(b"c"), timestamps=[-1]))
    stamped = list(read_batches((await client.fetch(0)).records or b""))
    assert [one.append_time for one in stamped] == [True, True]
    assert [set(one.timestamps) for one in stamped] == [{first.log_append_time_ms}, {without.log_append_time_ms}]


class Raising(BackWrapper):
    """A back whose server raises timestamps, and does not tell of it but by their positions."""

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, Append):
            operation = changed(operation, event_times=False)
        result = await self._inner.perform(operation)
        return changed(result, restamped=None) if isinstance(result, Appended) else result


async def test_the_answer_tells_the_time_that_a_server_stored(back: EmbeddedBack) -> None:
    await back.perform(CreateStream(T))
    async with serving(SmallBatches(Raising(back))) as (connect, _):
        client = connect()
        assert (await client.produce(timed(NOW, NOW + 5))).log_append_time_ms == -1
        assert (await client.produce(timed(NOW + 1, NOW + 2))).log_append_time_ms == NOW + 5


async def test_event_times_in_an_encrypted_stream(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin("basin-secret", BasinConfig(stream_cipher=Cipher.AES_256_GCM)))
    secret = StreamRef("basin-secret", "stream")
    await back.perform(CreateStream(secret))
    key = EncryptionKey(base64.b64encode(bytes(32)).decode())
    before = CLIENT.set(changed(CLIENT.get(), encryption_key=key))
    for time in (NOW, NOW - 5):
        append = appending(b"body", stream=secret, timestamps=[time], headers={0: (Header(b"h", b""),)})
        assert (await back.perform(changed(append, event_times=True))).restamped == 0
    found = await stored_records(back, FromSeqNum(0), secret)
    CLIENT.reset(before)
    assert [(one.timestamp, one.headers[1:]) for one in found] == [
        (NOW, ()),
        (NOW, (Header(EVENT_TIME, b"%d" % (NOW - 5)),)),
    ]


async def test_readers_without_headers_get_the_body_alone(client: Client, back: EmbeddedBack) -> None:
    """An event time is no header that they would refuse a record for."""
    for time in (NOW, NOW - 1):
        await client.produce(replace(records(b"x"), timestamps=[time]))
    found = await stored_records(back, FromSeqNum(0), T)
    assert [len(record.headers) for record in found] == [0, 1]
    columns = Columns(range(2), [NOW, NOW], [b"x", b"x"], {1: found[1].headers})
    carried = carry(RecordBatch(columns, first_id=RecordId(NOW, 0)), LossPolicy())
    assert (carried.bodies, carried.refusal) == ([b"x", b"x"], None)
    assert (await back.perform(ReadBytes(T, 0, 100))).data == b"\0\0\0\0\0\0\0\1x" * 2


async def test_other_clients_give_event_times(client: Client, back: EmbeddedBack) -> None:
    """By the header, which Kafka's clients do not see, and may not send. One that is no time is like others."""
    for time in (b"5", b"x"):
        header = {0: (Header(b"a", b"1"), Header(EVENT_TIME, time))}
        await back.perform(appending(b"5", stream=T, headers=header, timestamps=[NOW]))
    own, other = (
        (batch.timestamps[index], batch.headers[index])
        for batch in read_batches((await client.fetch(0)).records or b"")
        for index in range(len(batch))
    )
    assert own == (5, ((b"a", b"1"),))
    assert other == (NOW, ((b"a", b"1"), (EVENT_TIME, b"x")))
    forged = records(b"f")
    forged.headers = {0: ((EVENT_TIME, b"5"),)}
    assert "penstock-event-time" in str((await client.produce(encode_batch(forged))).error_message)
    assert len(fetched(await client.fetch(0))) == 2
