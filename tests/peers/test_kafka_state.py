"""The gateway's state in a compacted topic of a real cluster: several gateways change it, and brokers are killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from support.kafka.cluster import KafkaCluster
from support.kafka.plain import KafkaSocket
from support.peers import unique
from support.real_backs import Address, KafkaBroker
from support.store import Fails
from support.store.table_histories import count_up, value_of

from penstock.backends.logged_tables import LoggedTables, open_logged_tables
from penstock.core.back import Back
from penstock.core.scopes import FULL_SCOPE
from penstock.model.access_tokens import AccessTokenInfo
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import CheckTail
from penstock.model.records import StreamRef
from penstock.model.table_operations import (
    NOT_EXISTS,
    CreateTable,
    DeleteTable,
    ListTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.routing.access.authority import Authority
from penstock.routing.access.token_table import TableOfTokens
from penstock_kafka.back import KafkaBackSettings
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.state_topic import MAX_STATE_BATCH_BYTES, StateTopic
from penstock_kafka.codec.batches import read_batches
from penstock_kafka.codec.record_messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock_kafka.codec.topic_messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock_kafka.names import KafkaNames

pytestmark = pytest.mark.peer
TABLE = "#numbers"
KEY = b"counter"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as started:
        yield started


@asynccontextmanager
async def state_in(addresses: Sequence[Address], topic: str, seconds: float = 30.0) -> AsyncIterator[LoggedTables]:
    """Open one gateway's view of the state in a topic."""
    settings = KafkaBackSettings(
        names=KafkaNames("penstock"), state_topic=topic, recover_seconds=seconds, max_fetch_bytes=MAX_STATE_BATCH_BYTES
    )
    first = [
        Upstream(UpstreamSettings(name="state", host=host, port=port, protocol="kafka")) for host, port in addresses
    ]
    brokers = Brokers(first, settings, Upstream)
    async with open_logged_tables(StateTopic(brokers), 64 * MIB) as tables:
        yield tables
    with trio.CancelScope(shield=True):
        await brokers.close()


async def test_what_one_gateway_was_acknowledged_every_other_sees(broker: KafkaBroker) -> None:
    topic = unique("state")
    async with state_in([broker.address], topic) as one, state_in([broker.address], topic) as other:
        await one.perform(CreateTable(TABLE))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await other.perform(CreateTable(TABLE))
        for number in range(50):
            writer, reader = (one, other) if number % 2 else (other, one)
            (version,) = await writer.perform(UpdateTable(TABLE, (TableItem(KEY, b"%d" % number),)))
            assert await value_of(reader, TABLE, KEY) == (number, version)
        with Fails(FailureCode.TABLE_KEY_VERSION):
            await one.perform(RemoveTableKeys(TABLE, (VersionedKey(KEY, version - 1),)))
        await one.perform(RemoveTableKeys(TABLE, (VersionedKey(KEY, version),)))
        assert await value_of(other, TABLE, KEY) == (0, NOT_EXISTS)
        with Fails(FailureCode.NOT_IMPLEMENTED, topic):
            await one.perform(CheckTail(StreamRef("basin", "stream")))


async def test_an_access_token_is_issued_by_one_gateway_and_known_to_all(broker: KafkaBroker) -> None:
    """It outlives the gateways, and is revoked through another one."""
    topic, info = (
        unique("tokens"),
        AccessTokenInfo(id="a", scope=FULL_SCOPE, expires_at=None, auto_prefix_streams=False),
    )
    async with state_in([broker.address], topic) as one:
        token = await Authority(TableOfTokens(one)).issue(info)
    async with state_in([broker.address], topic) as two, state_in([broker.address], topic) as three:
        second, third = Authority(TableOfTokens(two)), Authority(TableOfTokens(three))
        assert (await second.page("", "", 10)).items == (await third.page("", "", 10)).items == [info]
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await second.issue(info)
        with third.vigil.watch(third.grant(token)) as watched:
            await second.revoke("a")
            with trio.fail_after(10), watched.waiting():
                await trio.sleep_forever()
            assert watched.failure is not None and watched.failure.code is FailureCode.AUTHN


async def test_of_gateways_that_race_one_wins_each_time(broker: KafkaBroker) -> None:
    """Four gateways count with one counter, which is right only if no change was made on an outdated number."""
    topic, conflicts = unique("race"), 0

    async def gateway() -> None:
        nonlocal conflicts
        async with state_in([broker.address], topic) as back:
            found = await count_up(back, TABLE, KEY, 25)
            conflicts += found  # others have added theirs meanwhile

    async with state_in([broker.address], topic) as back:
        await back.perform(CreateTable(TABLE))
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(gateway)
        assert (await value_of(back, TABLE, KEY))[0] == 100
    assert conflicts > 0, "they did not race"


def created(broker: KafkaBroker, topic: str, partitions: int = 1, **settings: str) -> str:
    """Create a topic; underscores in the names of settings stand for dots."""
    config = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=config)
    with KafkaSocket(broker.address) as client:
        found = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse)
    assert found.topics[0].error_code == 0, found
    return topic


@pytest.mark.parametrize(
    ("partitions", "policy", "why"), [(1, "delete", "cleanup.policy=delete"), (2, "compact", "2 partitions")]
)
async def test_a_topic_that_would_lose_state_is_refused(
    broker: KafkaBroker, partitions: int, policy: str, why: str
) -> None:
    topic = created(broker, unique("unfit"), partitions, cleanup_policy=policy)
    async with state_in([broker.address], topic, seconds=2.0) as back:
        with Fails(FailureCode.HOT_SERVER, why):
            await back.perform(CreateTable(TABLE))
        await trio.sleep(2.5)  # since then it has failed for longer than operations wait
        assert back.trouble is not None and why in back.trouble


async def test_compaction_keeps_the_state_and_a_gateway_goes_on_behind_it(broker: KafkaBroker) -> None:
    topic = unique("compacted")
    created(broker, topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001")
    async with state_in([broker.address], topic) as back:
        for table in (TABLE, "#gone"):
            await back.perform(CreateTable(table))
            for number in range(20):
                await back.perform(UpdateTable(table, (TableItem(b"%d" % (number % 4), b"%d" % number),)))
        await back.perform(RemoveTableKeys(TABLE, (VersionedKey(b"3"),)))
        await back.perform(DeleteTable("#gone"))
        expected = await back.perform(ListTable(TABLE))
        with trio.fail_after(120):
            while _records(broker, topic) >= 20:
                await back.perform(UpdateTable(TABLE, (TableItem(b"tick", b""),)))  # closes the segment
                await trio.sleep(0.5)
    async with state_in([broker.address], topic) as again:
        found = await again.perform(ListTable(TABLE))
        assert [item for item in found.items if item.key != b"tick"] == list(expected.items)
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await again.perform(ListTable("#gone"))
        assert await count_up(again, TABLE, KEY, 3) == 0
    async with state_in([broker.address], topic) as last:
        assert await value_of(last, TABLE, KEY) == (3, (await value_of(last, TABLE, KEY))[1])


def _records(broker: KafkaBroker, topic: str) -> int:
    """Count the records that are left in a topic."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    wanted = FetchTopic(topic=topic, partitions=[part])
    with KafkaSocket(broker.address) as client:
        answer = client.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB, topics=[wanted]), FetchResponse)
    return sum(map(len, read_batches(answer.topics[0].partitions[0].records or b"")))


async def test_a_broker_that_is_killed_loses_no_change_and_makes_none_twice() -> None:
    topic, each = unique("killed"), 150
    with KafkaCluster() as cluster:
        async with state_in(cluster.addresses, topic, 60.0) as one, state_in(cluster.addresses, topic, 60.0) as other:
            await one.perform(CreateTable(TABLE))
            rounds = 0

            async def kill() -> None:
                nonlocal rounds
                while True:
                    await trio.sleep(1.0)
                    leader = await trio.to_thread.run_sync(cluster.leader_of, topic)
                    await trio.to_thread.run_sync(cluster.brokers[leader].restart)
                    rounds += 1

            async with trio.open_nursery() as killing:
                killing.start_soon(kill)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_count_alone, one, b"one", each)
                    nursery.start_soon(_count_alone, other, b"other", each)
                killing.cancel_scope.cancel()
            assert rounds > 0, "no broker was killed while they counted"
            for key in (b"one", b"other"):
                assert (await value_of(one, TABLE, key))[0] == (await value_of(other, TABLE, key))[0] == each


async def _count_alone(back: Back, key: bytes, times: int) -> None:
    """Add 1 so many times to a counter that no other gateway changes; after a doubt, look before going on."""
    for number in range(1, times + 1):
        while True:
            before, version = await value_of(back, TABLE, key)
            assert before in (number - 1, number), "a change was lost, or made twice"
            if before == number:
                break
            try:
                await back.perform(UpdateTable(TABLE, (TableItem(key, b"%d" % number, version),)))
            except OperationFailed as error:
                assert error.failure.code in (FailureCode.UNAVAILABLE, FailureCode.HOT_SERVER), error
