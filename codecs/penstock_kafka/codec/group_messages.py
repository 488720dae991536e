"""Messages of consumer groups and their committed offsets.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock_kafka.codec.schema import NO_UUID, Int8, Int16, Int32, Int64, KafkaMessage, Uuid, nullable, since, until

__all__ = [
    "CommittedPartition",
    "CommittedTopic",
    "CoordinatorAddress",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeletedGroup",
    "DeletedOffset",
    "DeletedOffsets",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedMember",
    "FetchedOffset",
    "FetchedOffsets",
    "FetchedTopic",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GroupProtocol",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupMember",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupMember",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "LeftMember",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeletePartition",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetDeleteTopic",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetToCommit",
    "OffsetsToCommit",
    "SyncGroupAssignment",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "WantedGroup",
    "WantedOffsets",
]


# ---- coordinator -----------------------------------------------------------------------------------------------------


class FindCoordinatorRequest(KafkaMessage, kw_only=True):
    """Asks which broker coordinates groups (type 0) or transactions (type 1)."""

    key: Annotated[str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[Sequence[str], since(4)] = ()


class CoordinatorAddress(KafkaMessage, kw_only=True):
    """The coordinator of one group or transaction."""

    key: str
    node_id: Int32 = -1
    host: str = ""
    port: Int32 = -1
    error_code: Int16 = 0
    error_message: str | None = None


class FindCoordinatorResponse(KafkaMessage, kw_only=True):
    """The coordinators: one in older versions, any number since version 4."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[str | None, since(1), until(3)] = None
    node_id: Annotated[Int32, until(3)] = -1
    host: Annotated[str, until(3)] = ""
    port: Annotated[Int32, until(3)] = -1
    coordinators: Annotated[Sequence[CoordinatorAddress], since(4)] = ()


# ---- membership ------------------------------------------------------------------------------------------------------


class GroupProtocol(KafkaMessage, kw_only=True):
    """An assignment strategy that a member knows, and its subscription in terms of it."""

    name: str
    metadata: bytes


class JoinGroupRequest(KafkaMessage, kw_only=True):
    """Joins a group, or rejoins it; answered when the next generation begins."""

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(5)] = None
    protocol_type: str
    protocols: Sequence[GroupProtocol]
    reason: Annotated[str | None, since(8)] = None


class JoinGroupMember(KafkaMessage, kw_only=True):
    """A member, as the leader sees it."""

    member_id: str
    group_instance_id: Annotated[str | None, since(5)] = None
    metadata: bytes


class JoinGroupResponse(KafkaMessage, kw_only=True):
    """The new generation; `members` for its leader alone."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, since(7)] = None
    protocol_name: Annotated[str | None, nullable(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, since(9)] = False
    member_id: str
    members: Sequence[JoinGroupMember] = ()


class SyncGroupAssignment(KafkaMessage, kw_only=True):
    """The assignment of one member, from the leader."""

    member_id: str
    assignment: bytes


class SyncGroupRequest(KafkaMessage, kw_only=True):
    """Asks for the member's assignment; answered when the leader has brought all of them."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None
    protocol_type: Annotated[str | None, since(5)] = None
    protocol_name: Annotated[str | None, since(5)] = None
    assignments: Sequence[SyncGroupAssignment] = ()


class SyncGroupResponse(KafkaMessage, kw_only=True):
    """The member's assignment."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, since(5)] = None
    protocol_name: Annotated[str | None, since(5)] = None
    assignment: bytes = b""


class HeartbeatRequest(KafkaMessage, kw_only=True):
    """Prolongs the session of a member."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None


class HeartbeatResponse(KafkaMessage, kw_only=True):
    """Tells the member whether it must rejoin."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class LeaveGroupMember(KafkaMessage, kw_only=True):
    """A member that leaves, by its id or its instance."""

    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, since(5)] = None


class LeaveGroupRequest(KafkaMessage, kw_only=True):
    """Removes members: one in older versions, any number since version 3."""

    group_id: str
    member_id: Annotated[str, until(2)] = ""
    members: Annotated[Sequence[LeaveGroupMember], since(3)] = ()


class LeftMember(KafkaMessage, kw_only=True):
    """The outcome for one member."""

    member_id: str
    group_instance_id: str | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(KafkaMessage, kw_only=True):
    """The outcomes of a LeaveGroup request."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[LeftMember], since(3)] = ()


# ---- committed offsets -----------------------------------------------------------------------------------------------


class OffsetToCommit(KafkaMessage, kw_only=True):
    """The offset of the record that a group reads next in a partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: str | None = None


class OffsetsToCommit(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: Sequence[OffsetToCommit]


class OffsetCommitRequest(KafkaMessage, kw_only=True):
    """Commits offsets; generation -1 without a member: a client without a group."""

    group_id: str
    generation_id: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    topics: Sequence[OffsetsToCommit]


class CommittedPartition(KafkaMessage, kw_only=True):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


class CommittedTopic(KafkaMessage, kw_only=True):
    """The outcomes for one topic."""

    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: Sequence[CommittedPartition]


class OffsetCommitResponse(KafkaMessage, kw_only=True):
    """The outcomes of an OffsetCommit request."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Sequence[CommittedTopic]


class WantedOffsets(KafkaMessage, kw_only=True):
    """The partitions of one topic whose offsets are wanted."""

    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partition_indexes: Sequence[Int32]


class WantedGroup(KafkaMessage, kw_only=True):
    """A group whose offsets are wanted; None: those of all topics."""

    group_id: str
    member_id: Annotated[str | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: Sequence[WantedOffsets] | None = None


class OffsetFetchRequest(KafkaMessage, kw_only=True):
    """Asks for committed offsets: of one group in older versions, of any number since version 8."""

    group_id: Annotated[str, until(7)] = ""
    topics: Annotated[Sequence[WantedOffsets] | None, until(7), nullable(2)] = None
    groups: Annotated[Sequence[WantedGroup], since(8)] = ()
    require_stable: Annotated[bool, since(7)] = False


class FetchedOffset(KafkaMessage, kw_only=True):
    """A committed offset; -1 if the group has none for the partition."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class FetchedTopic(KafkaMessage, kw_only=True):
    """The offsets of one topic."""

    name: Annotated[str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: Sequence[FetchedOffset]


class FetchedOffsets(KafkaMessage, kw_only=True):
    """The offsets of one group."""

    group_id: str
    topics: Sequence[FetchedTopic] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(KafkaMessage, kw_only=True):
    """The committed offsets."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[Sequence[FetchedTopic], until(7)] = ()
    error_code: Annotated[Int16, since(2), until(7)] = 0
    groups: Annotated[Sequence[FetchedOffsets], since(8)] = ()


class OffsetDeletePartition(KafkaMessage, kw_only=True):
    """A partition whose committed offset is to be forgotten."""

    partition_index: Int32


class OffsetDeleteTopic(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[OffsetDeletePartition]


class OffsetDeleteRequest(KafkaMessage, kw_only=True):
    """Removes committed offsets of a group."""

    group_id: str
    topics: Sequence[OffsetDeleteTopic]


class DeletedOffset(KafkaMessage, kw_only=True):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


class DeletedOffsets(KafkaMessage, kw_only=True):
    """The outcomes for one topic."""

    name: str
    partitions: Sequence[DeletedOffset]


class OffsetDeleteResponse(KafkaMessage, kw_only=True):
    """The outcomes of an OffsetDelete request."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[DeletedOffsets] = ()


# ---- administration --------------------------------------------------------------------------------------------------


class DescribeGroupsRequest(KafkaMessage, kw_only=True):
    """Asks for the state and the members of groups."""

    groups: Sequence[str]
    include_authorized_operations: Annotated[bool, since(3)] = False


class DescribedMember(KafkaMessage, kw_only=True):
    """A member, with its subscription and assignment in terms of the group's protocol."""

    member_id: str
    group_instance_id: Annotated[str | None, since(4)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(KafkaMessage, kw_only=True):
    """A group. `authorized_operations`: as bits; the least number: not asked for."""

    error_code: Int16 = 0
    error_message: Annotated[str | None, since(6)] = None
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()
    authorized_operations: Annotated[Int32, since(3)] = -(1 << 31)


class DescribeGroupsResponse(KafkaMessage, kw_only=True):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: Sequence[DescribedGroup] = ()


class ListGroupsRequest(KafkaMessage, kw_only=True):
    """Asks for all groups, or those in some states or of some types."""

    states_filter: Annotated[Sequence[str], since(4)] = ()
    types_filter: Annotated[Sequence[str], since(5)] = ()


class ListedGroup(KafkaMessage, kw_only=True):
    """A group in a list."""

    group_id: str
    protocol_type: str = ""
    group_state: Annotated[str, since(4)] = ""
    group_type: Annotated[str, since(5)] = ""


class ListGroupsResponse(KafkaMessage, kw_only=True):
    """The list of groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = ()


class DeleteGroupsRequest(KafkaMessage, kw_only=True):
    """Deletes groups that have no members."""

    groups_names: Sequence[str]


class DeletedGroup(KafkaMessage, kw_only=True):
    """The outcome for one group."""

    group_id: str
    error_code: Int16 = 0


class DeleteGroupsResponse(KafkaMessage, kw_only=True):
    """The outcomes of a DeleteGroups request."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DeletedGroup] = ()
