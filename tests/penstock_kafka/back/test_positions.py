"""The place in a partition where a read begins."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.operations import FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Start
from penstock.model.records import RecordId
from penstock_kafka.back.positions import KafkaPositions, PartitionSpot
from penstock_kafka.names import TopicPartition

PARTITION = TopicPartition("topic", 0, whole=True)


class _MovingPositions(KafkaPositions):
    """Positions in a partition of the offsets 28 to 35. Once it has been asked for one of its ends, seven records come,
    and those before 37 are removed."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing)
        self._ends = 28, 36

    async def beginning(self, partition: TopicPartition) -> int:
        return self._move()[0]

    async def end(self, partition: TopicPartition) -> int:
        return self._move()[1]

    async def first_at(self, partition: TopicPartition, timestamp: int) -> PartitionSpot | None:
        came = self._ends[0] == 37 and timestamp <= 2000
        self._move()
        return PartitionSpot(40, 2000) if came else None

    async def newest(self, partition: TopicPartition) -> int:
        return 2000

    def _move(self) -> tuple[int, int]:
        found, self._ends = self._ends, (37, 43)
        return found


@pytest.mark.parametrize(
    ("start", "spot"),
    [(FromSeqNum(0), PartitionSpot(28, -1)), (FromTailOffset(100), PartitionSpot(28, -1))],
)
async def test_a_partition_that_is_trimmed_meanwhile_is_not_taken_for_empty(start: Start, spot: PartitionSpot) -> None:
    assert await _MovingPositions().spot(PARTITION, start) == spot


@pytest.mark.parametrize("start", [FromTimestamp(2000), FromRecordId(RecordId(2000, 0))])
async def test_records_that_come_while_the_tail_is_asked_for_are_not_left_out(start: Start) -> None:
    assert await _MovingPositions().spot(PARTITION, start) == PartitionSpot(40, 2000)


async def test_what_is_later_than_all_records_begins_at_the_tail() -> None:
    assert await _MovingPositions().spot(PARTITION, FromTimestamp(2001)) == PartitionSpot(43, 2000, at_tail=True)
