"""Groups of the consumer protocol over connections, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.kafka.group_front import GroupClient, GroupFront, running, through_unlisted
from support.store import Wall
from trio.testing import MockClock

from penstock.core.back import Back
from penstock.core.permissions import Permission
from penstock.model.failures import FailureCode, fail
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.consumer_group_messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock_kafka.codec.group_messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    WantedGroup,
    WantedOffsets,
)
from penstock_kafka.groups.messages import GroupLimits

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
    assert (await client.ask(ListGroupsRequest(types_filter=["classic"]))).groups == ()
    assert (await client.ask(DescribeGroupsRequest(groups=["g"]))).groups[0].error_code == (
        KafkaError.GROUP_ID_NOT_FOUND
    )
    found, missing = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g", "none"]))).groups
    assert missing.error_code == KafkaError.GROUP_ID_NOT_FOUND
    [member] = found.members
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 1, "uniform")
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names, member.member_type) == (
        *("m", 1, ("orders",), 1),
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
        (KafkaError.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "(a.*"}),
        (KafkaError.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": r"(a)\1"}),
        (KafkaError.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "a" * 20_000}),
        (KafkaError.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "((a{100}){100}){100}"}),
        (KafkaError.UNSUPPORTED_ASSIGNOR, {"server_assignor": "sticky"}),
        (KafkaError.INVALID_REQUEST, {}),
    ):
        assert (await beat(client, 0, **more)).error_code == error
    assert (await beat(client, 3)).error_code == KafkaError.UNKNOWN_MEMBER_ID


# ---- a server that is away -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 3.0], ids=["fails at once", "fails late"])
async def test_heartbeats_count_while_the_server_of_the_topics_is_away(
    clock: MockClock, front: GroupFront, seconds: float
) -> None:
    """Members keep what they have, and are not expelled. One that has joined meanwhile gets its topics later."""
    names = [f"t{one}" for one in range(20)]
    await front.create(*names)
    async with through_unlisted(front) as (found, back), found.connected() as client:
        assert numbers(await join(client, "m", "orders", "none", *names)) == [0] * 21
        back.failure, back.seconds = FailureCode.UNAVAILABLE, seconds
        for _ in range(20):
            await trio.sleep(5)
            beaten = await beat(client, 1)
            assert (beaten.error_code, beaten.member_epoch, numbers(beaten)) == (0, 1, None)
        async with found.connected() as other:
            joined = await join(other, "n", "new")
            assert (joined.error_code, numbers(joined)) == (0, [])
            back.failure = None
            await front.create("new")
            await trio.sleep(5)
            assert numbers(await beat(other, joined.member_epoch, "n")) == [0]


async def test_members_with_an_expression_stay_while_the_server_is_away(clock: MockClock, front: GroupFront) -> None:
    async with through_unlisted(front) as (found, back), found.connected() as client:
        assert await assigned(client, await subscribe(client, "orders.*")) == {"orders": [0]}
        back.failure = FailureCode.UNAVAILABLE
        for _ in range(20):
            await trio.sleep(5)
            assert (await beat(client, 1)).error_code == 0
        assert (await subscribe(client, "orders.*", "n")).error_code == 0, "as the first one has found it"
        unknown = await subscribe(client, "other.*", "o")
        assert unknown.error_code == KafkaError.COORDINATOR_NOT_AVAILABLE


async def test_a_group_goes_on_after_a_restart_though_the_server_is_away(clock: MockClock, front: GroupFront) -> None:
    async with front.connected() as client:
        assert numbers(await join(client, "m", "orders", "none")) == [0]
        assert (await subscribe(client, "o.*", "n")).member_epoch == 2
    async with through_unlisted(front) as (found, back), found.connected() as client:
        back.failure = FailureCode.UNAVAILABLE
        assert [(await beat(client, *who)).error_code for who in ((1, "m"), (2, "n"))] == [0, 0]
        [group] = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
        assert [one.topic_name for one in group.members[0].target_assignment.topic_partitions] == ["orders"]


# ---- regular expressions ---------------------------------------------------------------------------------------------


async def subscribe(client: GroupClient, expression: str, member: str = "m") -> ConsumerGroupHeartbeatResponse:
    options = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": expression, "topic_partitions": []}
    return await beat(client, 0, member, **options)


async def assigned(client: GroupClient, answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
    """Return the partitions in an answer by the names of their topics."""
    assert (answer.error_code, answer.assignment is None) == (0, False), answer
    [found] = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
    names = {
        topic.topic_id: topic.topic_name for member in found.members for topic in member.assignment.topic_partitions
    }
    assert answer.assignment is not None
    return {names[topic.topic_id]: list(topic.partitions) for topic in answer.assignment.topic_partitions}


async def test_topics_are_matched_whole(clock: MockClock, client: GroupClient, front: GroupFront) -> None:
    await front.create("orders-eu", "old-orders", "orders.us/1", "orders.us/0")
    assert await assigned(client, await subscribe(client, r"orders(-eu|\.us)?")) == {
        "orders": [0],
        "orders-eu": [0],
        "orders.us": [0, 1],
    }
    [found] = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
    assert [one.subscribed_topic_regex for one in found.members] == [r"orders(-eu|\.us)?"]


async def test_topics_that_match_later_are_assigned(clock: MockClock, client: GroupClient, front: GroupFront) -> None:
    """And those that are deleted are not any more."""
    assert await assigned(client, await subscribe(client, "orders.*")) == {"orders": [0]}
    await front.create("orders-new")
    assert numbers(await beat(client, 1)) is None
    await trio.sleep(5)
    assert set(await assigned(client, await beat(client, 1))) == {"orders", "orders-new"}
    await front.delete("orders")
    await trio.sleep(5)
    assert set(await assigned(client, await beat(client, 2))) == {"orders-new"}


async def test_a_member_changes_its_expression(clock: MockClock, client: GroupClient, front: GroupFront) -> None:
    await front.create("other", "third")
    assert set(await assigned(client, await subscribe(client, "orders|other"))) == {"orders", "other"}
    told = await beat(client, 1, subscribed_topic_regex="other")
    assert set(await assigned(client, told)) == {"other"}
    assert told.assignment is not None
    given_up = await beat(client, 1, topic_partitions=told.assignment.topic_partitions)
    assert given_up.member_epoch == 2
    named = await beat(client, 2, subscribed_topic_regex="", subscribed_topic_names=["third"])
    assert numbers(named) == [], "what it has it gives up first"
    assert set(await assigned(client, await beat(client, 2, topic_partitions=[]))) == {"third"}


async def test_names_and_an_expression_are_one_subscription(
    clock: MockClock, client: GroupClient, front: GroupFront
) -> None:
    await front.create("other", "third")
    both = {"subscribed_topic_names": ["third"], "subscribed_topic_regex": "o.*"}
    answer = await beat(client, 0, rebalance_timeout_ms=60_000, topic_partitions=[], **both)
    assert set(await assigned(client, answer)) == {"orders", "other", "third"}


async def test_a_client_gets_only_topics_that_it_may_read(
    clock: MockClock, client: GroupClient, front: GroupFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_back: Back, stream: StreamRef, _needs: frozenset[Permission]) -> None:
        if stream.stream == "secret":
            raise fail(FailureCode.PERMISSION_DENIED, "no")

    await front.create("secret", "shown")
    monkeypatch.setattr(type(front.back), "require", denied)
    assert set(await assigned(client, await subscribe(client, "s.*"))) == {"shown"}


async def test_an_expression_takes_linear_time(clock: MockClock, client: GroupClient, front: GroupFront) -> None:
    """One that takes a backtracking matcher longer than the test may last."""
    await front.create("a" * 200)
    assert set(await assigned(client, await subscribe(client, "(a|aa|a?)*" * 20 + "a"))) == {"a" * 200}
    assert (await subscribe(client, "(a+a+)+b")).error_code == 0


async def test_a_member_with_an_expression_goes_on_after_a_restart(clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path) as front, front.connected() as client:
        assert await assigned(client, await subscribe(client, "orders.*")) == {"orders": [0]}
    async with running(tmp_path) as front, front.connected() as client:
        await front.create("orders-new")
        assert set(await assigned(client, await beat(client, 1))) == {"orders", "orders-new"}


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
        assert owned is not None and [*owned.topic_partitions[0].partitions] == kept
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


# ---- groups that are too large to be stored --------------------------------------------------------------------------


async def test_a_group_that_could_not_be_stored_refuses_the_member(clock: MockClock, front: GroupFront) -> None:
    """The others go on as before, and so do other groups, whose changes are stored with those of this one."""
    front.front.settings.groups = GroupLimits(max_group_bytes=4 << 20)
    names = [f"{one:0220}" for one in range(1000)]
    async with front.connected() as client, front.connected() as other, front.connected() as last:
        for number in range(4):
            joined = await join(client, f"m{number}", "orders", *names)
            assert (joined.error_code, joined.member_epoch) == (0, number + 1)
        refused: list[ConsumerGroupHeartbeatResponse] = []
        committed: list[int] = []

        async def join_too() -> None:
            refused.append(await join(other, "m4", "orders", *names))

        async def commit() -> None:
            committed.append(await last.commit(1, group="h"))

        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(join_too)
                for _ in range(10):
                    await commit()
        assert set(committed) == {0}
        assert [one.error_code for one in refused] == [KafkaError.GROUP_MAX_SIZE_REACHED] * 2
        beaten = await beat(client, 4, "m3")
        assert (beaten.error_code, beaten.member_epoch, numbers(beaten)) == (0, 4, None)
        [group] = (await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
        assert (len(group.members), group.group_epoch) == (4, 4)
        assert (await beat(client, 4, "m3", subscribed_topic_names=["orders"])).error_code == 0
        assert (await join(client, "m4", "orders", *names)).error_code == 0, "now there is room"


async def test_a_new_group_that_could_not_be_stored_does_not_exist(clock: MockClock, front: GroupFront) -> None:
    front.front.settings.groups = GroupLimits(max_group_bytes=4 << 20)
    async with front.connected() as client:
        names = [f"{one:0220}" for one in range(5000)]
        assert (await join(client, "m", *names)).error_code == KafkaError.GROUP_MAX_SIZE_REACHED
        assert (await beat(client, 1)).error_code == KafkaError.UNKNOWN_MEMBER_ID
        assert (await join(client)).error_code == 0


async def test_no_member_expires_because_the_gateway_was_paused(clock: MockClock, client: GroupClient) -> None:
    joined = await join(client)
    for _ in range(3):
        clock.jump(60)
        assert (await beat(client, joined.member_epoch)).error_code == KafkaError.NONE
        await trio.sleep(5)
