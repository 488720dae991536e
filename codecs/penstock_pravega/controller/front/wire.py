"""Conversion between the controller's protobuf messages and its own types."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import (
    Configuration,
    GroupCut,
    ReaderGroup,
    RetentionType,
    ScaleType,
)
from penstock_pravega.controller.controller.topology import Segment
from penstock_pravega.controller.controller.transactions import TransactionId
from penstock_proto import pravega_controller_pb2 as pb

__all__ = [
    "config_of",
    "reader_group_of",
    "segment_id",
    "segment_range",
    "spell_config",
    "spell_group",
    "spell_transaction",
    "status_of",
    "token",
    "transaction_of",
]

M = TypeVar("M", bound=Message)

_UNSIGNED = 2**64 - 1


async def status_of(work: Awaitable[object], done: M, refusals: Mapping[ControllerProblem, M]) -> M:
    """Return `done` after the work, or the answer for its problem; a problem without an answer is raised."""
    try:
        await work
    except ControllerRefusal as refused:
        response = refusals.get(refused.problem)
        if response is None:
            raise
        return response
    return done


def segment_id(stream: pb.StreamInfo, segment: Segment) -> pb.SegmentId:
    """Return the message that identifies a segment of `stream`."""
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=stream.scope, stream=stream.stream), segmentId=segment.id)


def segment_range(stream: pb.StreamInfo, segment: Segment) -> pb.SegmentRange:
    """Return the message that identifies a segment of `stream`, with its keys."""
    return pb.SegmentRange(segmentId=segment_id(stream, segment), minKey=segment.low, maxKey=segment.high)


def token(names: list[str], before: pb.ContinuationToken) -> pb.ContinuationToken:
    """Return the position of a listing after these names; clients expect one with each page."""
    return pb.ContinuationToken(token=names[-1] if names else before.token)


def transaction_of(message: pb.TxnId) -> TransactionId:
    """Return the id in a client's message."""
    return TransactionId(message.highBits & _UNSIGNED, message.lowBits & _UNSIGNED)


def spell_transaction(transaction: TransactionId) -> pb.TxnId:
    """Return the message for a transaction of ours, whose halves are positive as signed numbers."""
    return pb.TxnId(highBits=transaction.high, lowBits=transaction.low)


def config_of(message: pb.StreamConfig) -> Configuration:
    """Return the stream configuration in a client's message. Raises INVALID_CONFIG."""
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    if min(retention.retentionParam, retention.retentionMax) < 0:
        raise ControllerRefusal(ControllerProblem.INVALID_CONFIG, "retention is not negative")
    try:
        return Configuration(
            segments=scaling.minNumSegments,
            scale_type=ScaleType(scaling.scaleType),
            target_rate=scaling.targetRate,
            scale_factor=scaling.scaleFactor,
            retention_type=RetentionType(retention.retentionType),
            retention=retention.retentionParam,
            retention_max=retention.retentionMax,
            tags=tuple(message.tags.tag),
            timestamp_aggregation_timeout=message.timestampAggregationTimeout,
            rollover_size_bytes=message.rolloverSizeBytes,
        )
    except ValueError as error:  # a number that is not in the enum
        raise ControllerRefusal(ControllerProblem.INVALID_CONFIG, str(error)) from None


def spell_config(stream: pb.StreamInfo, config: Configuration) -> pb.StreamConfig:
    """Return the message for a stream's configuration; without retention it has no policy, as in Pravega."""
    retention = pb.RetentionPolicy(
        retentionType=pb.RetentionPolicy.RetentionPolicyType.Name(config.retention_type),
        retentionParam=config.retention,
        retentionMax=config.retention_max,
    )
    return pb.StreamConfig(
        streamInfo=pb.StreamInfo(scope=stream.scope, stream=stream.stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=pb.ScalingPolicy.ScalingPolicyType.Name(config.scale_type),
            targetRate=config.target_rate,
            scaleFactor=config.scale_factor,
            minNumSegments=config.segments,
        ),
        retentionPolicy=retention if config.retention_type else None,
        tags=pb.Tags(tag=config.tags),
        timestampAggregationTimeout=config.timestamp_aggregation_timeout,
        rolloverSizeBytes=config.rollover_size_bytes,
    )


def reader_group_of(message: pb.ReaderGroupConfiguration) -> ReaderGroup:
    """Return the reader group's configuration in a client's message."""
    return ReaderGroup(
        group_refresh_time=message.groupRefreshTimeMillis,
        checkpoint_interval=message.automaticCheckpointIntervalMillis,
        outstanding_checkpoints=message.maxOutstandingCheckpointRequest,
        retention_type=message.retentionType,
        generation=message.generation,
        id=message.readerGroupId,
        start=_cuts_of(message.startingStreamCuts),
        end=_cuts_of(message.endingStreamCuts),
        rollover_size_bytes=message.rolloverSizeBytes,
    )


def spell_group(scope: str, name: str, group: ReaderGroup) -> pb.ReaderGroupConfiguration:
    """Return the message for a reader group's configuration, with its generation."""
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=name,
        groupRefreshTimeMillis=group.group_refresh_time,
        automaticCheckpointIntervalMillis=group.checkpoint_interval,
        maxOutstandingCheckpointRequest=group.outstanding_checkpoints,
        retentionType=group.retention_type,
        generation=group.generation,
        readerGroupId=group.id,
        startingStreamCuts=map(_spell_cut, group.start),
        endingStreamCuts=map(_spell_cut, group.end),
        rolloverSizeBytes=group.rollover_size_bytes,
    )


def _cuts_of(messages: Iterable[pb.StreamCut]) -> tuple[GroupCut, ...]:
    return tuple(
        GroupCut(message.streamInfo.scope, message.streamInfo.stream, dict(message.cut)) for message in messages
    )


def _spell_cut(cut: GroupCut) -> pb.StreamCut:
    return pb.StreamCut(streamInfo=pb.StreamInfo(scope=cut.scope, stream=cut.stream), cut=cut.cut)
