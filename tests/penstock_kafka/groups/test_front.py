"""Groups over connections, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.kafka.group_front import GroupClient, GroupFront, running, through_unlisted
from support.store import BASIN, Wall
from trio.testing import MockClock

from penstock.core.back import BackWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.table_operations import UpdateTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataRequestTopic
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupMember,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetsToCommit,
    OffsetToCommit,
    WantedGroup,
    WantedOffsets,
)

DAY = 86_400_000


@pytest.fixture
async def client(front: GroupFront) -> AsyncIterator[GroupClient]:
    async with front.connected() as found:
        yield found


async def stable(client: GroupClient) -> dict[str, Any]:
    """Join the group alone and become stable; return what a commit says of the member."""
    joined = await client.join()
    assert (await client.sync(joined, {joined.member_id: b"mine"})).assignment == b"mine"
    return {"member_id": joined.member_id, "generation_id": joined.generation_id}


def heartbeat(member: dict[str, Any]) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", **member)


# ---- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_the_gateway_coordinates_every_group(clock: MockClock, client: GroupClient, version: int) -> None:
    found = await client.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]), version)
    for one in found.coordinators if version >= 4 else [found]:
        assert (one.node_id, one.host, one.port, one.error_code) == (1, "127.0.0.1", 9092, 0)


async def test_the_gateway_coordinates_groups_and_transactions(clock: MockClock, client: GroupClient) -> None:
    for kind, error in ((0, KafkaError.NONE), (1, KafkaError.NONE), (2, KafkaError.INVALID_REQUEST)):
        assert (await client.ask(FindCoordinatorRequest(key="t", key_type=kind), 3)).error_code == error


@pytest.mark.parametrize("version", range(10))
async def test_two_members_share_a_group(clock: MockClock, front: GroupFront, version: int) -> None:
    async with front.connected() as one, front.connected() as two:
        answers: dict[str, Any] = {}

        async def join(name: str, client: GroupClient) -> None:
            joined = await client.join(version=version)
            leads = joined.leader == joined.member_id
            given = {member.member_id: member.member_id.encode() for member in joined.members}
            assert bool(given) == leads
            answers[name] = joined, await client.sync(joined, given)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, "one", one)
            nursery.start_soon(join, "two", two)
        for joined, synced in answers.values():
            assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
            assert synced.assignment == joined.member_id.encode()
        assert {joined.member_id.split("-")[0] for joined, _ in answers.values()} == {"test"}


async def test_a_client_that_waits_is_not_in_the_way_of_another_on_its_own_connection(
    clock: MockClock, front: GroupFront
) -> None:
    async with front.connected() as one, front.connected() as two, trio.open_nursery() as nursery:
        nursery.start_soon(one.join)
        await trio.sleep(1)
        listed = await two.ask(ListGroupsRequest())
        assert [(group.group_id, group.group_state) for group in listed.groups] == [("g", "PreparingRebalance")]


async def test_a_member_whose_connection_breaks_while_it_waits_expires(
    clock: MockClock, front: GroupFront, client: GroupClient
) -> None:
    member = await stable(client)
    async with front.connected() as other, trio.open_nursery() as nursery:
        nursery.start_soon(other.join)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert (await client.ask(heartbeat(member))).error_code == KafkaError.REBALANCE_IN_PROGRESS
    joined = await client.join(member=member["member_id"])
    assert (joined.generation_id, len(joined.members)) == (2, 2)
    await client.sync(joined, {})
    for _ in range(3):
        await trio.sleep(5)
        beat = await client.ask(heartbeat({**member, "generation_id": 2}))
    assert beat.error_code == KafkaError.REBALANCE_IN_PROGRESS, "the other one's session is over"


async def test_no_member_expires_because_the_gateway_was_paused(clock: MockClock, client: GroupClient) -> None:
    """Its heartbeats of that time are read first; without one it expires."""
    member = await stable(client)
    for _ in range(3):
        clock.jump(60)
        assert (await client.ask(heartbeat(member))).error_code == KafkaError.NONE
        await trio.sleep(5)
    clock.jump(60)
    await trio.sleep(5)
    assert (await client.ask(heartbeat(member))).error_code == KafkaError.UNKNOWN_MEMBER_ID


async def test_members_that_wait_are_sent_away_by_a_drain(clock: MockClock, front: GroupFront) -> None:
    async with front.connected() as client:
        found = []

        async def join() -> None:
            found.append(await client.join())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            await trio.sleep(1)
            front.front.drain()
        assert found[0].error_code == KafkaError.COORDINATOR_NOT_AVAILABLE


async def test_members_leave_one_by_one_and_together(clock: MockClock, client: GroupClient) -> None:
    member = await stable(client)
    left = await client.ask(LeaveGroupRequest(group_id="g", member_id="stranger"), 2)
    assert left.error_code == KafkaError.UNKNOWN_MEMBER_ID
    leaving = [LeaveGroupMember(member_id=one) for one in (member["member_id"], "stranger")]
    left = await client.ask(LeaveGroupRequest(group_id="g", members=leaving))
    assert [one.error_code for one in left.members] == [0, KafkaError.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("group", ["", "a\0b", "x" * 1025])
async def test_names_of_groups_have_bounds(clock: MockClock, client: GroupClient, group: str) -> None:
    assert (await client.join(group)).error_code == KafkaError.INVALID_GROUP_ID
    assert await client.commit(1, group=group) == KafkaError.INVALID_GROUP_ID


# ---- committed offsets -----------------------------------------------------------------------------------------------


async def test_members_commit_and_fetch_offsets(clock: MockClock, front: GroupFront, client: GroupClient) -> None:
    await front.create("set/0", "set/1")
    member = await stable(client)
    assert await client.commit(5, text="here", **member) == 0
    assert await client.commit(7, 1, "set", **member) == 0
    found = await client.committed()
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "here", 0)
    assert (await client.committed(1, "set")).committed_offset == 7
    assert (await client.committed(0, "set")).committed_offset == -1
    assert (await client.committed(0, "missing")).committed_offset == -1
    assert (await client.committed(group="h")).committed_offset == -1


@pytest.mark.parametrize("version", range(1, 8))
async def test_older_clients_fetch_offsets_of_one_group(clock: MockClock, client: GroupClient, version: int) -> None:
    await client.commit(5)
    wanted = [WantedOffsets(name="orders", partition_indexes=[0, 1])]
    found = await client.ask(OffsetFetchRequest(group_id="g", topics=wanted), version)
    assert [one.committed_offset for one in found.topics[0].partitions] == [5, -1]
    if version >= 2:
        everything = await client.ask(OffsetFetchRequest(group_id="g", topics=None), version)
        assert [(one.name, len(one.partitions)) for one in everything.topics] == [("orders", 1)]


@pytest.mark.parametrize(
    ("offset", "text", "partition", "error"),
    [
        (-1, "", 0, KafkaError.OFFSET_OUT_OF_RANGE),
        (1, "x" * 4097, 0, KafkaError.OFFSET_METADATA_TOO_LARGE),
        (1, "x" * 4096, 0, KafkaError.NONE),
        (1, "", 1, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_offsets_that_cannot_be_are_refused(
    clock: MockClock, client: GroupClient, offset: int, text: str, partition: int, error: KafkaError
) -> None:
    assert await client.commit(offset, partition, text=text) == error
    assert (await client.committed(partition)).committed_offset == (-1 if error else offset)


async def test_one_wrong_partition_does_not_spoil_the_others(clock: MockClock, client: GroupClient) -> None:
    partitions = [OffsetToCommit(partition_index=one, committed_offset=3) for one in (1, 0)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetsToCommit(name="orders", partitions=partitions)])
    found = (await client.ask(request)).topics[0].partitions
    assert [one.error_code for one in found] == [KafkaError.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert (await client.committed()).committed_offset == 3


async def test_only_members_of_the_generation_commit(clock: MockClock, client: GroupClient) -> None:
    member = await stable(client)
    assert await client.commit(1, **{**member, "generation_id": 9}) == KafkaError.ILLEGAL_GENERATION
    assert await client.commit(1) == KafkaError.UNKNOWN_MEMBER_ID
    assert (await client.committed()).committed_offset == -1


async def test_offsets_of_a_stream_that_was_created_again_are_not_served(
    clock: MockClock, front: GroupFront, client: GroupClient
) -> None:
    await client.commit(5)
    await front.delete("orders")
    front.wall.now += 1
    await front.create("orders")
    assert (await client.committed()).committed_offset == -1
    assert await client.commit(2) == 0
    assert (await client.committed()).committed_offset == 2


async def test_an_offset_is_served_while_its_stream_is_not_listed(clock: MockClock, front: GroupFront) -> None:
    """Without an offset a consumer starts again as for a new group, in silence."""
    async with through_unlisted(front) as (found, back), found.connected() as client:
        await client.commit(5)
        back.hidden = True
        assert (await client.committed()).committed_offset == 5
        back.denied = {"orders"}
        assert (await client.committed()).committed_offset == 5, "it may be of the stream orders/0"
        back.denied = {"orders", "orders/0"}
        assert (await client.committed()).error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED
        topic = OffsetDeleteTopic(name="orders", partitions=[OffsetDeletePartition(partition_index=0)])
        deleted = (await client.ask(OffsetDeleteRequest(group_id="g", topics=[topic]))).topics
        assert deleted[0].partitions[0].error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("code", [FailureCode.UNAVAILABLE, FailureCode.HOT_SERVER, FailureCode.LIMIT_EXCEEDED])
async def test_offsets_are_served_while_the_server_of_the_topics_is_away(
    clock: MockClock, front: GroupFront, code: FailureCode
) -> None:
    """Errors of partitions are final for consumers."""
    await front.create("set/1", "set/0")
    async with through_unlisted(front) as (found, back), found.connected() as client:
        assert [await client.commit(5), await client.commit(6, 1, "set")] == [0, 0]
        back.failure = code
        assert [(await client.committed(*one)).committed_offset for one in ((), (1, "set"), (0, "set"))] == [5, 6, -1]
        assert await client.commit(7) == KafkaError.COORDINATOR_NOT_AVAILABLE
        back.denied = {"set/1"}
        assert (await client.committed(1, "set")).error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED
        back.failure = None
        assert await client.commit(7) == 0


async def test_a_request_by_ids_is_repeated_while_the_server_of_the_topics_is_away(
    clock: MockClock, front: GroupFront
) -> None:
    async with through_unlisted(front) as (found, back), found.connected() as client:
        of = await id_of(client)
        await commit_by_id(client, 7, of)
        back.failure = FailureCode.UNAVAILABLE
        wanted = [WantedOffsets(topic_id=of, partition_indexes=[0])]
        for topics in (wanted, None):
            request = OffsetFetchRequest(groups=[WantedGroup(group_id="g", topics=topics)])
            [group] = (await client.ask(request, 10)).groups
            assert (group.error_code, group.topics) == (KafkaError.COORDINATOR_NOT_AVAILABLE, ())
        assert await commit_by_id(client, 8, of) == [(of, KafkaError.COORDINATOR_NOT_AVAILABLE)]


async def test_groups_and_offsets_survive_a_restart(clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path) as front, front.connected() as client:
        member = await stable(client)
        assert await client.commit(5, **member) == 0
    async with running(tmp_path) as front, front.connected() as client:
        assert (await client.ask(heartbeat(member))).error_code == 0
        assert (await client.committed()).committed_offset == 5
        assert await client.commit(6, **member) == 0
        await trio.sleep(11)
        assert (await client.ask(heartbeat(member))).error_code == KafkaError.UNKNOWN_MEMBER_ID
    async with running(tmp_path) as front, front.connected() as client:
        described = await client.ask(DescribeGroupsRequest(groups=["g"]))
        assert described.groups[0].group_state == "Empty"
        assert (await client.committed()).committed_offset == 6


async def test_commits_that_cannot_be_stored_are_not_acknowledged(clock: MockClock, front: GroupFront) -> None:
    class Full(BackWrapper):
        async def perform(self, operation: Any) -> Any:
            if isinstance(operation, UpdateTable):
                raise fail(FailureCode.STORAGE, "the disk is full")
            return await super().perform(operation)

    broken = GroupFront(front.back, front.wall, Full(front.back))
    async with trio.open_nursery() as nursery:
        await nursery.start(broken.front.groups.run)
        async with broken.connected() as client:
            assert await client.commit(5) == KafkaError.COORDINATOR_NOT_AVAILABLE
            joined = await client.join()
            synced = await client.sync(joined, {joined.member_id: b"mine"})
            assert synced.error_code == KafkaError.UNKNOWN_SERVER_ERROR
        nursery.cancel_scope.cancel()
    async with front.connected() as client:
        assert (await client.committed()).committed_offset == -1


async def test_clients_come_back_while_groups_are_loaded(clock: MockClock, front: GroupFront) -> None:
    loading = GroupFront(front.back, front.wall)
    async with loading.connected() as client:
        assert await client.commit(5) == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.join()).error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.ask(ListGroupsRequest())).error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS


# ---- administration --------------------------------------------------------------------------------------------------


async def test_groups_are_listed_by_state_and_type(clock: MockClock, client: GroupClient) -> None:
    await stable(client)
    await client.commit(1, group="simple")
    listed = (await client.ask(ListGroupsRequest())).groups
    assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed] == [
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
    ]
    stable_ones = (await client.ask(ListGroupsRequest(states_filter=["stable"]))).groups
    assert [one.group_id for one in stable_ones] == ["g"]
    assert (await client.ask(ListGroupsRequest(types_filter=["consumer"]))).groups == ()


async def test_a_group_is_described_with_its_members(clock: MockClock, client: GroupClient) -> None:
    member = await stable(client)
    found, missing = (await client.ask(DescribeGroupsRequest(groups=["g", "h"]))).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    [one] = found.members
    assert (one.member_id, one.client_id, one.member_assignment) == (member["member_id"], "test", b"mine")
    assert b"orders" in one.member_metadata
    assert (missing.group_state, missing.error_code) == ("Dead", KafkaError.GROUP_ID_NOT_FOUND)
    older = (await client.ask(DescribeGroupsRequest(groups=["h"]), 5)).groups[0]
    assert (older.group_state, older.error_code) == ("Dead", 0)


async def test_a_deleted_group_has_no_offsets(clock: MockClock, client: GroupClient) -> None:
    member = await stable(client)
    await client.commit(5, **member)
    deleted = (await client.ask(DeleteGroupsRequest(groups_names=["g", "h"]))).results
    assert [one.error_code for one in deleted] == [KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_ID_NOT_FOUND]
    await client.ask(LeaveGroupRequest(group_id="g", members=[LeaveGroupMember(member_id=member["member_id"])]))
    await trio.sleep(60)
    assert (await client.committed()).committed_offset == 5
    [deleted] = (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results
    assert deleted.error_code == 0
    assert (await client.committed()).committed_offset == -1
    assert (await client.ask(ListGroupsRequest())).groups == ()


async def test_offsets_are_deleted_unless_members_use_them(
    clock: MockClock, front: GroupFront, client: GroupClient
) -> None:
    await front.create("other")
    member = await stable(client)
    for topic in ("orders", "other"):
        assert await client.commit(5, topic=topic, **member) == 0
    topics = [
        OffsetDeleteTopic(name=name, partitions=[OffsetDeletePartition(partition_index=0)])
        for name in ("orders", "other")
    ]
    found = await client.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    assert [one.partitions[0].error_code for one in found.topics] == [KafkaError.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert (await client.committed()).committed_offset == 5
    assert (await client.committed(topic="other")).committed_offset == -1
    missing = await client.ask(OffsetDeleteRequest(group_id="h", topics=topics))
    assert missing.error_code == KafkaError.GROUP_ID_NOT_FOUND


# ---- expiry ----------------------------------------------------------------------------------------------------------


async def test_offsets_of_a_group_without_members_expire(
    clock: MockClock, front: GroupFront, client: GroupClient
) -> None:
    await front.create("other")
    await client.commit(1)
    front.wall.now += 5 * DAY
    await client.commit(2, topic="other")
    front.wall.now += 3 * DAY
    await front.front.groups.sweep()
    assert (await client.committed()).committed_offset == -1
    assert (await client.committed(topic="other")).committed_offset == 2
    front.wall.now += 5 * DAY
    await front.front.groups.sweep()
    assert (await client.ask(ListGroupsRequest())).groups == ()


async def test_no_offsets_expire_by_a_clock_that_is_wrong_at_the_start(clock: MockClock, tmp_path: Path) -> None:
    wall = Wall()
    async with running(tmp_path, wall) as front, front.connected() as client:
        await client.commit(1)
    wall.now += 365 * DAY
    async with running(tmp_path, wall) as front:
        await trio.sleep(60)
        for moved, expected in ((-365, 1), (8, -1)):
            wall.now += moved * DAY
            await trio.sleep(3600)
            async with front.connected() as client:
                assert (await client.committed()).committed_offset == expected


async def test_offsets_expire_only_after_the_last_member_has_left(
    clock: MockClock, front: GroupFront, client: GroupClient
) -> None:
    member = await stable(client)
    await client.commit(1, **member)
    front.wall.now += 30 * DAY
    for _ in range(100):
        await trio.sleep(8)
        assert (await client.ask(heartbeat(member))).error_code == 0
    assert (await client.committed()).committed_offset == 1
    await trio.sleep(120)  # the session is over, and the group empty
    front.wall.now += 6 * DAY
    await front.front.groups.sweep()
    assert (await client.committed()).committed_offset == 1
    front.wall.now += 2 * DAY
    await front.front.groups.sweep()
    assert (await client.committed()).committed_offset == -1


# ---- permissions -----------------------------------------------------------------------------------------------------


async def test_groups_are_for_clients_that_may_read(clock: MockClock, front: GroupFront) -> None:
    class Closed(BackWrapper):
        def require_some(self, basin: str, prefix: str, needs: Any) -> None:
            assert (basin, prefix) == (BASIN, "")
            raise fail(FailureCode.PERMISSION_DENIED, "no")

        def require(self, stream: Any, needs: Any) -> None:
            raise fail(FailureCode.PERMISSION_DENIED, "no")

    closed = GroupFront(front.back, Wall(), Closed(front.back))
    async with trio.open_nursery() as nursery:
        await nursery.start(closed.front.groups.run)
        async with closed.connected() as client:
            assert (await client.join()).error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
            assert (await client.ask(ListGroupsRequest())).error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
            assert await client.commit(1) == KafkaError.GROUP_AUTHORIZATION_FAILED
            wanted = [WantedGroup(group_id="g", topics=[WantedOffsets(name="orders", partition_indexes=[0])])]
            [fetched] = (await client.ask(OffsetFetchRequest(groups=wanted))).groups
            assert fetched.error_code == KafkaError.GROUP_AUTHORIZATION_FAILED
        nursery.cancel_scope.cancel()


# ---- topics by their ids ---------------------------------------------------------------------------------------------


async def id_of(client: GroupClient, topic: str = "orders") -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found: bytes = (await client.ask(request)).topics[0].topic_id
    return found


async def commit_by_id(client: GroupClient, offset: int, *topics: bytes) -> list[tuple[bytes, int]]:
    """Commit an offset of partition 0 of each topic; return their ids and errors."""
    one = OffsetToCommit(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetsToCommit(topic_id=topic, partitions=[one]) for topic in topics]
    )
    found = (await client.ask(request, 10)).topics
    return [(topic.topic_id, topic.partitions[0].error_code) for topic in found]


async def fetch_by_id(client: GroupClient, *topics: bytes) -> dict[bytes, tuple[int, int]]:
    """Return the offset and the error of partition 0 of each topic; without topics, of all of them."""
    wanted = [WantedOffsets(topic_id=topic, partition_indexes=[0]) for topic in topics] or None
    [group] = (await client.ask(OffsetFetchRequest(groups=[WantedGroup(group_id="g", topics=wanted)]), 10)).groups
    assert group.error_code == 0
    return {
        topic.topic_id: (topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in group.topics
    }


async def test_offsets_by_the_ids_of_topics(clock: MockClock, front: GroupFront) -> None:
    unknown = b"x" * 16
    async with front.connected() as client:
        of = await id_of(client)
        assert await commit_by_id(client, 7, unknown, of) == [(of, 0), (unknown, KafkaError.UNKNOWN_TOPIC_ID)]
        assert await fetch_by_id(client, of, unknown) == {of: (7, 0), unknown: (-1, KafkaError.UNKNOWN_TOPIC_ID)}
        assert await fetch_by_id(client) == {of: (7, 0)}
        assert (await client.committed()).committed_offset == 7, "by name too"


async def test_an_id_of_a_topic_that_was_created_again_is_not_known(clock: MockClock, front: GroupFront) -> None:
    """So a member cannot commit an offset of the topic that is gone."""
    async with front.connected() as client:
        old = await id_of(client)
        await commit_by_id(client, 7, old)
        await front.delete("orders")
        assert await fetch_by_id(client) == {}
        await trio.sleep(0.01)
        front.wall.now += 1
        await front.create("orders")
        assert await commit_by_id(client, 8, old) == [(old, KafkaError.UNKNOWN_TOPIC_ID)]
        new = await id_of(client)
        assert await fetch_by_id(client, new, old) == {new: (-1, 0), old: (-1, KafkaError.UNKNOWN_TOPIC_ID)}
