"""Messages by which administrators' tools look into a cluster: files, rights, producers, transactions.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock_kafka.codec.schema import Int8, Int16, Int32, Int64, KafkaMessage, since
from penstock_kafka.codec.transaction_messages import TxnTopic

__all__ = [
    "AclDescription",
    "AclResource",
    "ActiveProducer",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribedTransaction",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "ListedTransaction",
    "LogDir",
    "LogDirPartition",
    "LogDirTopic",
    "PartitionProducers",
    "ProducersTopic",
    "TopicPartitions",
    "TopicProducers",
]


class TopicPartitions(KafkaMessage, kw_only=True):
    """Partitions of a topic to describe."""

    topic: str
    partitions: Sequence[Int32]


class DescribeLogDirsRequest(KafkaMessage, kw_only=True):
    """Asks in which directories partitions lie; None: all partitions."""

    topics: Sequence[TopicPartitions] | None = None


class LogDirPartition(KafkaMessage, kw_only=True):
    """A partition in a directory, and its size in bytes."""

    partition_index: Int32
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


class LogDirTopic(KafkaMessage, kw_only=True):
    """A topic in a directory."""

    name: str
    partitions: Sequence[LogDirPartition]


class LogDir(KafkaMessage, kw_only=True):
    """A directory; -1 bytes: unknown."""

    error_code: Int16 = 0
    log_dir: str
    topics: Sequence[LogDirTopic] = ()
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1


class DescribeLogDirsResponse(KafkaMessage, kw_only=True):
    """The directories of a broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: Sequence[LogDir] = ()


class DescribeAclsRequest(KafkaMessage, kw_only=True):
    """Asks for access control lists that match; null and type 1 match any."""

    resource_type_filter: Int8
    resource_name_filter: str | None = None
    pattern_type_filter: Annotated[Int8, since(1)] = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: Int8
    permission_type: Int8


class AclDescription(KafkaMessage, kw_only=True):
    """An entry of an access control list."""

    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class AclResource(KafkaMessage, kw_only=True):
    """A resource, and the access control list for it."""

    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, since(1)] = 3
    acls: Sequence[AclDescription]


class DescribeAclsResponse(KafkaMessage, kw_only=True):
    """The access control lists."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    resources: Sequence[AclResource] = ()


class ProducersTopic(KafkaMessage, kw_only=True):
    """Partitions of a topic whose producers are wanted."""

    name: str
    partition_indexes: Sequence[Int32]


class DescribeProducersRequest(KafkaMessage, kw_only=True):
    """Asks for the producers that write to partitions (KIP-664)."""

    topics: Sequence[ProducersTopic]


class ActiveProducer(KafkaMessage, kw_only=True):
    """A producer; -1 stands for what it does not have."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class PartitionProducers(KafkaMessage, kw_only=True):
    """The producers of a partition."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: Sequence[ActiveProducer] = ()


class TopicProducers(KafkaMessage, kw_only=True):
    """The producers of a topic."""

    name: str
    partitions: Sequence[PartitionProducers]


class DescribeProducersResponse(KafkaMessage, kw_only=True):
    """The producers of partitions."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicProducers]


class ListTransactionsRequest(KafkaMessage, kw_only=True):
    """Asks for the transactional ids of a coordinator in these states, of these producers; none: of all (KIP-664)."""

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[Int64] = ()


class ListedTransaction(KafkaMessage, kw_only=True):
    """A transactional id in use."""

    transactional_id: str
    producer_id: Int64
    transaction_state: str


class ListTransactionsResponse(KafkaMessage, kw_only=True):
    """The transactional ids."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListedTransaction] = ()


class DescribeTransactionsRequest(KafkaMessage, kw_only=True):
    """Asks for the transactions of transactional ids (KIP-664)."""

    transactional_ids: Sequence[str]


class DescribedTransaction(KafkaMessage, kw_only=True):
    """The last transaction of a transactional id; times are in ms."""

    error_code: Int16 = 0
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = -1
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    topics: Sequence[TxnTopic] = ()


class DescribeTransactionsResponse(KafkaMessage, kw_only=True):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[DescribedTransaction]
