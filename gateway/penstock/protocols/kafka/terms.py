"""The terms of Kafka's clients: topics with partitions, and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.protocols.kafka.names import KafkaNames
from penstock.protocols.terms import Terms
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Located

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

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return topic, partition, and the offset to read from."""
        try:
            found = self._names.from_stream(stream)
        except OperationFailed:
            return {}
        return {"kafka": {"topic": found.topic, "partition": found.partition, "offset": located.seq_num}}
