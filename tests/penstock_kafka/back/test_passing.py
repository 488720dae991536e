"""A client of Kafka, the gateway, and a cluster: batches pass as they came, with the gateway as their producer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from support.kafka.front import fetched, records, serving
from support.s3p.front import BASIN
from support.store import records as stored_records
from trio.testing import MockClock

from penstock.model.operations import CreateStream, FromSeqNum
from penstock.model.records import StreamRef, event_time_of
from penstock.model.streams import StreamConfig, TimestampingMode
from penstock_kafka.codec.batches import BATCH_HEADER, KafkaBatch, encode_batch, header_of, read_batches
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.record_messages import ProduceRequest

CREATE = CreateStream(StreamRef(BASIN, "t"), StreamConfig(timestamping_mode=TimestampingMode.CLIENT_PREFER))
"""Creates a topic whose records keep the timestamps of their producers."""


def sent(*values: bytes, codec: KafkaCompression = KafkaCompression.NONE, at: int = 1_600_000_000_000) -> KafkaBatch:
    """A batch of an idempotent producer."""
    count = len(values)
    return replace(records(*values, key=b"k", producer=5, sequence=0), compression=codec, timestamps=[at] * count)


def produced(cluster: Any) -> list[bytes]:
    """The batches that the gateway has sent."""
    requests = [one for one in cluster.requests if isinstance(one, ProduceRequest)]
    return [one.topics[0].partitions[0].records or b"" for one in requests]


@pytest.mark.parametrize("codec", KafkaCompression)
async def test_a_batch_passes_both_ways(cluster: Any, codec: KafkaCompression) -> None:
    batch = sent(b"a" * 100, b"b" * 100, codec=codec)
    came = encode_batch(batch)
    async with cluster.back() as back, serving(back) as (connect, _):
        await back.perform(CREATE)
        client = connect()
        assert (await client.produce(batch)).base_offset == 0
        found = (await client.fetch(0)).records or b""
    [passed] = produced(cluster)
    for data in (passed, found):
        assert data[BATCH_HEADER:] == came[BATCH_HEADER:]
    header, other = header_of(came), header_of(passed)
    assert other == header._replace(
        producer_id=other.producer_id, producer_epoch=other.producer_epoch, base_sequence=other.base_sequence
    )
    assert other.producer_id not in (header.producer_id, -1), "the gateway is the producer"
    assert passed[17:] == found[17:], "and the reader gets what the cluster has"


async def test_a_large_batch_passes_in_one_piece(cluster: Any) -> None:
    values = [b"%d" % number for number in range(3000)]
    async with cluster.back() as back, serving(back) as (connect, _):
        await back.perform(CREATE)
        client = connect()
        await client.produce(sent(*values, codec=KafkaCompression.GZIP))
        found = await client.fetch(0)
        assert [value for *_, value in fetched(found)] == values
        assert len(list(read_batches(found.records or b""))) == 1
    assert len(produced(cluster)) == 1


async def test_timestamps_that_fall_pass_both_ways(cluster: Any) -> None:
    """As they came, large or with others. Other protocols' readers get rising ones, and these as event times."""
    values = [b"x" * 1000] * 20
    later = 1_600_000_000_005
    async with cluster.back() as back, serving(back) as (connect, _):
        await back.perform(CREATE)
        client = connect()
        assert (await client.produce(sent(b"first", at=later))).log_append_time_ms == -1
        for number, batch in enumerate((sent(*values, codec=KafkaCompression.LZ4), sent(b"small"))):
            assert (await client.produce(replace(batch, base_sequence=1 + 20 * number))).log_append_time_ms == -1
        theirs = (await client.fetch(0)).records or b""
        assert [list(batch.timestamps) for batch in read_batches(theirs)] == [[later], [later - 5] * 20, [later - 5]]
        others = (await client.fetch(2)).records or b""
        assert [list(batch.timestamps) for batch in read_batches(others)] == [[later - 5] * 19, [later - 5]]
        ours = await stored_records(back, FromSeqNum(0), CREATE.stream)
        assert [record.timestamp for record in ours] == [later] * 22
        assert [event_time_of(record.headers) for record in ours] == [None, *[later - 5] * 21]
    _, large, small = [next(read_batches(data)) for data in produced(cluster)]
    assert (large.compression, large.values, set(large.timestamps)) == (KafkaCompression.LZ4, values, {later - 5})
    assert list(small.timestamps) == [later - 5]


async def test_small_batches_that_wait_are_sent_together_and_large_ones_alone(cluster: Any, clock: MockClock) -> None:
    """They wait while the first one is with the cluster."""
    large = b"x" * 20_000
    values = [b"0", b"1", b"2", large, large, b"5"]
    cluster.held = trio.Event()
    async with cluster.back() as back, serving(back) as (connect, _):
        await back.perform(CREATE)
        clients = [connect() for _ in values]
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                nursery.start_soon(client.produce, replace(sent(values[number]), producer_id=100 + number))
                await trio.sleep(0.1)  # the clock jumps when nothing else happens: it is sent, or waits
            assert cluster.asked(ProduceRequest) == 1
            cluster.held.set()
        there = fetched(await clients[0].fetch(0))
    assert [value for *_, value in there] == values
    batches = [batch.values for data in produced(cluster) for batch in read_batches(data)]
    assert batches == [[b"0"], [b"1", b"2"], [large], [large], [b"5"]]
