"""Messages that write and read records, and positions.

The versions and fields are those of Apache Kafka's message definitions (`clients/src/main/resources/common/message`).
`records` are batches as in `penstock_kafka.codec.batches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from penstock_kafka.codec.cluster_messages import NodeEndpoint
from penstock_kafka.codec.schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    KafkaMessage,
    Uuid,
    since,
    tagged,
    until,
)

__all__ = [
    "AbortedTransaction",
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
    "DivergingEpoch",
    "EpochEndOffset",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResult",
    "ForgottenTopic",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "LeaderIdAndEpoch",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResult",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResult",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
    "ProducePartition",
    "ProducePartitionResult",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceTopic",
    "ProduceTopicResult",
    "RecordError",
    "ReplicaState",
    "SnapshotId",
]

# ---- Produce ---------------------------------------------------------------------------------------------------------


class ProducePartition(KafkaMessage, kw_only=True):
    """The batches for one partition."""

    index: Int32
    records: bytes | None


class ProduceTopic(KafkaMessage, kw_only=True):
    """The batches for one topic."""

    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: Sequence[ProducePartition]


class ProduceRequest(KafkaMessage, kw_only=True):
    """Appends batches. `acks`: 0 for no response, 1 or -1 (all) for one after the append."""

    transactional_id: Annotated[str | None, since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topics: Sequence[ProduceTopic]


class RecordError(KafkaMessage, kw_only=True):
    """The reason why one record was refused."""

    batch_index: Int32
    message: str | None = None


class LeaderIdAndEpoch(KafkaMessage, kw_only=True):
    """The present leader of a partition."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class ProducePartitionResult(KafkaMessage, kw_only=True):
    """The outcome for one partition: an error, or the offset of the first record."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Annotated[Int64, since(2)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[Sequence[RecordError], since(8)] = ()
    error_message: Annotated[str | None, since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, 10)] = msgspec.field(default_factory=LeaderIdAndEpoch)


class ProduceTopicResult(KafkaMessage, kw_only=True):
    """The outcomes for one topic."""

    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: Sequence[ProducePartitionResult]


class ProduceResponse(KafkaMessage, kw_only=True):
    """The outcomes of a Produce request."""

    topics: Sequence[ProduceTopicResult]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    node_endpoints: Annotated[Sequence[NodeEndpoint], tagged(0, 10)] = ()


class InitProducerIdRequest(KafkaMessage, kw_only=True):
    """Asks for a producer id. `transactional_id` None: of an idempotent producer without transactions."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


class InitProducerIdResponse(KafkaMessage, kw_only=True):
    """A producer id and its epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


# ---- Fetch -----------------------------------------------------------------------------------------------------------


class FetchPartition(KafkaMessage, kw_only=True):
    """A partition to read, and the first offset to read."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, tagged(0, 17)] = NO_UUID
    high_watermark: Annotated[Int64, tagged(1, 18)] = (1 << 63) - 1


class FetchTopic(KafkaMessage, kw_only=True):
    """A topic to read."""

    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: Sequence[FetchPartition]


class ForgottenTopic(KafkaMessage, kw_only=True):
    """Partitions that leave a fetch session."""

    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: Sequence[Int32]


class ReplicaState(KafkaMessage, kw_only=True):
    """The broker that reads, for its own copy; -1 for consumers."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequest(KafkaMessage, kw_only=True):
    """Reads records of several partitions, and waits up to `max_wait_ms` for `min_bytes` of them.

    `isolation_level`: 1 to read committed records only.
    """

    cluster_id: Annotated[str | None, tagged(0, 12)] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState, tagged(1, 15)] = msgspec.field(default_factory=ReplicaState)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, since(3)] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, since(4)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: Sequence[FetchTopic]
    forgotten_topics: Annotated[Sequence[ForgottenTopic], since(7)] = ()
    rack_id: Annotated[str, since(11)] = ""


class DivergingEpoch(KafkaMessage, kw_only=True):
    """The end of the newest leader epoch that reader and leader share."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(KafkaMessage, kw_only=True):
    """A snapshot to read instead; for controllers only."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(KafkaMessage, kw_only=True):
    """A transaction whose records are to be skipped."""

    producer_id: Int64
    first_offset: Int64


class FetchPartitionResult(KafkaMessage, kw_only=True):
    """The records of one partition."""

    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = -1
    last_stable_offset: Annotated[Int64, since(4)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[DivergingEpoch, tagged(0, 12)] = msgspec.field(default_factory=DivergingEpoch)
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1, 12)] = msgspec.field(default_factory=LeaderIdAndEpoch)
    snapshot_id: Annotated[SnapshotId, tagged(2, 12)] = msgspec.field(default_factory=SnapshotId)
    aborted_transactions: Annotated[Sequence[AbortedTransaction] | None, since(4)] = None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: bytes | None = None


class FetchTopicResult(KafkaMessage, kw_only=True):
    """The records of one topic."""

    topic: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: Sequence[FetchPartitionResult]


class FetchResponse(KafkaMessage, kw_only=True):
    """The records that a Fetch request found. `session_id` 0: there is no fetch session."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    topics: Sequence[FetchTopicResult]
    node_endpoints: Annotated[Sequence[NodeEndpoint], tagged(0, 16)] = ()


# ---- positions -------------------------------------------------------------------------------------------------------


class ListOffsetsPartition(KafkaMessage, kw_only=True):
    """A partition, and the time to look up in ms: -1 for its end, -2 for its beginning, -3 for its newest record."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


class ListOffsetsTopic(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(KafkaMessage, kw_only=True):
    """Asks for offsets by time."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: Sequence[ListOffsetsTopic]


class ListOffsetsPartitionResult(KafkaMessage, kw_only=True):
    """An offset, and the time of its record; -1 for none."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Annotated[Int64, since(1)] = -1
    offset: Annotated[Int64, since(1)] = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResult(KafkaMessage, kw_only=True):
    """The offsets of one topic."""

    name: str
    partitions: Sequence[ListOffsetsPartitionResult]


class ListOffsetsResponse(KafkaMessage, kw_only=True):
    """Offsets by time."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: Sequence[ListOffsetsTopicResult]


class OffsetForLeaderPartition(KafkaMessage, kw_only=True):
    """A partition, and the leader epoch whose end is wanted."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(2)] = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(KafkaMessage, kw_only=True):
    """Asks for the ends of leader epochs, with which a reader notices that a leader was replaced."""

    replica_id: Annotated[Int32, since(3)] = -2
    topics: Sequence[OffsetForLeaderTopic]


class EpochEndOffset(KafkaMessage, kw_only=True):
    """The end of a leader epoch; -1 if it is not known."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Annotated[Int32, since(1)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(KafkaMessage, kw_only=True):
    """The ends of leader epochs of one topic."""

    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(KafkaMessage, kw_only=True):
    """The ends of leader epochs."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: Sequence[OffsetForLeaderTopicResult]


# ---- DeleteRecords ---------------------------------------------------------------------------------------------------


class DeleteRecordsPartition(KafkaMessage, kw_only=True):
    """A partition, and the offset before which records are deleted; -1: all."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(KafkaMessage, kw_only=True):
    """Deletes records before an offset."""

    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(KafkaMessage, kw_only=True):
    """The first offset that is left, or an error."""

    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(KafkaMessage, kw_only=True):
    """The outcomes for one topic."""

    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(KafkaMessage, kw_only=True):
    """The outcomes of a DeleteRecords request."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult]
