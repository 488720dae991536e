"""APIs about the cluster: versions, metadata, brokers. One gateway leads all partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed
from penstock_kafka.codec import KafkaApi, KafkaError
from penstock_kafka.codec.cluster_messages import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedPartition,
    DescribedTopicPartitions,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
    TopicPartitionsCursor,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.front.call import NO_NODE, KafkaCall, KafkaHandlers
from penstock_kafka.front.settings import KafkaSettings
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics

__all__ = ["CLUSTER_ID", "LEADER_EPOCH", "ClusterHandlers"]

CLUSTER_ID: Final = "penstock"
LEADER_EPOCH: Final = 0
"""The leader epoch of all partitions. Clients take another leader in the same epoch."""
_MOST_PARTITIONS: Final = 2000
"""Most partitions in an answer to DescribeTopicPartitions, as in Kafka."""
_IDS: Final = 10
"""The first version of Metadata with the ids of topics."""


class ClusterHandlers:
    """Handlers of ApiVersions, Metadata, DescribeTopicPartitions and DescribeCluster. `apis` returns the APIs that are
    offered."""

    def __init__(
        self, topics: KafkaTopics, ids: TopicIds, settings: KafkaSettings, apis: Callable[[], list[KafkaApi]]
    ) -> None:
        self._topics = topics
        self._ids = ids
        self._settings = settings
        self._apis = apis
        self.handlers: KafkaHandlers = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            DescribeTopicPartitionsRequest: self._partitions,
            DescribeClusterRequest: self._cluster,
        }

    async def _api_versions(self, request: ApiVersionsRequest, call: KafkaCall) -> ApiVersionsResponse:  # noqa: ARG002
        """List the APIs; the error tells a client that asked in an unknown version to ask again (KIP-511)."""
        error = KafkaError.NONE if call.request.supported else KafkaError.UNSUPPORTED_VERSION
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersionRange(api_key=api.key, min_version=api.oldest, max_version=api.newest) for api in self._apis()
            ],
        )

    async def _metadata(self, request: MetadataRequest, call: KafkaCall) -> MetadataResponse:
        """Describe topics; create those that are missing, if the request and their basin allow it."""
        if request.topics is None or (not request.topics and call.version == 0):
            leader = call.leader_id
            every = (await self._ids.all()).items()
            topics = [_topic(name, count, of, leader) async for name, (count, of) in call.each(every)]
        else:
            creates = request.allow_auto_topic_creation
            topics = [await self._asked(topic, call, creates=creates) async for topic in call.each(request.topics)]
        brokers = [
            MetadataBroker(node_id=node, host=broker.host, port=broker.port) for node, broker in call.list_brokers()
        ]
        return MetadataResponse(brokers=brokers, cluster_id=CLUSTER_ID, controller_id=call.leader_id, topics=topics)

    async def _asked(self, topic: MetadataRequestTopic, call: KafkaCall, *, creates: bool) -> MetadataTopic:
        with_id = call.version >= _IDS
        if topic.name is not None:
            return await self._described(topic.name, call, creates=creates, with_id=with_id)
        try:
            name = await self._ids.name_of(topic.topic_id)
        except KafkaRefusal as refusal:
            call.refusals += 1
            return MetadataTopic(error_code=refusal.code, topic_id=topic.topic_id, partitions=[])
        return await self._described(name, call, creates=False, with_id=with_id)

    async def _described(self, name: str, call: KafkaCall, *, creates: bool, with_id: bool) -> MetadataTopic:
        try:
            try:
                count = await self._topics.partitions(name)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STREAM_NOT_FOUND or not creates:
                    raise
                count = self._settings.partitions
                await self._topics.ensure(name, count)
            return _topic(name, count, await self._ids.of(name) if with_id else NO_UUID, call.leader_id)
        except OperationFailed as error:
            return MetadataTopic(error_code=call.refused(error.failure), name=name, partitions=[])

    async def _partitions(
        self, request: DescribeTopicPartitionsRequest, call: KafkaCall
    ) -> DescribeTopicPartitionsResponse:
        """Describe partitions, at most so many, from the cursor on."""
        start, limit = request.cursor, min(max(request.response_partition_limit, 1), _MOST_PARTITIONS)
        every = None if request.topics else await self._ids.all()
        names = sorted({topic.name async for topic in call.each(request.topics)} if every is None else every)
        topics: list[DescribedTopicPartitions] = []
        next_cursor: TopicPartitionsCursor | None = None
        async for name in call.each(names):
            if start is not None and name < start.topic_name:
                continue
            if not limit:
                next_cursor = TopicPartitionsCursor(topic_name=name, partition_index=0)
                break
            if every is None:
                topic_state = await self._described(name, call, creates=False, with_id=True)
            else:
                topic_state = _topic(name, *every[name], call.leader_id)
            first = max(start.partition_index, 0) if start is not None and name == start.topic_name else 0
            shown = topic_state.partitions[first : first + limit]
            topics.append(_described_partitions(topic_state, shown))
            limit -= min(len(shown) or 1, limit)
            if first + len(shown) < len(topic_state.partitions):
                next_cursor = TopicPartitionsCursor(topic_name=name, partition_index=first + len(shown))
                break
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)

    async def _cluster(self, request: DescribeClusterRequest, call: KafkaCall) -> DescribeClusterResponse:
        if request.endpoint_type != 1:
            reason = f"endpoint type {request.endpoint_type}: only brokers (1) can be described"
            return DescribeClusterResponse(
                error_code=KafkaError.INVALID_REQUEST, error_message=reason, cluster_id=CLUSTER_ID, brokers=[]
            )
        brokers = [
            ClusterBroker(broker_id=node, host=broker.host, port=broker.port) for node, broker in call.list_brokers()
        ]
        return DescribeClusterResponse(cluster_id=CLUSTER_ID, controller_id=call.leader_id, brokers=brokers)


def _described_partitions(topic: MetadataTopic, partitions: Sequence[MetadataPartition]) -> DescribedTopicPartitions:
    return DescribedTopicPartitions(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            DescribedPartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replica_nodes,
                isr_nodes=partition.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for partition in partitions
        ],
    )


def _topic(name: str, count: int, topic_id: bytes, leader: int) -> MetadataTopic:
    """Return a topic whose partitions this node leads."""
    nodes, error = ([], KafkaError.LEADER_NOT_AVAILABLE) if leader == NO_NODE else ([leader], KafkaError.NONE)
    partitions = [
        MetadataPartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )
        for index in range(count)
    ]
    return MetadataTopic(name=name, topic_id=topic_id, partitions=partitions)
