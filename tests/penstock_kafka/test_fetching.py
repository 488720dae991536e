"""Fetch, with its waits and bounds; offsets by time; deleted records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.backs import DecodedBack
from support.kafka.front import Client, Connect, fetched, fetching, records, serving

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Following, ReadSession, ReadSessionWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append, CreateStream, DeleteStream, FromSeqNum, Locate, Operation, Read, Trim
from penstock.model.records import Header, RecordBatch, StreamPosition, StreamRef, metered_size
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import read_batches
from penstock_kafka.codec.record_messages import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    EpochEndOffset,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T = StreamRef("penstock", "t")
HEAD = b"\0" * 100


def appended(*bodies: bytes, at: int = 1000, stream: StreamRef = T, **more: object) -> Append:
    return Append(stream, list(bodies), metered_size(bodies, {}), timestamps=[at] * len(bodies), **more)


async def test_what_is_there_comes_at_once(client: Client, back: EmbeddedBack, clock: object) -> None:
    await back.perform(appended(b"a", b"b"))
    await back.perform(appended(b"c"))
    found = await client.fetch(1, wait=5000)
    assert fetched(found) == [(1, None, b"b"), (2, None, b"c")]
    assert (found.high_watermark, found.last_stable_offset) == (3, 3)
    assert trio.current_time() < 1


async def test_at_the_end_a_fetch_waits_and_then_is_empty(client: Client, clock: object) -> None:
    started = trio.current_time()
    found = await client.fetch(0, wait=5000)
    assert (fetched(found), found.high_watermark) == ([], 0)
    assert 5 <= trio.current_time() - started < 6
    assert fetched(await client.fetch(0)) == []


async def test_a_wait_ends_with_the_first_record_of_any_partition(
    client: Client, back: EmbeddedBack, clock: object
) -> None:
    await back.perform(CreateStream(StreamRef("penstock", "u")))
    await client.send(fetching({("t", 0): 0, ("u", 0): 0}, wait=60_000))
    await trio.sleep(2)
    await back.perform(appended(b"late", stream=StreamRef("penstock", "u")))
    response = await client.response()
    assert isinstance(response, FetchResponse)
    t, u = (topic.partitions[0] for topic in response.topics)
    assert (fetched(t), fetched(u), u.high_watermark) == ([], [(0, None, b"late")], 1)


async def test_a_wait_goes_on_until_there_is_enough(client: Client, back: EmbeddedBack, clock: object) -> None:
    await client.send(fetching({("t", 0): 0}, wait=60_000, least=250))
    for _ in range(3):
        await trio.sleep(2)
        await back.perform(appended(HEAD))
    response = await client.response()
    assert isinstance(response, FetchResponse)
    assert len(fetched(response.topics[0].partitions[0])) == 3
    assert trio.current_time() < 10


async def test_a_client_that_leaves_ends_its_wait(client: Client, back: EmbeddedBack, clock: object) -> None:
    await client.send(fetching({("t", 0): 0}, wait=30_000))
    await client.stream.send_eof()
    assert await client.response() is not None, "one that only finished sending gets its response"
    assert trio.current_time() < 30


async def test_a_drain_ends_a_wait(back: EmbeddedBack, clock: object) -> None:
    await back.perform(CreateStream(T))
    async with serving(back) as (connect, front):
        client = connect()
        await client.send(fetching({("t", 0): 0}, wait=30_000))
        await trio.sleep(1)
        front.drain()
        assert isinstance(await client.response(), FetchResponse)
        assert trio.current_time() < 3
        assert await client.ended()


async def test_bounds_are_kept_but_one_record_always_comes(client: Client, back: EmbeddedBack) -> None:
    await back.perform(appended(*[HEAD] * 10))
    assert len(fetched(await client.fetch(0, each=330))) == 3
    assert len(fetched(await client.fetch(3, most=220))) == 2
    assert len(fetched(await client.fetch(3, most=1))) == 1
    assert len(fetched(await client.fetch(3, each=0))) == 1


async def test_partitions_share_the_bytes_of_a_response(client: Client, back: EmbeddedBack) -> None:
    await back.perform(CreateStream(StreamRef("penstock", "u")))
    await back.perform(appended(*[HEAD] * 10))
    await back.perform(appended(*[HEAD] * 10, stream=StreamRef("penstock", "u")))
    response = await client.call(fetching({("t", 0): 0, ("u", 0): 0}, most=1300), FetchResponse)
    assert [len(fetched(topic.partitions[0])) for topic in response.topics] == [10, 2]
    response = await client.call(fetching({("t", 0): 0, ("u", 0): 0}, most=500), FetchResponse)
    assert [len(fetched(topic.partitions[0])) for topic in response.topics] == [4, 0]


async def test_offsets_out_of_range(client: Client, back: EmbeddedBack, clock: object) -> None:
    await back.perform(appended(b"a", b"b", b"c"))
    await back.perform(Trim(T, FromSeqNum(2)))
    out = KafkaError.OFFSET_OUT_OF_RANGE
    assert [(await client.fetch(offset)).error_code for offset in (-1, 0, 1, 2, 3, 4)] == [out, out, out, 0, 0, out]
    await back.perform(Trim(T, FromSeqNum(3)))
    assert (await client.fetch(2, wait=60_000)).error_code == out
    assert trio.current_time() < 1, "an error does not wait"


async def test_errors_are_those_of_partitions(client: Client, back: EmbeddedBack, clock: object) -> None:
    await back.perform(appended(b"a"))
    response = await client.call(fetching({("nope", 0): 0, ("t", 0): 0}, wait=60_000, least=1000), FetchResponse)
    missing, there = (topic.partitions[0] for topic in response.topics)
    assert missing.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(there) == [(0, None, b"a")]


async def test_a_stream_that_is_deleted_ends_the_wait(client: Client, back: EmbeddedBack, clock: object) -> None:
    await client.send(fetching({("t", 0): 0}, wait=60_000))
    await trio.sleep(1)
    await back.perform(DeleteStream(T))
    response = await client.response()
    assert isinstance(response, FetchResponse)
    assert response.topics[0].partitions[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert trio.current_time() < 10


async def test_commands_are_skipped_and_offsets_go_on(client: Client, back: EmbeddedBack) -> None:
    fence = Append(T, [b"token"], 100, {0: (Header(b"", b"fence"),)})
    await back.perform(appended(b"a"))
    await back.perform(fence)
    await back.perform(appended(b"b"))
    found = await client.fetch()
    assert fetched(found) == [(0, None, b"a"), (2, None, b"b")]
    assert [batch.next_offset for batch in read_batches(found.records or b"")] == [1, 2, 3]


async def test_a_record_that_kafka_cannot_carry_stops_its_reader(client: Client, back: EmbeddedBack) -> None:
    await back.perform(appended(b"a"))
    await back.perform(Append(T, [b"b"], 100, {0: (Header(b"\xff", b""),)}))
    assert fetched(await client.fetch()) == [(0, None, b"a")]
    assert (await client.fetch(1)).error_code == KafkaError.INVALID_RECORD


class _FailingRead(ReadSessionWrapper):
    """A read that delivers one batch, and then fails."""

    begun = False

    async def next(self) -> RecordBatch | Following | None:
        if self.begun:
            raise fail(FailureCode.STORAGE, "the disk cannot be read")
        self.begun = True
        return await super().next()


class _FailingBack(DecodedBack):
    """A back whose reads fail behind their first record."""

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with super().read_session(replace(read, count=1)) as session:
            yield _FailingRead(session)


async def test_a_client_is_not_told_that_it_is_at_the_end_where_a_read_fails(back: EmbeddedBack) -> None:
    """Clients that read up to the high watermark would leave out the records behind it."""
    await back.perform(CreateStream(T))
    await back.perform(appended(b"a", b"b", b"c"))
    async with serving(_FailingBack(back)) as (connect, _):
        found = await connect().fetch()
    assert (fetched(found), found.high_watermark, found.last_stable_offset) == ([(0, None, b"a")], 3, 3)


class _LaterRead(ReadSessionWrapper):
    """A read whose records have higher numbers, so many before them have no record."""

    def __init__(self, inner: ReadSession, by: int) -> None:
        super().__init__(inner)
        self._by = by

    async def next(self) -> RecordBatch | Following | None:
        event = await super().next()
        if isinstance(event, RecordBatch):
            return RecordBatch(replace(event.columns, seq_nums=[one + self._by for one in event.columns.seq_nums]))
        return None if event is None else Following(self.tail())

    def tail(self) -> StreamPosition:
        tail = super().tail()
        return tail._replace(seq_num=tail.seq_num + self._by)


class _GapBack(DecodedBack):
    """A stream in which the next number has no record: a transaction's marker, as of a Kafka cluster."""

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with super().read_session(read) as session:
            yield _LaterRead(session, 1)


async def test_offsets_without_a_record_are_passed_over(back: EmbeddedBack, clock: object) -> None:
    """Clients that are told that they are out of range would begin anew, or leave records out."""
    await back.perform(CreateStream(T))
    await back.perform(appended(b"0", b"1", b"2", b"3", b"4"))
    async with serving(_GapBack(back)) as (connect, _):
        found = await connect().fetch(5)
        [gap] = read_batches(found.records)
        assert (found.error_code, len(gap), gap.base_offset, gap.next_offset) == (0, 0, 5, 6)
        assert (found.high_watermark, found.last_stable_offset) == (6, 6)
        client = connect()
        await client.send(fetching({("t", 0): 5}, wait=60_000))
        await trio.sleep(2)
        await back.perform(appended(b"5"))
        response = await client.response()
        assert isinstance(response, FetchResponse)
        assert fetched(response.topics[0].partitions[0]) == [(6, None, b"5")]
        assert fetched(await connect().fetch(5)) == [(6, None, b"5")]


class _AbortedBack(DecodedBack):
    """A stream that begins with two numbers of no record, as an aborted transaction of a Kafka cluster leaves."""

    async def perform(self, operation: Operation[Any]) -> Any:
        found = await super().perform(operation)
        return replace(found, seq_num=2, gap=2) if isinstance(operation, Locate) else found

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with super().read_session(replace(read, start=FromSeqNum(0))) as session:
            yield _LaterRead(session, 2)


@pytest.mark.parametrize("values", [[], [b"a"]], ids=["alone", "before a record"])
async def test_a_gap_at_the_beginning_is_passed_over(back: EmbeddedBack, values: list[bytes]) -> None:
    await back.perform(CreateStream(T))
    if values:
        await back.perform(appended(*values))
    async with serving(_AbortedBack(back)) as (connect, _):
        for offset in (0, 1):
            found = await connect().fetch(offset)
            assert (found.error_code, found.high_watermark) == (0, 2 + len(values))
            assert [value for _, _, value in fetched(found)] == values
        assert await offset_at(connect(), -2) == (0, 0, -1)


async def test_a_waiting_request_holds_back_those_behind_it(client: Client, connect: Connect, clock: object) -> None:
    await client.send(fetching({("t", 0): 0}, wait=10_000))
    await client.send(fetching({("t", 0): 0}))
    await trio.sleep(1)
    await connect().produce(records(b"x"))
    for _ in range(2):
        response = await client.response()
        assert isinstance(response, FetchResponse)
        assert fetched(response.topics[0].partitions[0]) == [(0, None, b"x")]


# ---- positions -------------------------------------------------------------------------------------------------------


async def offset_at(client: Client, time: int, topic: str = "t") -> tuple[int, int, int]:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=time)])
    found = (await client.call(ListOffsetsRequest(topics=[asked]), ListOffsetsResponse)).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


async def test_offsets_by_time(client: Client, back: EmbeddedBack) -> None:
    assert [await offset_at(client, time) for time in (-1, -2, -3, 0)] == [
        (0, 0, -1),
        (0, 0, -1),
        (0, -1, -1),
        (0, -1, -1),
    ]
    for at in (1000, 2000, 2000, 3000):
        await back.perform(appended(b"a", at=at))
    await back.perform(Trim(T, FromSeqNum(1)))
    assert (await offset_at(client, -1), await offset_at(client, -2)) == ((0, 4, -1), (0, 1, -1))
    assert await offset_at(client, -3) == (0, 3, 3000)
    assert [await offset_at(client, time) for time in (5, 2000, 2001)] == [(0, 1, 2000), (0, 1, 2000), (0, 3, 3000)]
    assert await offset_at(client, 3001) == (0, -1, -1)
    assert (await offset_at(client, -9))[0] == KafkaError.INVALID_REQUEST
    assert (await offset_at(client, -1, "nope"))[0] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


async def deleted(client: Client, offset: int) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    return (await client.call(DeleteRecordsRequest(topics=[asked]), DeleteRecordsResponse)).topics[0].partitions[0]


async def test_records_are_deleted_up_to_an_offset(client: Client, back: EmbeddedBack) -> None:
    await back.perform(appended(b"a", b"b", b"c"))
    assert (await deleted(client, 2)).low_watermark == 2
    assert (await deleted(client, 1)).low_watermark == 2
    assert (await deleted(client, 4)).error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert (await deleted(client, -2)).error_code == KafkaError.OFFSET_OUT_OF_RANGE
    assert (await deleted(client, -1)).low_watermark == 3


@pytest.mark.parametrize(("epoch", "end"), [(0, 2), (3, 2), (-1, -1)])
async def test_the_only_leader_epoch_ends_at_the_tail(client: Client, back: EmbeddedBack, epoch: int, end: int) -> None:
    await back.perform(appended(b"a", b"b"))
    asked = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=epoch)])
    answer = await client.call(OffsetForLeaderEpochRequest(topics=[asked]), OffsetForLeaderEpochResponse)
    [found] = answer.topics[0].partitions
    assert isinstance(found, EpochEndOffset)
    assert (found.leader_epoch, found.end_offset) == (min(epoch, 0), end)
