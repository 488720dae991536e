"""Groups of the consumer protocol over connections, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.kafka.group_front import GroupClient, GroupFront, running
from support.store import Wall
from trio.testing import MockClock

from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock_codecs.kafka.group_messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    WantedGroup,
    WantedOffsets,
)

DAY = 86_400_000


@pytest.fixture
async def client(front: GroupFront) -> AsyncIterator[GroupClient]:
    async with front.connected() as found:
        yield found


async def beat(client: GroupClient, epoch: int, member: str = "m", **more: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **more)
    found: ConsumerGroupHeartbeatResponse = await client.ask(request)
    return found


async def join(client: GroupClient, member: str = "m", *topics: str) -> ConsumerGroupHeartbeatResponse:
    names = list(topics) or ["orders"]
    return await beat(client, 0, member, rebalance_timeout_ms=60_000, subscribed_topic_names=names, topic_partitions=[])


def numbers(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]


async def fetched(client: GroupClient, member: str | None, epoch: int) -> Any:
    wanted = WantedOffsets(name="orders", partition_indexes=[0])
    group = WantedGroup(group_id="g", member_id=member, member_epoch=epoch, topics=[wanted])
    [found] = (await client.ask(OffsetFetchRequest(groups=[group]))).groups
    return found.error_code or found.topics[0].partitions[0].committed_offset


async def test_a_member_joins_commits_and_leaves(clock: MockClock, client: GroupClient) -> None:
    joined = await join(client)
    assert (joined.error_code, joined.member_id, joined.member_epoch, numbers(joined)) == (0, "m", 1, [0])
    assert joined.heartbeat_interval_ms == 5000
    assert numbers(await beat(client, 1)) is None
    assert await client.commit(7, member_id="m", generation_id=1) == 0
    assert await client.commit(8, member_id="m", generation_id=0) == KafkaError.STALE_MEMBER_EPOCH
    assert await client.commit(8, member_id="n", generation_id=1) == KafkaError.UNKNOWN_MEMBER_ID
    assert await client.commit(8) == KafkaError.UNKNOWN_MEMBER_ID, "a client without a group"
    assert [await fetched(client, *who) for who in ((None, -1), ("m", 1), ("m", 5), ("n", 1))] == [
        *(7, 7),
        *(KafkaError.STALE_MEMBER_EPOCH, KafkaError.UNKNOWN_MEMBER_ID),
    ]
    assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == (
        KafkaError.NON_EMPTY_GROUP
    )
    assert (await beat(client, -1)).member_epoch == -1
    assert await client.commit(9) == 0
    assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0


async def test_a_group_is_of_the_protocol_of_its_members(clock: MockClock, client: GroupClient) -> None:
    await join(client)
    assert (await client.join()).error_code == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    await beat(client, -1)
    classic = await client.join()
    assert classic.error_code == 0
    refused = await join(client)
    assert (refused.error_code, "classic protocol" in (refused.error_message or "")) == (
        KafkaError.GROUP_ID_NOT_FOUND,
        True,
    )


async def test_groups_are_listed_and_described(clock: MockClock, client: GroupClient, front: GroupFront) -> None:
    await join(client)
    [listed] = (await client.ask(ListGroupsRequest())).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        *("g", "consumer", "Stable", "consumer"),
    )
    assert (await client.ask(ListGroupsRequest(types_filter=["classic"]))).groups == []
    assert (await client.ask(DescribeGroupsRequest(groups=["g"]))).groups[0].error_code == (
        KafkaError.GROUP_ID_NOT_FOUND
    )
    found, missing = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g", "none"]))).groups
    assert missing.error_code == KafkaError.GROUP_ID_NOT_FOUND
    [member] = found.members
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 1, "uniform")
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names, member.member_type) == (
        *("m", 1, ["orders"], 1),
    )
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == "orders"


async def test_topics_that_are_created_later_are_assigned(
    clock: MockClock, client: GroupClient, front: GroupFront
) -> None:
    """By clients of any protocol; the coordinator looks every 5 seconds."""
    assert numbers(await join(client, "m", "orders", "new")) == [0]
    await front.create("new/1", "new/0")
    assert numbers(await beat(client, 1)) is None
    await trio.sleep(5)
    assert sorted(numbers(await beat(client, 1)) or []) == [0, 0, 1]


async def test_what_is_refused(clock: MockClock, client: GroupClient) -> None:
    for error, more in (
        (KafkaError.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "a.*"}),
        (KafkaError.UNSUPPORTED_ASSIGNOR, {"server_assignor": "sticky"}),
        (KafkaError.INVALID_REQUEST, {}),
    ):
        assert (await beat(client, 0, **more)).error_code == error
    assert (await beat(client, 3)).error_code == KafkaError.UNKNOWN_MEMBER_ID


async def test_members_go_on_after_a_restart(clock: MockClock, tmp_path: Path) -> None:
    """In the epochs that they know, and without two members in one partition."""
    async with running(tmp_path) as front, front.connected() as client:
        await front.create("set/1", "set/0")
        assert numbers(await join(client, "m", "set")) == [0, 1]
        assert numbers(await join(client, "n", "set")) == []
        kept = numbers(await beat(client, 1, "m"))
    async with running(tmp_path) as front, front.connected() as client:
        assert await client.commit(1, topic="set", member_id="m", generation_id=1) == 0
        owned = (await beat(client, 1, "m")).assignment
        assert owned is not None and owned.topic_partitions[0].partitions == kept
        assert numbers(await beat(client, 2, "n")) == [], "the other one has not given it up"
        assert (await beat(client, 1, "m", topic_partitions=owned.topic_partitions)).member_epoch == 2
        assert numbers(await beat(client, 2, "n")) == [1 - (kept or [9])[0]]


async def test_offsets_are_kept_while_members_are_there(clock: MockClock, tmp_path: Path) -> None:
    wall = Wall()
    async with running(tmp_path, wall) as front, front.connected() as client:
        await join(client)
        await client.commit(7, member_id="m", generation_id=1)
        wall.now += 8 * DAY
        await front.front.groups.sweep()
        assert (await client.committed()).committed_offset == 7
        await beat(client, -1)
        wall.now += 6 * DAY
        await front.front.groups.sweep()
        assert (await client.committed()).committed_offset == 7, "seven days from the last member's leaving"
        wall.now += 2 * DAY
        await front.front.groups.sweep()
        assert (await client.committed()).committed_offset == -1
