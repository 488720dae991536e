"""Messages about the cluster and the connection: versions, topics and brokers, authentication.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from penstock_kafka.codec.schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    Uuid,
    nullable,
    since,
    tagged,
    until,
)

__all__ = [
    "NO_OPERATIONS",
    "ApiVersionRange",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribedPartition",
    "DescribedTopicPartitions",
    "FinalizedFeature",
    "MetadataBroker",
    "MetadataPartition",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataTopic",
    "NodeEndpoint",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SupportedFeature",
    "TopicAsked",
    "TopicPartitionsCursor",
]

NO_OPERATIONS: Final = -(1 << 31)
"""The set of authorized operations if it was not asked for, or is not known."""


class ApiVersionsRequest(KafkaMessage, kw_only=True):
    """Asks which APIs the server has, in which versions."""

    client_software_name: Annotated[str, since(3)] = ""
    client_software_version: Annotated[str, since(3)] = ""


class ApiVersionRange(KafkaMessage, kw_only=True):
    """The versions of one API."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeature(KafkaMessage, kw_only=True):
    """A feature of the cluster, and the range of its levels."""

    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeature(KafkaMessage, kw_only=True):
    """A feature of the cluster, and the range of levels in force."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(KafkaMessage, kw_only=True):
    """The APIs of the server."""

    error_code: Int16 = 0
    api_keys: Sequence[ApiVersionRange]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[Sequence[SupportedFeature], tagged(0, 3)] = ()
    finalized_features_epoch: Annotated[Int64, tagged(1, 3)] = -1
    finalized_features: Annotated[Sequence[FinalizedFeature], tagged(2, 3)] = ()
    zk_migration_ready: Annotated[bool, tagged(3, 3)] = False


class MetadataRequestTopic(KafkaMessage, kw_only=True):
    """A topic that a client asks about, by its id if `name` is None."""

    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[str | None, nullable(10)] = None


class MetadataRequest(KafkaMessage, kw_only=True):
    """Asks for topics and brokers; no topics (version 0) or null: for all topics."""

    topics: Annotated[Sequence[MetadataRequestTopic] | None, nullable(1)]
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False


class MetadataBroker(KafkaMessage, kw_only=True):
    """A broker, and the address that clients reach it at."""

    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, since(1)] = None


class MetadataPartition(KafkaMessage, kw_only=True):
    """A partition, and its leader."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    offline_replicas: Annotated[Sequence[Int32], since(5)] = ()


class MetadataTopic(KafkaMessage, kw_only=True):
    """A topic, or the reason why it cannot be used. `name` None: the id that was asked for is not known."""

    error_code: Int16 = 0
    name: Annotated[str | None, nullable(12)] = None
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[bool, since(1)] = False
    partitions: Sequence[MetadataPartition]
    topic_authorized_operations: Annotated[Int32, since(8)] = NO_OPERATIONS


class MetadataResponse(KafkaMessage, kw_only=True):
    """Topics and brokers."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: Sequence[MetadataBroker]
    cluster_id: Annotated[str | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: Sequence[MetadataTopic]
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = NO_OPERATIONS
    error_code: Annotated[Int16, since(13)] = 0


class TopicAsked(KafkaMessage, kw_only=True):
    """A topic to describe."""

    name: str


class TopicPartitionsCursor(KafkaMessage, kw_only=True):
    """The partition at which a listing goes on."""

    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsRequest(KafkaMessage, kw_only=True):
    """Asks for partitions of topics, in the order of their names; without topics, of all (KIP-966)."""

    topics: Sequence[TopicAsked]
    response_partition_limit: Int32 = 2000
    cursor: TopicPartitionsCursor | None = None


class DescribedPartition(KafkaMessage, kw_only=True):
    """A partition, its leader, and the replicas that may be elected."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()


class DescribedTopicPartitions(KafkaMessage, kw_only=True):
    """Partitions of a topic, or the reason why it cannot be used."""

    error_code: Int16 = 0
    name: str | None = None
    topic_id: Uuid = NO_UUID
    is_internal: bool = False
    partitions: Sequence[DescribedPartition] = ()
    topic_authorized_operations: Int32 = NO_OPERATIONS


class DescribeTopicPartitionsResponse(KafkaMessage, kw_only=True):
    """The partitions; `next_cursor`: where to go on, None after the last ones."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribedTopicPartitions]
    next_cursor: TopicPartitionsCursor | None = None


class NodeEndpoint(KafkaMessage, kw_only=True):
    """The address of a broker that an answer names as a leader (KIP-951)."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class DescribeClusterRequest(KafkaMessage, kw_only=True):
    """Asks for the cluster's brokers."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[bool, since(2)] = False


class ClusterBroker(KafkaMessage, kw_only=True):
    """A broker of the cluster."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: Annotated[bool, since(2)] = False


class DescribeClusterResponse(KafkaMessage, kw_only=True):
    """The cluster's name and brokers. `endpoint_type`: 1 for brokers, 2 for controllers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: str
    controller_id: Int32 = -1
    brokers: Sequence[ClusterBroker]
    cluster_authorized_operations: Int32 = NO_OPERATIONS


class SaslHandshakeRequest(KafkaMessage, kw_only=True):
    """Chooses a mechanism of authentication. In version 0, which is not known here, bare tokens follow."""

    mechanism: str


class SaslHandshakeResponse(KafkaMessage, kw_only=True):
    """Tells whether the mechanism may be used, and the server's mechanisms."""

    error_code: Int16 = 0
    mechanisms: Sequence[str]


class SaslAuthenticateRequest(KafkaMessage, kw_only=True):
    """Has the next message of the mechanism."""

    auth_bytes: bytes


class SaslAuthenticateResponse(KafkaMessage, kw_only=True):
    """Has the server's answer. `session_lifetime_ms` 0: the session does not expire."""

    error_code: Int16 = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0
