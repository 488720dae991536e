"""The table of APIs: the key, versions and messages of each.

The newest versions of those that read and write records are those of Apache Kafka 4.1; the oldest are those of Apache
Kafka 4 (KIP-896), and Produce from 0 on, by which librdkafka tells which compressions it may use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock_kafka.codec import cluster_messages as cluster
from penstock_kafka.codec import config_messages as configs
from penstock_kafka.codec import consumer_group_messages as consumers
from penstock_kafka.codec import group_messages as groups
from penstock_kafka.codec import inspection_messages as inspection
from penstock_kafka.codec import record_messages as records
from penstock_kafka.codec import topic_messages as topics
from penstock_kafka.codec import transaction_messages as txn
from penstock_kafka.codec.schema import KafkaMessage

__all__ = ["APIS", "API_OF", "API_VERSIONS", "KafkaApi"]

_NEVER: Final = 1 << 15


class KafkaApi(NamedTuple):
    """One API. `flexible`: the first version with compact types and tagged fields."""

    name: str
    key: int
    oldest: int
    newest: int
    flexible: int
    request: type[KafkaMessage]
    response: type[KafkaMessage]

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has compact types and tagged fields."""
        return version >= self.flexible


API_VERSIONS: Final = KafkaApi("ApiVersions", 18, 0, 4, 3, cluster.ApiVersionsRequest, cluster.ApiVersionsResponse)
APIS: Final = {
    api.key: api
    for api in (
        KafkaApi("Produce", 0, 0, 13, 9, records.ProduceRequest, records.ProduceResponse),
        KafkaApi("Fetch", 1, 4, 18, 12, records.FetchRequest, records.FetchResponse),
        KafkaApi("ListOffsets", 2, 1, 7, 6, records.ListOffsetsRequest, records.ListOffsetsResponse),
        KafkaApi("Metadata", 3, 0, 13, 9, cluster.MetadataRequest, cluster.MetadataResponse),
        KafkaApi("OffsetCommit", 8, 2, 10, 8, groups.OffsetCommitRequest, groups.OffsetCommitResponse),
        KafkaApi("OffsetFetch", 9, 1, 10, 6, groups.OffsetFetchRequest, groups.OffsetFetchResponse),
        KafkaApi("FindCoordinator", 10, 0, 6, 3, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
        KafkaApi("JoinGroup", 11, 0, 9, 6, groups.JoinGroupRequest, groups.JoinGroupResponse),
        KafkaApi("Heartbeat", 12, 0, 4, 4, groups.HeartbeatRequest, groups.HeartbeatResponse),
        KafkaApi("LeaveGroup", 13, 0, 5, 4, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
        KafkaApi("SyncGroup", 14, 0, 5, 4, groups.SyncGroupRequest, groups.SyncGroupResponse),
        KafkaApi("DescribeGroups", 15, 0, 6, 5, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
        KafkaApi("ListGroups", 16, 0, 5, 3, groups.ListGroupsRequest, groups.ListGroupsResponse),
        KafkaApi("SaslHandshake", 17, 1, 1, _NEVER, cluster.SaslHandshakeRequest, cluster.SaslHandshakeResponse),
        API_VERSIONS,
        KafkaApi("CreateTopics", 19, 2, 7, 5, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
        KafkaApi("DeleteTopics", 20, 1, 6, 4, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
        KafkaApi("DeleteRecords", 21, 0, 2, 2, records.DeleteRecordsRequest, records.DeleteRecordsResponse),
        KafkaApi("InitProducerId", 22, 0, 4, 2, records.InitProducerIdRequest, records.InitProducerIdResponse),
        KafkaApi(
            "OffsetForLeaderEpoch",
            23,
            2,
            4,
            4,
            records.OffsetForLeaderEpochRequest,
            records.OffsetForLeaderEpochResponse,
        ),
        KafkaApi("AddPartitionsToTxn", 24, 0, 3, 3, txn.AddPartitionsToTxnRequest, txn.AddPartitionsToTxnResponse),
        KafkaApi("AddOffsetsToTxn", 25, 0, 3, 3, txn.AddOffsetsToTxnRequest, txn.AddOffsetsToTxnResponse),
        KafkaApi("EndTxn", 26, 0, 3, 3, txn.EndTxnRequest, txn.EndTxnResponse),
        KafkaApi("TxnOffsetCommit", 28, 0, 3, 3, txn.TxnOffsetCommitRequest, txn.TxnOffsetCommitResponse),
        KafkaApi("DescribeAcls", 29, 1, 3, 2, inspection.DescribeAclsRequest, inspection.DescribeAclsResponse),
        KafkaApi("DescribeConfigs", 32, 1, 4, 4, topics.DescribeConfigsRequest, topics.DescribeConfigsResponse),
        KafkaApi("AlterConfigs", 33, 0, 2, 2, configs.AlterConfigsRequest, configs.AlterConfigsResponse),
        KafkaApi("DescribeLogDirs", 35, 1, 4, 2, inspection.DescribeLogDirsRequest, inspection.DescribeLogDirsResponse),
        KafkaApi("SaslAuthenticate", 36, 0, 2, 2, cluster.SaslAuthenticateRequest, cluster.SaslAuthenticateResponse),
        KafkaApi("CreatePartitions", 37, 0, 3, 2, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
        KafkaApi("DeleteGroups", 42, 0, 2, 2, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
        KafkaApi(
            "IncrementalAlterConfigs",
            44,
            0,
            1,
            1,
            configs.IncrementalAlterConfigsRequest,
            configs.IncrementalAlterConfigsResponse,
        ),
        KafkaApi("OffsetDelete", 47, 0, 0, _NEVER, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse),
        KafkaApi("DescribeCluster", 60, 0, 2, 0, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
        KafkaApi(
            "DescribeProducers",
            61,
            0,
            0,
            0,
            inspection.DescribeProducersRequest,
            inspection.DescribeProducersResponse,
        ),
        KafkaApi(
            "DescribeTransactions",
            65,
            0,
            0,
            0,
            inspection.DescribeTransactionsRequest,
            inspection.DescribeTransactionsResponse,
        ),
        KafkaApi(
            "ListTransactions", 66, 0, 0, 0, inspection.ListTransactionsRequest, inspection.ListTransactionsResponse
        ),
        KafkaApi(
            "ConsumerGroupHeartbeat",
            68,
            0,
            1,
            0,
            consumers.ConsumerGroupHeartbeatRequest,
            consumers.ConsumerGroupHeartbeatResponse,
        ),
        KafkaApi(
            "ConsumerGroupDescribe",
            69,
            0,
            1,
            0,
            consumers.ConsumerGroupDescribeRequest,
            consumers.ConsumerGroupDescribeResponse,
        ),
        KafkaApi(
            "DescribeTopicPartitions",
            75,
            0,
            0,
            0,
            cluster.DescribeTopicPartitionsRequest,
            cluster.DescribeTopicPartitionsResponse,
        ),
    )
}
API_OF: Final = {api.request: api for api in APIS.values()}
"""The APIs by the class of their requests."""
