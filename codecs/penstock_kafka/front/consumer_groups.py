"""APIs of the consumer group protocol (KIP-848)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio

from penstock.core.back import Back
from penstock.core.identity import Client
from penstock.core.permissions import READ
from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.limits.work import in_turns
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.consumer_group_messages import (
    AssignedTopic,
    ConsumerAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopic,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of, viewer
from penstock_kafka.front.groups import client_host
from penstock_kafka.groups.assignors import GroupTopic, OwnedPartition
from penstock_kafka.groups.epochs import EpochGroup, EpochHeartbeat, EpochMember
from penstock_kafka.groups.service import GroupService
from penstock_kafka.groups.subscriptions import topic_expression
from penstock_kafka.names import KafkaNames
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics

__all__ = ["ConsumerGroupHandlers"]

_OF_CONSUMERS: Final = 1
"""The type of a member that speaks this protocol."""
_MOST_LOOKED: Final = 100_000
_LOOK_SECONDS: Final = 5.0
"""Time for which what was found of a topic is used: clients of all protocols create and delete topics."""


_MOST_MATCHED: Final = 100
"""Most regular expressions of clients whose topics are remembered."""


class _Looked(msgspec.Struct):
    """A topic as a client has found it, None if it does not exist, and when. Not `seen`: the client may not see it, or
    its server did not answer."""

    topic: GroupTopic | None
    at: float
    seen: bool


class _Matched(msgspec.Struct):
    """The topics that matched a regular expression, and when."""

    topics: frozenset[str]
    at: float


class ConsumerGroupHandlers:
    """Handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(
        self,
        back: Back,
        names: KafkaNames,
        groups: GroupService,
        topics: KafkaTopics,
        ids: TopicIds,
        access: KafkaAccess,
    ) -> None:
        self._back = back
        self._names = names
        self._groups = groups
        self._topics = topics
        self._ids = ids
        self._access = access
        self._looked: dict[tuple[Client, str], _Looked] = {}
        self._matched: dict[tuple[Client, str], _Matched] = {}
        self.handlers: KafkaHandlers = {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            ConsumerGroupDescribeRequest: self._describe,
        }

    # ---- members -----------------------------------------------------------------------------------------------------

    async def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, call: KafkaCall
    ) -> ConsumerGroupHeartbeatResponse:
        is_new = request.member_epoch == 0
        error = await self._access.of(request.group_id, call, recently=True) if is_new else KafkaError.NONE
        if error := error or self._access.of_member(request.group_id, call):
            return ConsumerGroupHeartbeatResponse(error_code=error)
        subscribed = frozenset(request.subscribed_topic_names or ())
        if denied := [name async for name in call.each(sorted(subscribed)) if not self._may_read(name, call)]:
            reason = f"topic {denied[0]} may not be read"
            return ConsumerGroupHeartbeatResponse(
                error_code=KafkaError.TOPIC_AUTHORIZATION_FAILED, error_message=reason
            )
        group_id = key_of(request.group_id)
        group = self._groups.consumers.group(group_id)
        try:
            matched = await self._matching(request, group)
            wanted = subscribed | (matched or frozenset()) | (frozenset() if group is None else group.subscribed)
            topics = await self._existing(wanted, group_id)
        except ValueError as invalid:
            call.refusals += 1
            code = KafkaError.INVALID_REGULAR_EXPRESSION
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=str(invalid))
        except OperationFailed as failed:
            code = call.refused(failed.failure)
            if code is not KafkaError.TOPIC_AUTHORIZATION_FAILED:
                code = KafkaError.COORDINATOR_NOT_AVAILABLE
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=failed.failure.message)
        status = await self._groups.consumer_heartbeat(await _heartbeat_of(request, call, matched), topics)
        if status.error:
            call.refusals += 1
        assigned = None
        if status.assignment is not None:
            assigned = ConsumerAssignment(topic_partitions=_by_topic(status.assignment))
        return ConsumerGroupHeartbeatResponse(
            error_code=status.error,
            error_message=status.message,
            member_id=status.member,
            member_epoch=status.epoch,
            heartbeat_interval_ms=round(self._groups.consumer_heartbeat_seconds * 1000),
            assignment=assigned,
        )

    async def _matching(
        self, request: ConsumerGroupHeartbeatRequest, group: EpochGroup | None
    ) -> frozenset[str] | None:
        """Return the topics that match the regular expression of a member, and that its client may read; None if it has
        no expression, or leaves. While they cannot be listed, those that matched last. Raises ValueError for what is no
        regular expression, and OperationFailed if nothing has matched yet."""
        member = None if group is None else group.members.get(request.member_id)
        expression = request.subscribed_topic_regex
        if expression is None and member is not None:
            expression = member.expression
        if not expression or request.member_epoch < 0:
            return None
        matches = topic_expression(expression).fullmatch
        now, key = trio.current_time(), (viewer(), expression)
        known = self._matched.get(key)
        if known is not None and known.at + _LOOK_SECONDS > now:
            return known.topics
        try:
            names = await self._match(matches)
        except OperationFailed as error:
            if error.failure.code is FailureCode.PERMISSION_DENIED:
                raise
            if member is not None and member.expression == expression:
                names = member.matched
            elif known is not None:
                names = known.topics
            else:
                raise
        if len(self._matched) >= _MOST_MATCHED:
            self._matched.clear()
        self._matched[key] = _Matched(names, now)
        return names

    async def _match(self, matches: Callable[[str], object]) -> frozenset[str]:
        """Return the topics whose names match, and that the client may read. Raises OperationFailed."""
        now, client = trio.current_time(), viewer()
        names: set[str] = set()
        async for name, (partitions, topic_id) in in_turns((await self._ids.all()).items()):
            if matches(name) and self._readable(name):
                names.add(name)
                self._looked[client, name] = _Looked(GroupTopic(topic_id, partitions), now, seen=True)
        return frozenset(names)

    def _readable(self, topic: str) -> bool:
        try:
            self._back.require(self._names.to_stream(topic), READ)
        except OperationFailed:
            return False
        return True

    def _may_read(self, topic: str, call: KafkaCall) -> bool:
        try:
            self._back.require(self._names.to_stream(topic), READ)
        except OperationFailed as error:
            call.refused(error.failure)
            return False
        return True

    async def _existing(self, names: Iterable[str], group_id: str) -> dict[str, GroupTopic]:
        """Return those of the topics that exist, and have an id. One that the client may not see, or whose server does
        not answer, is as the group knows it: neither takes it from other members, and heartbeats go on."""
        now, client = trio.current_time(), viewer()
        fresh: dict[str, _Looked] = {}
        old: list[tuple[float, str]] = []
        for name in names:
            looked = self._looked.get((client, name))
            if looked is not None and looked.at + _LOOK_SECONDS > now:
                fresh[name] = looked
            else:
                old.append((-math.inf if looked is None else looked.at, name))
        with trio.move_on_after(self._groups.consumer_heartbeat_seconds):  # the next heartbeat begins with the others
            for _, name in sorted(old):
                fresh[name] = self._looked[client, name] = await self._look(name)
        if len(self._looked) > _MOST_LOOKED:
            self._looked.clear()
        group = self._groups.consumers.group(group_id)  # it may have changed meanwhile
        topics = {} if group is None else dict(group.topics)
        for name, looked in fresh.items():
            if looked.topic is not None:
                topics[name] = looked.topic
            elif looked.seen:
                topics.pop(name, None)
        return topics

    async def _look(self, name: str) -> _Looked:
        now = trio.current_time()
        try:
            topic = GroupTopic(await self._ids.look_up(name), await self._topics.partitions(name))
        except OperationFailed as error:
            gone = error.failure.code in (FailureCode.STREAM_NOT_FOUND, FailureCode.BAD_PATH)
            return _Looked(None, now, seen=gone)
        return _Looked(None if topic.id == NO_UUID else topic, now, seen=True)

    # ---- administration ----------------------------------------------------------------------------------------------

    async def _describe(self, request: ConsumerGroupDescribeRequest, call: KafkaCall) -> ConsumerGroupDescribeResponse:
        groups = [await self._described(group, call) async for group in call.each(request.group_ids)]
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _described(self, group_id: str, call: KafkaCall) -> DescribedConsumerGroup:
        if error := await self._access.of(group_id, call):
            return DescribedConsumerGroup(error_code=error, group_id=group_id)
        group = self._groups.consumers.group(key_of(group_id))
        if group is None:
            reason = f"group {group_id} has no members of the consumer protocol"
            return DescribedConsumerGroup(
                error_code=KafkaError.GROUP_ID_NOT_FOUND, error_message=reason, group_id=group_id
            )
        return DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.epoch,
            assignor_name=group.assignor,
            members=[_member(group, member) for member in group.members.values()],
        )


async def _heartbeat_of(
    request: ConsumerGroupHeartbeatRequest, call: KafkaCall, matched: frozenset[str] | None
) -> EpochHeartbeat:
    owned = None
    if request.topic_partitions is not None:
        partitions: set[OwnedPartition] = set()
        async for topic in call.each(request.topic_partitions):
            async for number in call.each(topic.partitions):
                partitions.add(OwnedPartition(topic.topic_id, number))
        owned = frozenset(partitions)
    return EpochHeartbeat(
        group=key_of(request.group_id),
        member=request.member_id,
        epoch=request.member_epoch,
        instance=request.instance_id,
        rack=request.rack_id,
        client_id=call.request.client_id or "",
        client_host=client_host(),
        rebalance_timeout=None if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms / 1000,
        topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        expression=request.subscribed_topic_regex,
        matched=matched,
        assignor=request.server_assignor,
        owned=owned,
        makes_id=call.version >= 1,
    )


def _numbers(partitions: Iterable[OwnedPartition]) -> dict[bytes, list[int]]:
    """Return the numbers of partitions by the id of their topic, in order."""
    by_topic: dict[bytes, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition.number)
    return by_topic


def _by_topic(partitions: Iterable[OwnedPartition]) -> list[AssignedTopic]:
    return [AssignedTopic(topic_id=topic, partitions=numbers) for topic, numbers in _numbers(partitions).items()]


def _member(group: EpochGroup, member: EpochMember) -> DescribedConsumer:
    names = {topic.id: name for name, topic in group.topics.items()}

    def assignment(partitions: Iterable[OwnedPartition]) -> DescribedAssignment:
        return DescribedAssignment(
            topic_partitions=[
                DescribedTopic(topic_id=topic, topic_name=names.get(topic, ""), partitions=numbers)
                for topic, numbers in _numbers(partitions).items()
            ]
        )

    return DescribedConsumer(
        member_id=member.id,
        instance_id=member.instance,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.expression or None,
        assignment=assignment(member.assigned),
        target_assignment=assignment(member.target),
        member_type=_OF_CONSUMERS,
    )
