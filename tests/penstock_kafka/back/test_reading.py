"""Reads through the gateway from a cluster: starts, gaps, following, and lost connections."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.s3p.front import BASIN
from support.store import Fails, appending, batches, bodies, fence, records
from trio.testing import MockClock

from penstock.backends.sequence_numbering.creations import Creations
from penstock.core.back import Following
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    DeleteStream,
    EnsureStream,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    GetStreamConfig,
    ListStreams,
    Locate,
    ProvisionResult,
    Read,
    Trim,
)
from penstock.model.records import RecordBatch, RecordId, StreamRef
from penstock.model.streams import Retention, StreamConfig, TimestampingMode
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.cluster_messages import MetadataBroker, MetadataRequest, MetadataResponse, MetadataTopic
from penstock_kafka.codec.compression import KafkaCompression
from penstock_kafka.codec.record_messages import (
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)

STREAM = StreamRef(BASIN, "orders")
BY_CLIENT = StreamConfig(timestamping_mode=TimestampingMode.CLIENT_PREFER)


async def fill(back: Any, *stamps: int, stream: StreamRef = STREAM) -> None:
    """Append a record for each timestamp, which is its body too."""
    await back.perform(CreateStream(stream, BY_CLIENT))
    for stamp in stamps:
        await back.perform(appending(b"%d" % stamp, stream=stream, timestamps=[stamp]))


async def test_starts(cluster: Any) -> None:
    async with cluster.back() as back:
        await fill(back, 10, 20, 20, 20, 30)
        for start, first in [
            (FromSeqNum(3), b"20"),
            (FromTimestamp(15), b"20"),
            (FromTimestamp(30), b"30"),
            (FromTailOffset(1), b"30"),
            (FromTailOffset(100), b"10"),
            (FromRecordId(RecordId(20, 5)), b"30"),
            (FromRecordId(RecordId(11, 0)), b"20"),
        ]:
            assert (await bodies(back, start, stream=STREAM))[0] == first, start
        for start in (FromSeqNum(5), FromTimestamp(31)):
            with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as refused:
                await bodies(back, start, stream=STREAM, count=1)
            assert refused.failure.details["tail"] == {"seq_num": 5, "timestamp": 30}
        with Fails(FailureCode.NOT_IMPLEMENTED):
            await bodies(back, FromByteOffset(0), stream=STREAM)
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(CheckTail(StreamRef(BASIN, "nothing"), create_if_missing=False))


async def test_a_timestamp_that_resolves_to_the_tail_is_at_the_tail(cluster: Any) -> None:
    """It follows, and is refused where the read may not; only one after the tail's is beyond it."""
    async with cluster.back() as back:
        await fill(back)
        async with back.read_session(Read(STREAM, FromTimestamp(0))) as session:
            assert await session.next() == Following((0, 0))
        for start, bounds in ((0, {"count": 1}), (1, {})):
            with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as refused:
                await bodies(back, FromTimestamp(start), stream=STREAM, **bounds)
            assert refused.failure.details["tail"] == {"seq_num": 0, "timestamp": 0}


def end_of_before(*ends: int, asked: int = -1) -> Any:
    """Answer questions for the end of the partition with these; records came between the first and the last. `asked`:
    the timestamp that stands for what is asked for; -2: the beginning."""
    left = list(ends)

    def answer(request: Any) -> Any:
        if not isinstance(request.message, ListOffsetsRequest) or not left:
            return None
        if request.message.topics[0].partitions[0].timestamp != asked:
            return None
        found = ListOffsetsPartitionResult(partition_index=0, offset=left.pop(0), timestamp=-1)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="orders", partitions=[found])])

    return answer


async def test_the_tail_that_a_refused_start_saw(cluster: Any) -> None:
    """A start at the tail is refused with that tail, though records are appended meanwhile: a client takes the place
    that it asked for to be the next one."""
    async with cluster.back() as back:
        await fill(back, 10)
        cluster.answers.append(end_of_before(1, 2))
        with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as refused:
            await bodies(back, FromSeqNum(1), stream=STREAM, count=1)
        assert refused.failure.details["tail"] == {"seq_num": 1, "timestamp": 10}


async def test_identifiers(cluster: Any) -> None:
    """The place within a millisecond is how many offsets a record is behind the first one of it."""
    async with cluster.back() as back:
        await fill(back, 10, 20, 20, 30)
        for start in (RecordId(0, 0), RecordId(20, 1)):
            found = await batches(back, FromRecordId(start), stream=STREAM)
            ids = [one for batch in found for one in batch.record_ids()]
            assert ids == [one for one in [(10, 0), (20, 0), (20, 1), (30, 0)] if one >= start]
        assert (await back.perform(Locate(STREAM, FromSeqNum(2)))).record_id == (20, 1)
        append = appending(b"x", stream=STREAM, timestamps=[30])
        appended = await back.perform(replace(append, create_if_missing=False))
        assert appended.last_id == (30, 1)


def no_times(request: Any) -> Any:
    """Answer questions for a record by its time as a broker that does not lead the partition."""
    if not isinstance(request.message, ListOffsetsRequest) or request.message.topics[0].partitions[0].timestamp < 0:
        return None
    found = ListOffsetsPartitionResult(partition_index=0, error_code=6)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="orders", partitions=[found])])


@pytest.mark.parametrize("cancelled", [False, True])
async def test_records_whose_identifiers_cannot_be_asked_for_yet(
    cluster: Any, clock: MockClock, cancelled: bool
) -> None:
    """They are fetched again with the identifiers, also if the reader was cancelled meanwhile."""
    async with cluster.back(recover_seconds=2) as back:
        await fill(back, 10, 20)
        read = Read(STREAM, FromRecordId(RecordId(0, 0)))
        async with back.read_session(read) as session, trio.open_nursery() as nursery:
            cluster.answers.append(no_times)

            @nursery.start_soon
            async def mend() -> None:
                await trio.sleep(2.05)  # just longer than one question is repeated
                cluster.answers.clear()

            if cancelled:
                with trio.move_on_after(1) as scope:
                    await session.next()
                assert scope.cancelled_caught
            for timestamp in (10, 20):
                found = await session.next()
                assert isinstance(found, RecordBatch) and found.first_id == (timestamp, 0)
            assert await session.next() == Following((2, 20))


async def test_bounds(cluster: Any) -> None:
    async with cluster.back() as back:
        await fill(back, 10, 20, 20, 30)
        assert await bodies(back, FromSeqNum(1), stream=STREAM, count=2) == [b"20", b"20"]
        assert await bodies(back, FromSeqNum(0), stream=STREAM, until=20) == [b"10"]
        assert await bodies(back, FromSeqNum(0), stream=STREAM, max_bytes=25) == [b"10", b"20"]
        assert await bodies(back, FromSeqNum(0), stream=STREAM, count=0) == []


async def test_a_reader_follows_though_its_wait_is_cancelled(cluster: Any, clock: MockClock) -> None:
    """The request that waits at the broker goes on, and its answer is not lost."""
    async with cluster.back() as back:
        await fill(back, 10)
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert isinstance(await session.next(), RecordBatch)
            assert isinstance(await session.next(), Following)
            asked = cluster.asked(FetchRequest)
            for _ in range(3):
                with trio.move_on_after(2) as scope:
                    await session.next()
                assert scope.cancelled_caught
            assert cluster.asked(FetchRequest) == asked + 1
            await back.perform(appending(b"new", stream=STREAM))
            batch = await session.next()
            assert batch is not None and batch.columns.bodies == [b"new"]
            assert batch.tail == session.tail()


async def test_a_wait_ends(cluster: Any, clock: MockClock) -> None:
    async with cluster.back() as back:
        await fill(back, 10)
        async with back.read_session(Read(STREAM, FromSeqNum(1), wait=7)) as session:
            began = trio.current_time()
            assert isinstance(await session.next(), Following)
            assert await session.next() is None
            assert 6.9 < trio.current_time() - began < 9


async def test_a_read_survives_lost_connections(cluster: Any, clock: MockClock) -> None:
    async with cluster.back() as back:
        await fill(back, *range(10, 20))

        cluster.losing, cluster.lost = FetchRequest, 3
        assert await bodies(back, FromSeqNum(0), stream=STREAM) == [b"%d" % stamp for stamp in range(10, 20)]


def unknown_topic(request: Any) -> Any:
    """Answer as a broker that has just started, and has not heard of topics yet."""
    if not isinstance(request.message, MetadataRequest) or not request.message.topics:
        return None
    broker = MetadataBroker(node_id=1, host="example", port=1)
    topics = [MetadataTopic(error_code=3, name=one.name, partitions=[]) for one in request.message.topics]
    return MetadataResponse(brokers=[broker], topics=topics)


async def test_a_topic_that_a_broker_has_not_heard_of_yet(cluster: Any, clock: MockClock) -> None:
    """It is looked for, for some seconds; one that was never there is not."""
    async with cluster.back() as back:
        await fill(back, 10)
        cluster.answers.append(unknown_topic)
        with Fails(FailureCode.STREAM_NOT_FOUND):
            began = trio.current_time()
            await back.perform(CheckTail(StreamRef(BASIN, "nothing"), create_if_missing=False))
        assert trio.current_time() == began
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            await session.close()
            back._brokers.forget(STREAM.stream)
            with trio.move_on_after(3) as scope:
                await session.next()
            assert scope.cancelled_caught
            cluster.answers.clear()
            assert isinstance(await session.next(), RecordBatch)
        cluster.answers.append(unknown_topic)
        back._brokers.forget(STREAM.stream)
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(CheckTail(STREAM, create_if_missing=False))
        assert trio.current_time() > began + 7


async def test_records_that_come_before_the_newest_timestamp(cluster: Any) -> None:
    """The newest one may be one that a reader at the tail has not read yet: those before it keep their timestamps."""
    async with cluster.back() as back:
        await fill(back, 10, 20)
        cluster.answers.append(end_of_before(0))
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            for timestamp in (10, 20):
                batch = await session.next()
                assert isinstance(batch, RecordBatch) and list(batch.columns.timestamps) == [timestamp]
            assert await session.next() == Following((2, 20))


async def test_a_tail_has_no_timestamp_of_records_behind_it(cluster: Any) -> None:
    async with cluster.back() as back:
        await fill(back, 10)
        cluster.requests.clear()
        assert await back.perform(CheckTail(STREAM)) == (1, 10)
        asked = [one for one in cluster.requests if isinstance(one, ListOffsetsRequest)]
        assert [one.topics[0].partitions[0].timestamp for one in asked] == [-3, -1]


async def test_gaps(cluster: Any) -> None:
    """A control record and what compaction removed have numbers that no record has."""
    content = encode_batch(
        KafkaBatch(keys=[None] * 3, values=[b"a", b"b", b"c"], timestamps=[9, 5, 12], offsets=[0, 1, 4])
    ) + encode_batch(
        KafkaBatch(base_offset=5, control=True, keys=[b"\0\0\0\1"], values=[b""], timestamps=[12], offsets=[5])
    )

    def answer(request: Any) -> Any:
        if isinstance(request.message, ListOffsetsRequest):
            [wanted] = request.message.topics[0].partitions
            offset, stamp = {-1: (6, -1), -2: (0, -1), -3: (4, 12)}.get(wanted.timestamp, (0, 9))
            found = ListOffsetsPartitionResult(partition_index=0, offset=offset, timestamp=stamp)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="orders", partitions=[found])])
        if isinstance(request.message, FetchRequest):
            part = FetchPartitionResult(partition_index=0, high_watermark=6, last_stable_offset=6, records=content)
            return FetchResponse(topics=[FetchTopicResult(topic="orders", partitions=[part])])
        return None

    async with cluster.back() as back:
        await fill(back)
        cluster.answers.append(answer)
        found = await records(back, FromSeqNum(0), stream=STREAM)
        assert [(one.seq_num, one.body) for one in found] == [(0, b"a"), (1, b"b"), (4, b"c")]
        assert [one.timestamp for one in found] == [9, 9, 12]  # timestamps never fall
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert [(await session.next()).first_seq_num for _ in range(2)] == [0, 4]
            assert await session.next() == Following((6, 12))
        located = [await back.perform(Locate(STREAM, FromSeqNum(start))) for start in (1, 2, 4, 5, 6)]
        assert [(one.seq_num, one.gap) for one in located] == [(1, 0), (4, 2), (4, 0), (6, 1), (6, 0)]


@pytest.mark.parametrize(("each", "count", "asked"), [(10_000, 120_000, 3), (200_000, 200_000, 2)])
async def test_more_small_records_than_are_decoded_at_once(cluster: Any, each: int, count: int, asked: int) -> None:
    """A broker that sends them all in one answer is asked again behind those that were."""
    content = {
        first: encode_batch(
            KafkaBatch(
                base_offset=first,
                compression=KafkaCompression.GZIP,
                keys=[None] * each,
                values=[b"%d" % number for number in range(first, first + each)],
                timestamps=[9] * each,
                offsets=range(first, first + each),
            )
        )
        for first in range(0, count, each)
    }
    assert len(b"".join(content.values())) < 1 << 20

    def answer(request: Any) -> Any:
        if isinstance(request.message, ListOffsetsRequest):
            [wanted] = request.message.topics[0].partitions
            found = ListOffsetsPartitionResult(partition_index=0, offset=count * (wanted.timestamp == -1))
            return ListOffsetsResponse(topics=[ListOffsetsTopicResult(name="orders", partitions=[found])])
        if isinstance(request.message, FetchRequest):
            after = request.message.topics[0].partitions[0].fetch_offset
            rest = b"".join(batch for first, batch in content.items() if first + each > after)
            part = FetchPartitionResult(partition_index=0, high_watermark=count, last_stable_offset=count, records=rest)
            return FetchResponse(topics=[FetchTopicResult(topic="orders", partitions=[part])])
        return None

    async with cluster.back() as back:
        await fill(back)
        cluster.answers.append(answer)
        found = await bodies(back, FromSeqNum(0), stream=STREAM)
        assert found == [b"%d" % number for number in range(count)]
        assert cluster.asked(FetchRequest) == asked


async def test_trim(cluster: Any) -> None:
    """A reader before the first record that is left goes on there."""
    async with cluster.back() as back:
        await fill(back, 10, 20, 30)
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            assert (await back.perform(Trim(STREAM, FromSeqNum(2)))) == (2, 30)
            batch = await session.next()
            assert batch is not None and batch.columns.bodies == [b"30"]
        assert (await back.perform(Trim(STREAM, FromSeqNum(1)))).seq_num == 2
        assert (await back.perform(Trim(STREAM, FromSeqNum(100)))).seq_num == 3
        assert (await back.perform(CheckTail(STREAM))).seq_num == 3


@pytest.mark.parametrize("to", [1, 100])
async def test_a_trim_at_the_tail_keeps_records_that_come_meanwhile(cluster: Any, to: int) -> None:
    async with cluster.back() as back:
        await fill(back, 10, 20)
        cluster.answers.append(end_of_before(1))
        assert (await back.perform(Trim(STREAM, FromSeqNum(to)))).seq_num == 1
        assert await bodies(back, FromSeqNum(0), stream=STREAM) == [b"20"]


async def test_a_trim_finds_that_another_one_removed_all(cluster: Any) -> None:
    async with cluster.back() as back:
        await fill(back, 10, 20)
        await cluster.store.perform(Trim(STREAM, FromSeqNum(2)))
        cluster.answers.append(end_of_before(0, asked=-2))
        assert (await back.perform(Trim(STREAM, FromSeqNum(1)))).seq_num == 2
        cluster.answers.append(end_of_before(0, asked=-2))
        located = await back.perform(Locate(STREAM, FromSeqNum(0)))
        assert (located.seq_num, located.at_tail) == (2, True)


async def test_a_trim_keeps_what_it_is_told_to_keep(cluster: Any) -> None:
    """Also numbers of which the partition has no record for its clients, such as those of commands."""
    async with cluster.back() as back:
        await fill(back, 10)
        for token in (b"a", b"b"):
            await cluster.store.perform(fence(token, stream=STREAM))
        await cluster.store.perform(appending(b"20", stream=STREAM))
        assert (await back.perform(Trim(STREAM, FromSeqNum(2)))).seq_num == 2
        assert [one.seq_num for one in await records(cluster.store, FromSeqNum(0), stream=STREAM)] == [2, 3]


async def test_a_trim_within_a_millisecond(cluster: Any) -> None:
    """Identifiers stay the same, also after a restart, until the topic is deleted."""
    async with cluster.back() as back:
        await fill(back, 10, 20, 20, 20, 30)
        await back.perform(Trim(STREAM, FromSeqNum(2)))
    for _ in range(2):
        async with cluster.back() as back:
            for start, found in [((20, 0), (2, 1)), ((20, 1), (2, 1)), ((20, 2), (3, 2))]:
                located = await back.perform(Locate(STREAM, FromRecordId(RecordId(*start))))
                assert (located.seq_num, located.record_id.seq) == found
            assert (await back.perform(Locate(STREAM, FromSeqNum(3)))).record_id == (20, 2)
    async with cluster.back() as back:
        await back.perform(DeleteStream(STREAM))
        await fill(back, 20, 20, 20)
        assert (await back.perform(Locate(STREAM, FromSeqNum(2)))).record_id == (20, 2)


async def test_a_trim_of_a_topic_that_gets_more_partitions(cluster: Any) -> None:
    """Identifiers stay the same in the only partition it had, and others have their own."""
    stamps = 10, 20, 20, 20, 30
    async with cluster.back() as back:
        await fill(back, *stamps)
        await back.perform(Trim(STREAM, FromSeqNum(2)))
    await cluster.store.perform(DeleteStream(STREAM))
    streams = [StreamRef(BASIN, f"{STREAM.stream}/{number}") for number in range(2)]
    for stream in streams:
        await fill(cluster.store, *stamps, stream=stream)
        await cluster.store.perform(Trim(stream, FromSeqNum(2)))
    for place, stream in zip((1, 0), streams, strict=True):
        async with cluster.back() as back:
            assert (await back.perform(Locate(stream, FromSeqNum(2)))).record_id == (20, place)
            located = await back.perform(Locate(stream, FromRecordId(RecordId(20, place + 1))))
            assert (located.seq_num, located.record_id) == (3, (20, place + 1))
    async with cluster.back() as back:
        await back.perform(Trim(streams[0], FromSeqNum(3)))
    async with cluster.back() as back:
        assert (await back.perform(Locate(streams[0], FromSeqNum(3)))).record_id == (20, 2)


async def test_streams(cluster: Any) -> None:
    """Topics of several partitions are sets of streams; the gateway creates topics of one."""
    async with cluster.back() as back:
        assert (await back.perform(EnsureStream(STREAM, BY_CLIENT))).result is ProvisionResult.CREATED
        assert (await back.perform(EnsureStream(STREAM, BY_CLIENT))).result is ProvisionResult.NOOP
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await back.perform(CreateStream(STREAM))
        for number in (0, 1):
            await cluster.store.perform(CreateStream(StreamRef(BASIN, f"several/{number}")))
        page = await back.perform(ListStreams(BASIN))
        assert [info.name for info in page.items] == ["orders", "several/0", "several/1"]
        page = await back.perform(ListStreams(BASIN, "s", "several/0", 1))
        assert ([info.name for info in page.items], page.has_more) == (["several/1"], False)
        await back.perform(appending(b"x", stream=StreamRef(BASIN, "several/1")))
        for name in ("several", "orders/0", "several/2"):
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(CheckTail(StreamRef(BASIN, name), create_if_missing=False))
        for operation in (CreateStream(StreamRef(BASIN, "new/0")), DeleteStream(StreamRef(BASIN, "several/0"))):
            with Fails(FailureCode.NOT_IMPLEMENTED, "partition"):
                await back.perform(operation)
        with Fails(FailureCode.NOT_REPRESENTABLE):
            await back.perform(CreateStream(StreamRef(BASIN, "a b")))
        await back.perform(DeleteStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(GetStreamConfig(STREAM))


async def created(back: Any) -> dict[str, int]:
    """Return the creation times of all streams."""
    return {info.name: info.created_at for info in (await back.perform(ListStreams(BASIN))).items}


async def test_a_topic_that_gets_more_partitions_keeps_its_creation_time(cluster: Any) -> None:
    """Also one that the gateway has only seen. So offsets that groups have committed stay those of the partition."""
    for topic in ("orders", "seen"):
        cluster.clock = lambda: 100
        async with cluster.back() as back:
            if topic == "orders":
                await back.perform(CreateStream(STREAM))
            else:
                await cluster.store.perform(CreateStream(StreamRef(BASIN, topic)))
            assert (await created(back))[topic] == 100
        await cluster.store.perform(DeleteStream(StreamRef(BASIN, topic)))
        for number in range(2):
            await cluster.store.perform(CreateStream(StreamRef(BASIN, f"{topic}/{number}")))
        cluster.clock = lambda: 200
        async with cluster.back() as back:
            found = await created(back)
            assert (found[f"{topic}/0"], found[f"{topic}/1"]) == (100, 100)


async def test_creation_times_of_partitions_that_a_state_has(cluster: Any) -> None:
    """Gateways of before kept one for each partition: it stays. Others have one for all partitions."""
    streams = [StreamRef(BASIN, f"set/{number}") for number in range(3)]
    for stream in streams:
        await cluster.store.perform(CreateStream(stream))
    await Creations(cluster.store, "far").of(streams[:1], 100)
    cluster.clock = lambda: 200
    async with cluster.back() as back:
        assert await created(back) == {"set/0": 100, "set/1": 200, "set/2": 200}
    cluster.clock = lambda: 300
    async with cluster.back() as back:
        assert await created(back) == {"set/0": 100, "set/1": 200, "set/2": 200}


async def test_settings(cluster: Any) -> None:
    async with cluster.back() as back:
        await back.perform(CreateStream(STREAM, StreamConfig(retention=Retention(60), retention_bytes=9)))
        found = await back.perform(GetStreamConfig(STREAM))
        assert (found.retention, found.retention_bytes) == (Retention(60), 9)
        assert found.timestamping_mode is TimestampingMode.ARRIVAL
        for config, what in (
            (StreamConfig(storage_class="standard"), "storage_class"),
            (StreamConfig(timestamping_mode=TimestampingMode.CLIENT_REQUIRE), "timestamping_mode"),
            (StreamConfig(timestamping_uncapped=True), "timestamping_uncapped"),
        ):
            with Fails(FailureCode.NOT_IMPLEMENTED, what):
                await back.perform(CreateStream(StreamRef(BASIN, "other"), config))


@pytest.mark.parametrize("stamp", [5, None])
async def test_timestamps_never_fall(cluster: Any, stamp: int | None) -> None:
    """One that would fall is raised to that of the record before, one from the future to the time of its arrival."""
    async with cluster.back() as back:
        await fill(back, 10)
        appended = await back.perform(appending(b"x", stream=STREAM, timestamps=[stamp]))
        assert (appended.end.timestamp == 10) is (stamp == 5)
        later = await back.perform(appending(b"y", stream=STREAM, timestamps=[1 << 60]))
        assert later.end.timestamp < 1 << 60
        found = await records(back, FromSeqNum(0), stream=STREAM)
        assert [one.timestamp for one in found[1:]] == [appended.end.timestamp, later.end.timestamp]
