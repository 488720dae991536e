"""The topics that members of consumer groups have subscribed to: by name (`ConsumerProtocolSubscription`), or by a
regular expression that the coordinator matches (KIP-848)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from penstock_kafka.codec.wire import KafkaFault, KafkaReader
from penstock_kafka.groups.messages import GroupRecord

__all__ = ["subscribed_topics", "topic_expression"]

_CONSUMER: Final = "consumer"
_MOST_EXPRESSION: Final = 16_384
"""Most characters of a regular expression."""
_EXPRESSION_MEMORY: Final = 1 << 20
"""Most bytes that a compiled regular expression uses, its states while it matches included."""


@lru_cache(maxsize=100)
def topic_expression(expression: str) -> Any:
    """Compile a regular expression in RE2's syntax, which is that of Kafka's brokers. Its `fullmatch` takes time linear
    in the length of a topic's name, whatever the expression. Raises ValueError."""
    if len(expression) > _MOST_EXPRESSION:
        raise ValueError(f"a regular expression has at most {_MOST_EXPRESSION} characters, not {len(expression)}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _EXPRESSION_MEMORY
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        message = error.args[0] if error.args else ""
        reason = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise ValueError(f"{expression!r:.80} is not a regular expression: {reason}") from None


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
