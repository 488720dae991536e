"""The terms of Kafka's clients: topics with partitions, and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import FromSeqNum, Located, Start
from penstock.model.records import StreamRef
from penstock.protocols.terms import Terms
from penstock.tables.journal import TableJournal
from penstock.tables.struct_table import StructTable
from penstock_kafka.groups.offsets import CommittedOffsets, GroupPartition
from penstock_kafka.names import KafkaNames, table_of
from penstock_kafka.topics import KafkaTopics

__all__ = ["KafkaTerms"]


class KafkaTerms(Terms):
    """The terms of a Kafka listener's clients. A partition of several is named TOPIC/PARTITION."""

    def __init__(self, names: KafkaNames) -> None:
        self._names = names

    def to_stream(self, name: str) -> StreamRef:
        """Return the stream of a topic, or of TOPIC/PARTITION."""
        topic, slash, partition = name.partition("/")
        if slash and partition.isdigit():
            return self._names.member(topic, int(partition))
        return self._names.to_stream(name)

    def name_of(self, stream: StreamRef) -> str:
        """Return the topic, or TOPIC/PARTITION. Raises NOT_REPRESENTABLE."""
        self._names.from_stream(stream)
        return stream.stream

    has_groups = True

    async def committed(self, back: Back, label: str, group: str, stream: StreamRef) -> Start:
        """Return the offset that a group has committed. Raises BAD_QUERY if it has none, and STREAM_NOT_FOUND."""
        partition = self._names.from_stream(stream)
        table = StructTable(back, table_of(label))
        offsets = CommittedOffsets(table, TableJournal(table))
        [offset] = await offsets.get(group, [GroupPartition(partition.topic, partition.partition)])
        _, created_at = (await KafkaTopics(back, self._names).creations(partition.topic))[partition.partition]
        if offset is None or offset.created_at != created_at:
            raise fail(FailureCode.BAD_QUERY, f"group {group!r:.80} has committed no offset of {stream}")
        return FromSeqNum(offset.offset)

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return topic, partition, and the offset to read from."""
        try:
            partition = self._names.from_stream(stream)
        except OperationFailed:
            return {}
        return {"kafka": {"topic": partition.topic, "partition": partition.partition, "offset": located.seq_num}}
