"""Messages of transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from penstock_kafka.codec.group_messages import CommittedTopic
from penstock_kafka.codec.schema import Int16, Int32, Int64, KafkaMessage, since

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "TxnOffset",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "TxnOffsets",
    "TxnPartitionResult",
    "TxnTopic",
    "TxnTopicResult",
]


class TxnTopic(KafkaMessage, kw_only=True):
    """Partitions of one topic."""

    name: str
    partitions: Sequence[Int32]


class _OfProducer(KafkaMessage, kw_only=True):
    """A request of a transactional producer."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16


class _Outcome(KafkaMessage, kw_only=True):
    """The outcome of a request."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class AddPartitionsToTxnRequest(_OfProducer, kw_only=True):
    """Adds partitions to a producer's transaction, which begins with them if none is open."""

    topics: Sequence[TxnTopic]


class TxnPartitionResult(KafkaMessage, kw_only=True):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


class TxnTopicResult(KafkaMessage, kw_only=True):
    """The outcomes for one topic."""

    name: str
    partitions: Sequence[TxnPartitionResult]


class AddPartitionsToTxnResponse(KafkaMessage, kw_only=True):
    """The outcomes of an AddPartitionsToTxn request."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnTopicResult]


class AddOffsetsToTxnRequest(_OfProducer, kw_only=True):
    """Adds the offsets of a group to a producer's transaction."""

    group_id: str


class AddOffsetsToTxnResponse(_Outcome, kw_only=True):
    """The outcome of an AddOffsetsToTxn request."""


class EndTxnRequest(_OfProducer, kw_only=True):
    """Commits or aborts a producer's transaction."""

    committed: bool


class EndTxnResponse(_Outcome, kw_only=True):
    """The outcome of an EndTxn request."""


class TxnOffset(KafkaMessage, kw_only=True):
    """The offset of the record that a group reads next in a partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: str | None = None


class TxnOffsets(KafkaMessage, kw_only=True):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[TxnOffset]


class TxnOffsetCommitRequest(KafkaMessage, kw_only=True):
    """Commits offsets of a group within a transaction."""

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[str, since(3)] = ""
    group_instance_id: Annotated[str | None, since(3)] = None
    topics: Sequence[TxnOffsets]


class TxnOffsetCommitResponse(KafkaMessage, kw_only=True):
    """The outcomes of a TxnOffsetCommit request."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[CommittedTopic]
