"""Ids of topics: in metadata, and in requests that name topics by them."""

from __future__ import annotations

import pytest
import trio
from support.backs import DecodedBack
from support.kafka.front import CannotList, Client, Connect, fetched, fetching, records, serving
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import CreateStream, DeleteStream, ListStreams, Operation
from penstock.model.records import StreamRef
from penstock.store.reader import ReaderThreads
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import encode_batch
from penstock_kafka.codec.cluster_messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.codec.topic_messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

T = StreamRef("penstock", "t")
BY_ID = 13


async def described(client: Client, *asked: MetadataRequestTopic) -> list[MetadataTopic]:
    request = MetadataRequest(topics=list(asked) or None, allow_auto_topic_creation=False)
    return (await client.call(request, MetadataResponse)).topics


async def id_of(client: Client, topic: str = "t") -> bytes:
    [found] = await described(client, MetadataRequestTopic(name=topic))
    return found.topic_id


async def created_again(back: EmbeddedBack) -> None:
    """Delete the topic and create it, as a client of any protocol does."""
    await back.perform(DeleteStream(T))
    await trio.sleep(0.01)
    await back.perform(CreateStream(T))


def produce(topic_id: bytes) -> ProduceRequest:
    part = ProducePartition(index=0, records=encode_batch(records(b"a")))
    return ProduceRequest(acks=-1, timeout_ms=1000, topics=[ProduceTopic(topic_id=topic_id, partitions=[part])])


def fetch(*topic_ids: bytes, wait: int = 0) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=one, partitions=[part]) for one in topic_ids]
    return FetchRequest(max_wait_ms=wait, min_bytes=1, topics=topics)


async def test_an_id_lasts_as_long_as_its_topic(client: Client, connect: Connect, back: EmbeddedBack) -> None:
    first = await id_of(client)
    assert len(first) == 16 and first != NO_UUID
    assert {await id_of(connect()), *[one.topic_id for one in await described(client)]} == {first}
    async with serving(back) as (restarted, _):
        assert await id_of(restarted()) == first
    await created_again(back)
    assert await id_of(client) not in (first, NO_UUID)


async def test_the_id_of_several_partitions_is_told_at_their_creation(client: Client) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="set", num_partitions=3)])
    [made] = (await client.call(request, CreateTopicsResponse)).topics
    assert made.topic_id == await id_of(client, "set") != await id_of(client)
    only_checked = CreateTopicsRequest(topics=[CreatableTopic(name="other")], validate_only=True)
    assert (await client.call(only_checked, CreateTopicsResponse)).topics[0].topic_id == NO_UUID


async def test_metadata_by_id(client: Client, back: EmbeddedBack) -> None:
    known = await id_of(client)
    found, other = await described(
        client, MetadataRequestTopic(topic_id=known), MetadataRequestTopic(topic_id=b"x" * 16)
    )
    assert (found.name, found.error_code, len(found.partitions)) == ("t", 0, 1)
    assert (other.name, other.error_code) == (None, KafkaError.UNKNOWN_TOPIC_ID)


async def test_records_by_id(client: Client, back: EmbeddedBack, clock: MockClock) -> None:
    of = await id_of(client)
    appended = (await client.call(produce(of), ProduceResponse, BY_ID)).topics[0]
    assert (appended.topic_id, appended.partitions[0].base_offset) == (of, 0)
    read = (await client.call(fetch(of), FetchResponse, 18)).topics[0]
    assert (read.topic_id, fetched(read.partitions[0])) == (of, [(0, None, b"a")])
    await created_again(back)
    refused = (await client.call(produce(of), ProduceResponse, BY_ID)).topics[0].partitions[0]
    assert refused.error_code == KafkaError.UNKNOWN_TOPIC_ID
    part = (await client.call(fetch(of, wait=1000), FetchResponse, 18)).topics[0].partitions[0]
    assert (part.error_code, part.records) == (KafkaError.UNKNOWN_TOPIC_ID, b""), "librdkafka cannot read null"
    after = (await client.call(fetch(await id_of(client)), FetchResponse, 18)).topics[0].partitions[0]
    assert fetched(after) == [], "nothing was appended to the new topic"


@pytest.mark.parametrize("partitions", [1, 3])
async def test_an_id_is_checked_without_a_read_from_the_file(
    client: Client, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [CreatableTopic(name="new", num_partitions=partitions)]
    [new] = (await client.call(CreateTopicsRequest(topics=topics), CreateTopicsResponse)).topics
    monkeypatch.setattr(ReaderThreads, "run", None)
    appended = (await client.call(produce(new.topic_id), ProduceResponse, BY_ID)).topics[0].partitions[0]
    assert (appended.error_code, appended.base_offset) == (0, 0)


async def test_an_id_that_another_gateway_told_is_found(client: Client, back: EmbeddedBack, clock: MockClock) -> None:
    """By a look through all topics, which is made once a second."""
    of = await id_of(client)
    async with serving(back) as (elsewhere, _):
        other = elsewhere()
        part = (await other.call(fetch(of), FetchResponse, BY_ID)).topics[0].partitions[0]
        assert part.error_code == 0
        await back.perform(CreateStream(StreamRef("penstock", "u")))
        new = await id_of(client, "u")
        part = (await other.call(fetch(new), FetchResponse, BY_ID)).topics[0].partitions[0]
        assert part.error_code == KafkaError.UNKNOWN_TOPIC_ID
        await trio.sleep(1)
        part = (await other.call(fetch(new), FetchResponse, BY_ID)).topics[0].partitions[0]
        assert part.error_code == 0


async def test_a_fetch_session_names_topics_in_one_way(client: Client, back: EmbeddedBack) -> None:
    await back.perform(CreateStream(StreamRef("penstock", "u")))
    of, other = await id_of(client), await id_of(client, "u")
    first = fetch(of, other)
    first.session_epoch = 0
    begun = await client.call(first, FetchResponse, BY_ID)
    assert [one.topic_id for one in begun.topics] == [of, other]
    following = FetchRequest(
        session_id=begun.session_id,
        session_epoch=1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[],
        forgotten_topics=[ForgottenTopic(topic_id=other, partitions=[0])],
    )
    await client.call(produce(of), ProduceResponse, BY_ID)
    await client.call(produce(other), ProduceResponse, BY_ID)
    assert [one.topic_id for one in (await client.call(following, FetchResponse, BY_ID)).topics] == [of]
    by_name = fetching({})
    by_name.session_id, by_name.session_epoch = begun.session_id, 2
    refused = await client.call(by_name, FetchResponse)
    assert refused.error_code == KafkaError.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_server_that_cannot_list_its_streams_has_no_ids(client: Client, back: EmbeddedBack) -> None:
    async with serving(CannotList(back)) as (connect, _):
        assert await id_of(connect()) == NO_UUID


class ListsLater(DecodedBack):
    """A back whose listings take time."""

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        if isinstance(operation, ListStreams):
            await trio.sleep(0.5)
        return await self._inner.perform(operation)


async def test_all_requests_wait_for_a_look_through_the_topics(
    client: Client, back: EmbeddedBack, clock: MockClock
) -> None:
    """As those of several clients do that go on after a restart."""
    of = await id_of(client)
    async with serving(ListsLater(back)) as (elsewhere, _):
        clients = [elsewhere() for _ in range(3)]
        errors: list[int] = []

        async def ask(one: Client) -> None:
            errors.append((await one.call(fetch(of), FetchResponse, BY_ID)).topics[0].partitions[0].error_code)

        async with trio.open_nursery() as nursery:
            for one in clients:
                nursery.start_soon(ask, one)
        assert errors == [0, 0, 0]
