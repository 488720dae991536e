"""Messages that create, delete and describe topics.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock_kafka.codec.schema import NO_UUID, Int8, Int16, Int32, KafkaMessage, Uuid, nullable, since, tagged, until

__all__ = [
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "CreatedTopic",
    "CreatedTopicConfig",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DeletedTopic",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribedConfigs",
    "GrowingTopic",
    "GrownTopic",
    "NewPartitionBrokers",
]


class CreatableReplicaAssignment(KafkaMessage, kw_only=True):
    """The brokers of a partition, by hand."""

    partition_index: Int32
    broker_ids: Sequence[Int32]


class CreatableTopicConfig(KafkaMessage, kw_only=True):
    """A setting of a new topic."""

    name: str
    value: str | None = None


class CreatableTopic(KafkaMessage, kw_only=True):
    """A topic to create; -1 partitions or replicas: the server's default."""

    name: str
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(KafkaMessage, kw_only=True):
    """Creates topics, or only checks whether they could be created."""

    topics: Sequence[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[bool, since(1)] = False


class CreatedTopicConfig(KafkaMessage, kw_only=True):
    """A setting of a topic that was created."""

    name: str
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


class CreatedTopic(KafkaMessage, kw_only=True):
    """The outcome for one topic."""

    name: str
    topic_id: Annotated[Uuid, since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(1)] = None
    topic_config_error_code: Annotated[Int16, tagged(0, 5)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[Sequence[CreatedTopicConfig] | None, since(5)] = None


class CreateTopicsResponse(KafkaMessage, kw_only=True):
    """The outcomes of a CreateTopics request."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: Sequence[CreatedTopic]


class NewPartitionBrokers(KafkaMessage, kw_only=True):
    """The brokers of a new partition, by hand."""

    broker_ids: Sequence[Int32]


class GrowingTopic(KafkaMessage, kw_only=True):
    """A topic, and the number of partitions that it is to have."""

    name: str
    count: Int32
    assignments: Sequence[NewPartitionBrokers] | None = None


class CreatePartitionsRequest(KafkaMessage, kw_only=True):
    """Adds partitions to topics, or only checks whether they could be added."""

    topics: Sequence[GrowingTopic]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


class GrownTopic(KafkaMessage, kw_only=True):
    """The outcome for one topic."""

    name: str
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(KafkaMessage, kw_only=True):
    """The outcomes of a CreatePartitions request."""

    throttle_time_ms: Int32 = 0
    results: Sequence[GrownTopic]


class DeleteTopicState(KafkaMessage, kw_only=True):
    """A topic to delete, by its id if `name` is None."""

    name: str | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(KafkaMessage, kw_only=True):
    """Deletes topics."""

    topics: Annotated[Sequence[DeleteTopicState], since(6)] = ()
    topic_names: Annotated[Sequence[str], until(5)] = ()
    timeout_ms: Int32 = 0


class DeletedTopic(KafkaMessage, kw_only=True):
    """The outcome for one topic. `name` None: the id that was asked for is not known."""

    name: Annotated[str | None, nullable(6)] = None
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(5)] = None


class DeleteTopicsResponse(KafkaMessage, kw_only=True):
    """The outcomes of a DeleteTopics request."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    responses: Sequence[DeletedTopic]


class ConfigResource(KafkaMessage, kw_only=True):
    """A topic (type 2) or broker (type 4) whose settings are wanted; None: all of them."""

    resource_type: Int8
    resource_name: str
    configuration_keys: Sequence[str] | None = None


class DescribeConfigsRequest(KafkaMessage, kw_only=True):
    """Asks for settings of topics and brokers."""

    resources: Sequence[ConfigResource]
    include_synonyms: Annotated[bool, since(1)] = False
    include_documentation: Annotated[bool, since(3)] = False


class ConfigSynonym(KafkaMessage, kw_only=True):
    """A place that a setting may come from."""

    name: Annotated[str, since(1)]
    value: Annotated[str | None, since(1)] = None
    source: Annotated[Int8, since(1)] = 0


class ConfigEntry(KafkaMessage, kw_only=True):
    """A setting. `config_source`: 1 for the topic's own, 5 for a default. `config_type`: 1 bool, 2 string, 5 long."""

    name: str
    value: str | None = None
    read_only: bool = True
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: bool = False
    synonyms: Annotated[Sequence[ConfigSynonym], since(1)] = ()
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[str | None, since(3)] = None


class DescribedConfigs(KafkaMessage, kw_only=True):
    """The settings of one topic or broker."""

    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: Sequence[ConfigEntry] = ()


class DescribeConfigsResponse(KafkaMessage, kw_only=True):
    """The settings of topics and brokers."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DescribedConfigs]
