"""Messages of the consumer group protocol (KIP-848), in which the coordinator assigns partitions.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock_kafka.codec.cluster_messages import NO_OPERATIONS
from penstock_kafka.codec.schema import Int8, Int16, Int32, KafkaMessage, Uuid, since

__all__ = [
    "AssignedTopic",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "DescribedAssignment",
    "DescribedConsumer",
    "DescribedConsumerGroup",
    "DescribedTopic",
]


class AssignedTopic(KafkaMessage, kw_only=True):
    """Partitions of a topic that a member owns, or is to use."""

    topic_id: Uuid
    partitions: Sequence[Int32]


class ConsumerGroupHeartbeatRequest(KafkaMessage, kw_only=True):
    """A member joins (`member_epoch` 0), lives, leaves (-1), or leaves to come back (-2).

    What has not changed since its last request is None, or -1. From version 1 on, a member makes its own id (KIP-1082).
    """

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: Annotated[str | None, since(1)] = None
    server_assignor: str | None = None
    topic_partitions: Sequence[AssignedTopic] | None = None


class ConsumerAssignment(KafkaMessage, kw_only=True):
    """The partitions that a member can use at once."""

    topic_partitions: Sequence[AssignedTopic]


class ConsumerGroupHeartbeatResponse(KafkaMessage, kw_only=True):
    """The epoch of a member, and its assignment if that has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerAssignment | None = None


class ConsumerGroupDescribeRequest(KafkaMessage, kw_only=True):
    """Asks for groups of this protocol."""

    group_ids: Sequence[str]
    include_authorized_operations: bool = False


class DescribedTopic(KafkaMessage, kw_only=True):
    """Partitions of a topic that are assigned to a member."""

    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


class DescribedAssignment(KafkaMessage, kw_only=True):
    """The partitions that are assigned to a member."""

    topic_partitions: Sequence[DescribedTopic] = ()


class DescribedConsumer(KafkaMessage, kw_only=True):
    """A member. `target_assignment`: what it will have once the others have given up what they are to.

    `member_type`: 1 for this protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Annotated[Int8, since(1)] = -1


class DescribedConsumerGroup(KafkaMessage, kw_only=True):
    """A group, or the reason why it cannot be described."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: Sequence[DescribedConsumer] = ()
    authorized_operations: Int32 = NO_OPERATIONS


class ConsumerGroupDescribeResponse(KafkaMessage, kw_only=True):
    """The groups."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedConsumerGroup]
