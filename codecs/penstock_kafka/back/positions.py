"""Positions in a partition, by requests to its leader: its ends, records by time, and identifiers.

Offsets are sequence numbers. The identifier of a record is its timestamp, and how many offsets it is behind the first
record with that timestamp, which a broker finds by time (ListOffsets). The gateway keeps that offset only for trims
within one ms; see `penstock.backends.trim_points`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.backends.trim_points import TrimPoint, TrimPoints
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import (
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    Start,
)
from penstock.model.records import RecordId, StreamPosition, StreamRef
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.codec.record_messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock_kafka.names import TopicPartition

__all__ = ["COMMITTED", "KafkaPositions", "PartitionSpot"]

COMMITTED: Final = 1
"""The isolation level of all reads: no records of open or aborted transactions."""
_END: Final = -1
_BEGINNING: Final = -2
_NEWEST: Final = -3
_LARGEST: Final = (1 << 63) - 1
_REMEMBERED: Final = 1000


class PartitionSpot(NamedTuple):
    """An offset, and the timestamp of its record. `at_tail`: there is none yet; the timestamp is the newest one's.
    `gap`: see `Located`."""

    offset: int
    timestamp: int
    at_tail: bool = False
    gap: int = 0


class KafkaPositions:
    """Positions in the partitions of a cluster. Each method raises OperationFailed."""

    def __init__(self, brokers: Brokers, trims: TrimPoints) -> None:
        self._brokers = brokers
        self._trims = trims
        self._firsts: OrderedDict[tuple[TopicPartition, int], int] = OrderedDict()

    async def _look_up(self, partition: TopicPartition, time: int) -> PartitionSpot:
        """Ask for the offset by time; -1, the end, where there is none."""
        wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=min(time, _LARGEST))
        topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(isolation_level=COMMITTED, topics=[topic])

        async def attempt() -> PartitionSpot:
            response = await self._brokers.ask_leader(partition, request, ListOffsetsResponse)
            result = response.topics[0].partitions[0]
            self._brokers.check(partition, result.error_code)
            return PartitionSpot(result.offset, result.timestamp)

        return await self._brokers.retrying(attempt)

    async def end(self, partition: TopicPartition) -> int:
        """Return the next offset, behind the last committed record."""
        return (await self._look_up(partition, _END)).offset

    async def beginning(self, partition: TopicPartition) -> int:
        """Return the first offset that is left."""
        return (await self._look_up(partition, _BEGINNING)).offset

    async def newest_spot(self, partition: TopicPartition) -> PartitionSpot:
        """Return the record with the largest timestamp: offset -1 and timestamp 0 if the partition has no records."""
        spot = await self._look_up(partition, _NEWEST)
        return spot._replace(timestamp=max(spot.timestamp, 0))

    async def newest(self, partition: TopicPartition) -> int:
        """Return the largest timestamp of the partition, in ms; 0 if it has no records."""
        return (await self.newest_spot(partition)).timestamp

    async def tail(self, partition: TopicPartition) -> StreamPosition:
        """Return the tail of the stream. Records that come meanwhile may have a later timestamp than it says, and never
        an earlier one."""
        timestamp = await self.newest(partition)
        return StreamPosition(await self.end(partition), timestamp)

    # ---- identifiers -------------------------------------------------------------------------------------------------

    async def first_at(self, partition: TopicPartition, timestamp: int) -> PartitionSpot | None:
        """Return the first record stamped at or after a time, None if there is none."""
        spot = await self._look_up(partition, timestamp)
        return None if spot.offset < 0 else spot

    async def record_id(self, partition: TopicPartition, offset: int, timestamp: int) -> RecordId:
        """Return the identifier of a record, or of the next one if it will have this timestamp."""
        first = self._firsts.get((partition, timestamp))
        if first is None or first > offset:
            spot = await self.first_at(partition, timestamp)
            # Without that record, or if timestamps fall, this is the first that is known.
            known = offset if spot is None or spot.timestamp != timestamp else min(spot.offset, offset)
            first = await self._remember(partition, timestamp, known)
        self._firsts.move_to_end((partition, timestamp))
        return RecordId(timestamp, offset - first)

    async def _remember(self, partition: TopicPartition, timestamp: int, offset: int) -> int:
        """Return the offset of the first record ever stamped `timestamp`, and remember it; `offset`: the first left."""
        first = await self._trims.first(self._trimmed(partition), timestamp, offset)
        self._firsts[partition, timestamp] = first
        while len(self._firsts) > _REMEMBERED:
            self._firsts.popitem(last=False)
        return first

    def _trimmed(self, partition: TopicPartition) -> StreamRef:
        """Return the stream by whose name trims of a partition are stored. For partition 0 it is the topic's name,
        which its stream has until the topic gets more partitions."""
        return self._brokers.settings.names.partition(replace(partition, whole=partition.partition == 0))

    async def trimming(self, partition: TopicPartition, offset: int, timestamp: int) -> None:
        """Store what keeps the identifiers when the records before this one are trimmed."""
        if place := (await self.record_id(partition, offset, timestamp)).seq:
            cut = TrimPoint(timestamp, offset - place, offset)
            await self._trims.keep(self._trimmed(partition), cut)

    async def forget(self, partition: TopicPartition) -> None:
        """Forget the records of a topic that was deleted, or is new."""
        for key in [key for key in self._firsts if key[0].topic == partition.topic]:
            del self._firsts[key]
        await self._trims.forget(self._trimmed(partition))

    # ---- starts ------------------------------------------------------------------------------------------------------

    async def spot(self, partition: TopicPartition, start: Start) -> PartitionSpot:
        """Return the first record at or after `start`, or the tail. Its timestamp is not known (-1) for a start by
        number or from the tail. Raises NOT_IMPLEMENTED for byte offsets."""
        match start:
            case FromSeqNum(seq_num):
                # In this order: a trim in between could put a later beginning behind an earlier end.
                first = max(seq_num, await self.beginning(partition))
                end = await self.end(partition)
                return PartitionSpot(min(first, end), -1, at_tail=first >= end)
            case FromTailOffset(distance):
                beginning = await self.beginning(partition)
                end = await self.end(partition)
                first = max(end - distance, beginning)
                return PartitionSpot(first, -1, at_tail=first >= end)
            case FromTimestamp(timestamp):
                return await self.first_at(partition, timestamp) or await self._tail_spot(partition, timestamp)
            case FromRecordId(record_id):
                return await self._spot_of_id(partition, record_id)
            case FromByteOffset():
                raise fail(FailureCode.NOT_IMPLEMENTED, f"{self._brokers.where}: Kafka has no byte offsets")

    async def _tail_spot(self, partition: TopicPartition, timestamp: int) -> PartitionSpot:
        """Return the tail, or the first record at or after a time if it has come since none was found."""
        tail = PartitionSpot(*await self.tail(partition), at_tail=True)
        return await self.first_at(partition, timestamp) or tail

    async def _spot_of_id(self, partition: TopicPartition, record_id: RecordId) -> PartitionSpot:
        first = await self.first_at(partition, record_id.ms)
        if first is None:
            return await self._tail_spot(partition, record_id.ms)
        if first.timestamp > record_id.ms:
            return first
        known = self._firsts.get((partition, record_id.ms))
        if known is None:
            known = await self._remember(partition, record_id.ms, first.offset)
        offset = known + record_id.seq
        if offset <= first.offset:
            return first
        # The record is `seq` behind the first of its ms, or the first of a later ms, whichever comes first.
        later = await self.first_at(partition, record_id.ms + 1) or await self._tail_spot(partition, record_id.ms + 1)
        return later if later.offset <= offset else PartitionSpot(offset, record_id.ms)
