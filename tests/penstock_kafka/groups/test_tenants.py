"""Groups and transactions of clients with access tokens: what those of one do not change for those of another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from support.access import scope
from support.kafka.group_front import GroupClient, GroupFront
from trio.testing import MockClock

from penstock.core.grants import Grant
from penstock.core.identity import CLIENT, Client
from penstock.model.access_tokens import AccessTokenInfo, ResourceSet
from penstock.routing.access.guard import GuardedBack
from penstock.routing.access.revocation import RevocationMonitor
from penstock.tables.struct_table import StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataRequestTopic
from penstock_kafka.codec.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    WantedGroup,
)
from penstock_kafka.codec.inspection_messages import DescribeTransactionsRequest, ListTransactionsRequest
from penstock_kafka.codec.record_messages import InitProducerIdRequest
from penstock_kafka.codec.transaction_messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsets,
)

ALL_OPS = "read", "append", "check-tail", "list-streams"


@pytest.fixture
async def guarded(clock: MockClock, front: GroupFront) -> AsyncIterator[GroupFront]:
    """A front whose back checks the access tokens of its clients."""
    through = GuardedBack(front.back, RevocationMonitor(lambda _: None))
    found = GroupFront(front.back, front.wall, through, StructTable(front.back, "kafka"))
    async with trio.open_nursery() as nursery:
        await nursery.start(found.front.groups.run)
        nursery.start_soon(found.front.transactions.run)
        yield found
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_of(
    front: GroupFront, name: str, *, prefix: str = "", ops: tuple[str, ...] = ALL_OPS
) -> AsyncIterator[GroupClient]:
    """A client with a token of this name. `prefix`: what is put before the names of its streams."""
    allowed = scope(*ops, streams=ResourceSet(prefix=prefix))
    grant = Grant(AccessTokenInfo(id=name, scope=allowed, auto_prefix_streams=bool(prefix)), name, name.encode())
    async with AsyncExitStack() as stack:
        before = CLIENT.set(Client(token=name, grant=grant))
        client = await stack.enter_async_context(front.connected())
        CLIENT.reset(before)
        yield client


async def beat(client: GroupClient, member: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **more)
    found: ConsumerGroupHeartbeatResponse = await client.ask(request)
    assert found.error_code == 0, found
    return found


async def join(client: GroupClient, member: str, **more: Any) -> ConsumerGroupHeartbeatResponse:
    more = {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 60_000, "topic_partitions": []} | more
    return await beat(client, member, 0, **more)


def topics(answer: ConsumerGroupHeartbeatResponse) -> list[bytes] | None:
    """Return the ids of the topics that are assigned."""
    return None if answer.assignment is None else [one.topic_id for one in answer.assignment.topic_partitions]


async def id_of(client: GroupClient) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    found: bytes = (await client.ask(request)).topics[0].topic_id
    return found


async def test_a_client_that_may_not_list_streams_takes_nothing_from_others(guarded: GroupFront) -> None:
    async with (
        client_of(guarded, "all") as lists,
        client_of(guarded, "few", ops=("read", "check-tail")) as reads,
    ):
        await guarded.create("other")
        assert topics(await join(lists, "m")) == [await id_of(lists)]
        await trio.sleep(6)
        await join(reads, "n", subscribed_topic_names=["other"])
        assert topics(await beat(lists, "m", 1)) is None, "as before"
        assert topics(await beat(lists, "m", 0, **_joins("orders"))) == [await id_of(lists)]


def _joins(*names: str) -> dict[str, Any]:
    return {"subscribed_topic_names": list(names), "rebalance_timeout_ms": 60_000, "topic_partitions": []}


async def test_topics_of_clients_with_prefixes_are_their_own(guarded: GroupFront) -> None:
    await guarded.create("a/orders")
    guarded.wall.now += 1
    await guarded.create("b/orders")
    async with client_of(guarded, "a", prefix="a/") as one, client_of(guarded, "b", prefix="b/") as two:
        for client, member in ((one, "m"), (two, "n")):
            joined = await join(client, member)
            assert (topics(joined), joined.member_epoch) == ([await id_of(client)], 1)


async def listed(client: GroupClient) -> list[str]:
    return [group.group_id for group in (await client.ask(ListGroupsRequest())).groups]


async def test_groups_of_clients_with_prefixes_are_their_own(guarded: GroupFront) -> None:
    """Also from those of clients without one, whatever they call their groups."""
    await guarded.create("a/orders", "b/orders")
    async with (
        client_of(guarded, "a", prefix="a/") as one,
        client_of(guarded, "a2", prefix="a/") as same,
        client_of(guarded, "b", prefix="b/") as two,
        guarded.connected() as plain,
    ):
        assert [await client.commit(offset) for client, offset in ((one, 5), (two, 6), (plain, 7))] == [0, 0, 0]
        found = [(await client.committed()).committed_offset for client in (one, same, two, plain)]
        assert found == [5, 5, 6, 7]
        await two.commit(8, group="h")
        assert [await listed(client) for client in (one, same, two, plain)] == [["g"], ["g"], ["g", "h"], ["g"]]
        joined = await one.join()
        assert (joined.error_code, len(joined.members)) == (0, 1)
        states = [
            (group.group_id, group.group_state)
            for client in (one, same, two, plain)
            for group in (await client.ask(DescribeGroupsRequest(groups=["g"]))).groups
        ]
        assert states == [("g", "CompletingRebalance")] * 2 + [("g", "Empty")] * 2
        everything = await two.ask(OffsetFetchRequest(groups=[WantedGroup(group_id="g", topics=None)]))
        assert [topic.partitions[0].committed_offset for topic in everything.groups[0].topics] == [6]
        topic = OffsetDeleteTopic(name="orders", partitions=[OffsetDeletePartition(partition_index=0)])
        assert (await two.ask(OffsetDeleteRequest(group_id="g", topics=[topic]))).topics[0].partitions[
            0
        ].error_code == 0
        assert [(await client.committed()).committed_offset for client in (same, two, plain)] == [5, -1, 7]
        [deleted] = (await two.ask(DeleteGroupsRequest(groups_names=["g"]))).results
        assert (deleted.group_id, deleted.error_code) == ("g", 0)
        assert [await listed(client) for client in (one, two, plain)] == [["g"], ["h"], ["g"]]
        for client in (one, plain):
            assert await client.commit(1, group="\0b/\0h") == KafkaError.INVALID_GROUP_ID


async def test_groups_of_the_consumer_protocol_are_their_own(guarded: GroupFront) -> None:
    await guarded.create("a/orders", "b/orders")
    async with client_of(guarded, "a", prefix="a/") as one, client_of(guarded, "b", prefix="b/") as two:
        await join(one, "m")
        missing, found = [
            (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups[0] for client in (two, one)
        ]
        assert (missing.group_id, missing.error_code) == ("g", KafkaError.GROUP_ID_NOT_FOUND)
        assert (found.group_id, [member.member_id for member in found.members]) == ("g", ["m"])
        assert (await listed(one), await listed(two)) == (["g"], [])
        assert await one.commit(5, member_id="m", generation_id=1) == 0
        assert await two.commit(6) == 0, "it has no members there"


async def test_transactional_ids_of_clients_with_prefixes_are_their_own(guarded: GroupFront) -> None:
    """A producer does not fence that of another client, and commits offsets of its own groups."""
    await guarded.create("a/orders", "b/orders")
    async with (
        client_of(guarded, "a", prefix="a/") as one,
        client_of(guarded, "b", prefix="b/") as two,
        guarded.connected() as plain,
    ):
        whos = []
        clients = (one, two, plain)
        for client in clients:
            while True:
                begun = await client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
                if begun.error_code != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await trio.sleep(0.1)
            assert (begun.error_code, begun.producer_epoch) == (0, 0)
            who = {"producer_id": begun.producer_id, "producer_epoch": 0, "transactional_id": "x"}
            whos.append(who)
        for offset, client, who in zip((5, 6, 7), clients, whos, strict=True):
            assert (await client.ask(AddOffsetsToTxnRequest(**who, group_id="g"))).error_code == 0
            offsets = [TxnOffsets(name="orders", partitions=[TxnOffset(partition_index=0, committed_offset=offset)])]
            done = await client.ask(TxnOffsetCommitRequest(**who, group_id="g", topics=offsets))
            assert done.topics[0].partitions[0].error_code == 0
        for client, who in zip(clients, whos, strict=True):
            listed = (await client.ask(ListTransactionsRequest())).transaction_states
            assert [(one.transactional_id, one.producer_id) for one in listed] == [("x", who["producer_id"])]
            describing = DescribeTransactionsRequest(transactional_ids=["x", "absent"])
            described = (await client.ask(describing)).transaction_states
            assert [one.producer_id for one in described] == [who["producer_id"], -1]
            assert described[1].error_code == KafkaError.TRANSACTIONAL_ID_NOT_FOUND
        forged = whos[0] | {"transactional_id": "\0a/\0x"}
        assert (await plain.ask(EndTxnRequest(**forged, committed=True))).error_code == (
            KafkaError.INVALID_PRODUCER_ID_MAPPING
        )
        for client, who in zip(clients, whos, strict=True):
            assert (await client.ask(EndTxnRequest(**who, committed=True))).error_code == 0
        assert [(await client.committed()).committed_offset for client in clients] == [5, 6, 7]
