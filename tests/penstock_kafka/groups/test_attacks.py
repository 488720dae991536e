"""Two tenants of one listener: neither touches the groups, the transactional ids or the fetch sessions of the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.access import scope
from support.kafka.front import fetching, records
from support.kafka.group_front import GroupClient, GroupFront, running
from support.routing import routed
from support.store import BASIN, Wall
from trio.testing import MockClock

from penstock.app.config import RouteTable
from penstock.core.back import Back
from penstock.core.grants import Grant
from penstock.core.identity import CLIENT, Client
from penstock.model.access_tokens import AccessTokenInfo, ResourceSet, Scope
from penstock.routing.access.guard import GuardedBack
from penstock.routing.access.revocation import RevocationMonitor
from penstock.tables.struct_table import StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import encode_batch
from penstock_kafka.codec.consumer_group_messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupMember,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    WantedGroup,
)
from penstock_kafka.codec.record_messages import (
    FetchResponse,
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from penstock_kafka.codec.transaction_messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsets,
    TxnTopic,
)

NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
NO_ID = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def tenant(name: str, prefix: str, **names: ResourceSet) -> Client:
    """Return the client of an access token for the streams with a prefix."""
    allowed = scope("read", "append", "check-tail", "list-streams", streams=ResourceSet(prefix=prefix))
    allowed = Scope(allowed.basins, allowed.streams, ops=allowed.ops, **names)
    return Client(token=name, grant=Grant(AccessTokenInfo(id=name, scope=allowed), name, b""))


A, B = tenant("a", "orders"), tenant("b", "b-")


@asynccontextmanager
async def connected(front: GroupFront, *clients: Client) -> AsyncIterator[list[GroupClient]]:
    """A connection of each client."""
    async with AsyncExitStack() as stack:
        connections = []
        for client in clients:
            before = CLIENT.set(client)
            connections.append(await stack.enter_async_context(front.connected()))
            CLIENT.reset(before)
        yield connections


@asynccontextmanager
async def shared(directory: Path, back: Back | None = None) -> AsyncIterator[GroupFront]:
    """A front for clients with tokens, or through another back, with the topics `orders` and `b-orders`."""
    async with running(directory) as plain:
        await plain.create("b-orders")
        through = back or GuardedBack(plain.back, RevocationMonitor(lambda _: None))
        front = GroupFront(plain.back, Wall(), through, StructTable(plain.back, "kafka/tenants"))
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            await nursery.start(front.front.groups.run)
            nursery.start_soon(front.front.transactions.run)
            await trio.sleep(1)
            assert front.front.transactions.loaded
            yield front
            nursery.cancel_scope.cancel()


async def attacks(client: GroupClient, group: str = "g") -> dict[str, int]:
    """Return the error of each request that would see, change or end a group."""
    deleted = OffsetDeleteTopic(name="b-orders", partitions=[OffsetDeletePartition(partition_index=0)])
    leaving = LeaveGroupRequest(group_id=group, members=[LeaveGroupMember(member_id="", group_instance_id="i")])
    offset_delete = await client.ask(OffsetDeleteRequest(group_id=group, topics=[deleted]))
    [described] = (await client.ask(DescribeGroupsRequest(groups=[group]))).groups
    [consumers] = (await client.ask(ConsumerGroupDescribeRequest(group_ids=[group]))).groups
    [offsets] = (await client.ask(OffsetFetchRequest(groups=[WantedGroup(group_id=group)]), 9)).groups
    assert not described.members and not consumers.members and not offsets.topics
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=9000,
        subscribed_topic_names=["b-orders"],
        topic_partitions=[],
    )
    return {
        "delete": (await client.ask(DeleteGroupsRequest(groups_names=[group]))).results[0].error_code,
        "leave": (await client.ask(leaving)).error_code,
        "describe": described.error_code,
        "describe consumers": consumers.error_code,
        "delete offsets": offset_delete.error_code,
        "fetch offsets": offsets.error_code,
        "commit": await client.commit(99, topic="b-orders", group=group),
        "join": (await client.join(group)).error_code,
        "join consumers": (await client.ask(beat)).error_code,
    }


async def listed(client: GroupClient) -> list[str]:
    return [one.group_id for one in (await client.ask(ListGroupsRequest())).groups]


# ---- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["empty", "stable", "consumers"])
async def test_a_group_is_for_those_who_may_read_its_streams(clock: MockClock, tmp_path: Path, state: str) -> None:
    async with shared(tmp_path) as front, connected(front, A, B) as (a, b):
        assert await b.commit(3, topic="b-orders", group="of-b") == 0
        if state == "empty":
            assert await a.commit(7) == 0
        elif state == "stable":
            joined = await a.join(group_instance_id="i")
            assert (await a.sync(joined, {joined.member_id: b"mine"})).error_code == 0
        else:
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=9000,
                subscribed_topic_names=["orders"],
                topic_partitions=[],
            )
            assert (await a.ask(beat, 0)).error_code == 0
        assert set((errors := await attacks(b)).values()) == {NO_GROUP}, errors
        assert (await listed(a), await listed(b)) == (["g"], ["of-b"])
        assert set((await attacks(b, "unused")).values()) != {NO_GROUP}, "unused names are free"
        if state == "empty":
            assert (await a.committed()).committed_offset == 7
            assert (await a.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
            assert await b.commit(1, topic="b-orders", group="g") == 0


async def test_scopes_reserve_names(clock: MockClock, tmp_path: Path) -> None:
    """Also those that are not in use yet."""
    own = {"groups": ResourceSet(prefix="b-"), "transactional_ids": ResourceSet(exact="b-x")}
    async with shared(tmp_path) as front, connected(front, A, tenant("b", "b-", **own)) as (a, b):
        assert set((found := await attacks(b)).values()) == {NO_GROUP}, found
        assert await a.commit(1, group="of-a") == 0
        assert await b.commit(1, topic="b-orders", group="b-group") == 0
        assert (await listed(a), await listed(b)) == (["of-a"], ["b-group"])
        for name, error in (("x", NO_ID), ("b-x", 0)):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            assert (await b.ask(request)).error_code == error


async def test_identities_that_mean_other_streams_by_the_same_names(clock: MockClock, tmp_path: Path) -> None:
    """Each of two routes puts the identity's name before the streams' names."""
    async with running(tmp_path / "store") as plain:
        await plain.create("a/orders", "b/orders")
        routes = [
            RouteTable(name=name, basin=BASIN, identity=(name,), to_stream=f"{name}/{{stream}}") for name in ("a", "b")
        ]
        view = routed(plain.back, plain.back, *routes).for_listener("kafka")
        clients = Client("a"), Client("b"), Client("a")
        async with shared(tmp_path / "other", view) as front, connected(front, *clients) as (a, b, another):
            assert await a.commit(7) == 0
            assert (await b.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == NO_GROUP
            assert await b.commit(9) == NO_GROUP
            assert (await listed(b), await listed(another)) == ([], ["g"])
            assert (await another.committed()).committed_offset == 7


# ---- transactional ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_partitions", [False, True])
async def test_a_transactional_id_is_for_those_who_may_append_to_its_streams(
    clock: MockClock, tmp_path: Path, has_partitions: bool
) -> None:
    async with shared(tmp_path) as front, connected(front, A, B) as (a, b):
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        given = await a.ask(begin)
        who: dict[str, Any] = {
            "transactional_id": "x",
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }
        orders, of_b = (TxnTopic(name=name, partitions=[0]) for name in ("orders", "b-orders"))
        if has_partitions:
            added = await a.ask(AddPartitionsToTxnRequest(**who, topics=[orders]))
            assert added.topics[0].partitions[0].error_code == 0
        assert (await b.ask(begin)).error_code == NO_ID
        added = await b.ask(AddPartitionsToTxnRequest(**who, topics=[of_b]))
        assert added.topics[0].partitions[0].error_code == NO_ID
        assert (await b.ask(AddOffsetsToTxnRequest(**who, group_id="of-b"))).error_code == NO_ID
        offsets = [TxnOffsets(name="b-orders", partitions=[TxnOffset(partition_index=0, committed_offset=1)])]
        committed = await b.ask(TxnOffsetCommitRequest(**who, group_id="of-b", topics=offsets))
        assert committed.topics[0].partitions[0].error_code == NO_ID
        batch = records(b"x", producer=given.producer_id, epoch=given.producer_epoch, sequence=0)
        batch.transactional = True
        topics = [ProduceTopic(name="b-orders", partitions=[ProducePartition(index=0, records=encode_batch(batch))])]
        produced = await b.ask(ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topics=topics))
        assert produced.topics[0].partitions[0].error_code == NO_ID
        for commit in (False, True):
            assert (await b.ask(EndTxnRequest(**who, committed=commit))).error_code == NO_ID
        ended = await a.ask(EndTxnRequest(**who, committed=True))
        assert ended.error_code == (0 if has_partitions else KafkaError.INVALID_TXN_STATE)
        assert (await a.ask(begin)).producer_epoch == given.producer_epoch + 1
        [one] = (await a.ask(AddOffsetsToTxnRequest(**who, group_id="g")),)
        assert one.error_code != NO_ID


# ---- fetch sessions --------------------------------------------------------------------------------------------------


async def test_a_fetch_session_belongs_to_its_client(clock: MockClock, tmp_path: Path) -> None:
    async with shared(tmp_path) as front, connected(front, A, B, A) as (a, b, again):
        first = fetching({("orders", 0): 0})
        first.session_epoch = 0
        session = (await a.call(first, FetchResponse)).session_id
        assert session
        following = fetching({})
        following.session_id, following.session_epoch = session, 1
        stolen = await b.call(following, FetchResponse)
        assert (stolen.error_code, stolen.topics) == (KafkaError.FETCH_SESSION_ID_NOT_FOUND, ())
        following.session_epoch = -1
        assert (await b.call(following, FetchResponse)).error_code == 0, "it ends no session of another client"
        following.session_epoch = 1
        assert (await again.call(following, FetchResponse)).error_code == 0, "another connection may go on with it"


async def test_members_without_subscriptions_keep_a_group_for_their_client(clock: MockClock, tmp_path: Path) -> None:
    """As workers of Kafka Connect do."""
    async with shared(tmp_path) as front, connected(front, A, B, A) as (a, b, again):
        joined = await a.join(protocol_type="connect")
        assert (await a.sync(joined, {joined.member_id: b"mine"})).error_code == 0
        assert (await b.join(protocol_type="connect")).error_code == NO_GROUP
        assert (await listed(b), await listed(again)) == ([], ["g"])
