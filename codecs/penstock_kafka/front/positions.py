"""APIs about positions: ListOffsets, OffsetForLeaderEpoch and DeleteRecords. Offsets are sequence numbers."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, FromSeqNum, FromTimestamp, Locate, Start, Trim
from penstock.model.records import StreamPosition, StreamRef
from penstock_kafka.codec.record_messages import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.cluster import LEADER_EPOCH
from penstock_kafka.topics import KafkaTopics

__all__ = ["PositionHandlers", "first_left"]

_LATEST, _EARLIEST, _NEWEST = -1, -2, -3
"""Times that stand for the end of a partition, its beginning, and its record with the largest timestamp."""
_ALL: Final = -1
"""The offset that stands for the end in DeleteRecords."""
_NOWHERE: Final = (-1, -1)


async def first_left(back: Back, stream: StreamRef) -> int:
    """Return the first offset of a stream that was not trimmed. It may have no record, as in Kafka."""
    return (await back.perform(Locate(stream, FromSeqNum(0)))).before_gap


class PositionHandlers:
    """Handlers of ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(self, back: Back, topics: KafkaTopics) -> None:
        self._back = back
        self._topics = topics
        self.handlers: KafkaHandlers = {
            ListOffsetsRequest: self._list,
            OffsetForLeaderEpochRequest: self._epochs,
            DeleteRecordsRequest: self._delete,
        }

    # ---- ListOffsets -------------------------------------------------------------------------------------------------

    async def _list(self, request: ListOffsetsRequest, call: KafkaCall) -> ListOffsetsResponse:
        topics = []
        async for topic in call.each(request.topics):
            partitions = [
                await self._listed(topic.name, partition, call) async for partition in call.each(topic.partitions)
            ]
            topics.append(ListOffsetsTopicResult(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    async def _listed(self, topic: str, partition: ListOffsetsPartition, call: KafkaCall) -> ListOffsetsPartitionResult:
        result = ListOffsetsPartitionResult(partition_index=partition.partition_index, leader_epoch=LEADER_EPOCH)
        try:
            result.offset, result.timestamp = await self._topics.on(
                topic, partition.partition_index, partial(self._at_time, partition.timestamp)
            )
        except OperationFailed as error:
            result.error_code = call.refused(error.failure)
        return result

    async def _at_time(self, timestamp: int, stream: StreamRef) -> tuple[int, int]:
        """Return offset and timestamp for a time; the timestamp is -1 for the ends, and both for no record."""
        if timestamp == _LATEST:
            return (await self._tail(stream)).seq_num, -1
        if timestamp == _EARLIEST:
            return await first_left(self._back, stream), -1
        start: Start = FromTimestamp(timestamp)
        if timestamp == _NEWEST:
            tail = await self._tail(stream)
            if not tail.seq_num:
                return _NOWHERE
            start = FromTimestamp(tail.timestamp)
        elif timestamp < 0:
            raise fail(FailureCode.INVALID, f"time {timestamp} stands for nothing; -1, -2 and -3 do")
        located = await self._back.perform(Locate(stream, start))
        return _NOWHERE if located.at_tail else (located.seq_num, located.timestamp)

    async def _tail(self, stream: StreamRef) -> StreamPosition:
        return await self._back.perform(CheckTail(stream, create_if_missing=False))

    # ---- OffsetForLeaderEpoch ----------------------------------------------------------------------------------------

    async def _epochs(self, request: OffsetForLeaderEpochRequest, call: KafkaCall) -> OffsetForLeaderEpochResponse:
        topics = []
        async for topic in call.each(request.topics):
            partitions = [
                await self._end_of(topic.topic, partition, call) async for partition in call.each(topic.partitions)
            ]
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        return OffsetForLeaderEpochResponse(topics=topics)

    async def _end_of(self, topic: str, partition: OffsetForLeaderPartition, call: KafkaCall) -> EpochEndOffset:
        """Return the end of a leader epoch: that of the stream, since there is only one epoch. It is the last one
        before later epochs too, which clients may have from a cluster behind."""
        result = EpochEndOffset(partition=partition.partition)
        try:
            tail = await self._topics.on(topic, partition.partition, self._tail)
        except OperationFailed as error:
            result.error_code = call.refused(error.failure)
            return result
        if partition.leader_epoch >= LEADER_EPOCH:
            result.leader_epoch, result.end_offset = LEADER_EPOCH, tail.seq_num
        return result

    # ---- DeleteRecords -----------------------------------------------------------------------------------------------

    async def _delete(self, request: DeleteRecordsRequest, call: KafkaCall) -> DeleteRecordsResponse:
        topics = []
        async for topic in call.each(request.topics):
            partitions = [
                await self._deleted(topic.name, partition, call) async for partition in call.each(topic.partitions)
            ]
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        return DeleteRecordsResponse(topics=topics)

    async def _deleted(
        self, topic: str, partition: DeleteRecordsPartition, call: KafkaCall
    ) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(partition_index=partition.partition_index)
        try:
            result.low_watermark = await self._topics.on(
                topic, partition.partition_index, partial(self._trim, partition.offset)
            )
        except OperationFailed as error:
            result.error_code = call.refused(error.failure)
        return result

    async def _trim(self, offset: int, stream: StreamRef) -> int:
        """Delete the records before an offset; return the first one that is left."""
        tail = (await self._tail(stream)).seq_num
        if offset != _ALL and not 0 <= offset <= tail:
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, f"offset {offset} is beyond the end, {tail}")
        start = FromSeqNum(tail if offset == _ALL else offset)
        return (await self._back.perform(Trim(stream, start))).seq_num
