"""The topics that members of consumer groups have subscribed to (`ConsumerProtocolSubscription`)."""

from __future__ import annotations

from typing import Final

from penstock.protocols.kafka.groups.messages import GroupRecord
from penstock_codecs.kafka.wire import KafkaFault, KafkaReader

__all__ = ["subscribed_topics"]

_CONSUMER: Final = "consumer"


def subscribed_topics(group: GroupRecord) -> set[str] | None:
    """Return the topics that the members of a group have subscribed to; None if their subscriptions are not those of
    consumers, or cannot be read."""
    if group.members and group.protocol_type != _CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members:
        for _, metadata in member.protocols:
            try:
                topics |= _topics(KafkaReader(metadata, items=len(metadata)))
            except (KafkaFault, UnicodeDecodeError):
                return None
    return topics


def _topics(reader: KafkaReader) -> set[str]:
    reader.int16()  # its version: the topics come first in all of them
    count = reader.count(compact=False) or 0
    return {str(reader.block(compact=False, small=True, what="topic") or b"", "utf-8") for _ in range(count)}
