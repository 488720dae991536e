"""The mapping between Kafka's topics and streams; docs/names.md explains it.

A topic of one partition is the stream of the same name in the listener's basin. A topic of several partitions is a set
of streams: partition 2 of topic `orders` is stream `orders/2`. The two exclude each other (`penstock.core.partitions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, fail
from penstock.model.records import StreamRef

__all__ = ["KafkaNames", "TopicPartition", "is_topic", "table_of", "topics_of", "without_gap"]

_LONGEST: Final = 249
_TOPIC: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST}}}")
_DOTS: Final = frozenset({".", ".."})
_MEMBER: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/(0|[1-9][0-9]{0,5})")
"""A stream of a set: the topic, and the number of the partition."""

# Not with underscores: Kafka refuses a topic whose name differs from another one's only in dots and underscores.
_ESCAPES: Final = {"-": "--", "/": "-s", "#": "-h", "_": "-u"}
"""Letters of internal streams' names, and what they are in topics' names."""
_LETTERS: Final = {escape: letter for letter, escape in _ESCAPES.items()}
_ESCAPED: Final = re.compile("|".join(_LETTERS))


def is_topic(name: str) -> bool:
    """Return whether a topic can have this name."""
    return _TOPIC.fullmatch(name) is not None and name not in _DOTS


def table_of(label: str) -> str:
    """Return the name of the table of a listener's groups and transactions. `label`: the listener's, as in routes."""
    return f"kafka/{label}"


class TopicPartition(msgspec.Struct, frozen=True):
    """A partition of a topic. `whole`: it is the only one, so its stream has the topic's name."""

    topic: str
    partition: int
    whole: bool


class KafkaNames(msgspec.Struct, frozen=True):
    """The mapping of a listener or a back. `basin`: that of all streams. `internal`: the beginning of names of topics
    that are streams of INTERNAL_BASIN; "": there are none."""

    basin: str
    internal: str = ""

    def to_stream(self, topic: str) -> StreamRef:
        """Return the stream of a topic with one partition. Raises BAD_PATH for a name that no topic can have."""
        if not is_topic(topic):
            reason = "a topic is named by 1 to 249 letters, digits, dots, hyphens and underscores"
            raise fail(FailureCode.BAD_PATH, f"{topic!r:.80}: {reason}, and not . or ..")
        return StreamRef(self.basin, topic)

    def member(self, topic: str, partition: int) -> StreamRef:
        """Return the stream of one of several partitions. Raises BAD_PATH."""
        return StreamRef(self.basin, f"{self.to_stream(topic).stream}/{partition}")

    def partition(self, partition: TopicPartition) -> StreamRef:
        """Return the stream of a partition; see `from_stream`. Raises BAD_PATH."""
        if partition.whole:
            return self.to_stream(partition.topic)
        return self.member(partition.topic, partition.partition)

    def is_member(self, stream: StreamRef, topic: str) -> bool:
        """Return whether a stream is one of several partitions of a topic."""
        match = _MEMBER.fullmatch(stream.stream)
        return match is not None and match[1] == topic

    def from_stream(self, stream: StreamRef) -> TopicPartition:
        """Return the partition that a stream is. Raises NOT_REPRESENTABLE if it is none."""
        if self.internal and stream.basin == INTERNAL_BASIN:
            return TopicPartition(self._internal_topic(stream.stream), 0, whole=True)
        if stream.basin == self.basin:
            if (match := _MEMBER.fullmatch(stream.stream)) is not None and match[1] not in _DOTS:
                return TopicPartition(match[1], int(match[2]), whole=False)
            if is_topic(stream.stream):
                return TopicPartition(stream.stream, 0, whole=True)
        reason = (
            f"stream {stream} is no topic: those are in basin {self.basin}, named by letters, digits, dots, - and _"
        )
        raise fail(FailureCode.NOT_REPRESENTABLE, reason)

    def _internal_topic(self, name: str) -> str:
        topic = self.internal + "".join(_ESCAPES.get(letter, letter) for letter in name)
        if not is_topic(topic):
            reason = f"the name of its topic would be {topic!r}, with more than {_LONGEST} letters"
            raise fail(FailureCode.NOT_REPRESENTABLE, f"internal stream {name!r}: {reason}")
        return topic

    def internal_stream(self, topic: str) -> str | None:
        """Return the name of the stream of INTERNAL_BASIN that a topic is, None if it is none."""
        if not self.internal or not topic.startswith(self.internal):
            return None
        return _ESCAPED.sub(lambda match: _LETTERS[match[0]], topic[len(self.internal) :])


async def topics_of(names: Iterable[str]) -> dict[str, int]:
    """Return the topics among the names of a basin's streams, each with its number of partitions, in order of name.

    A set of streams counts as far as its numbers have no gap, from 0 on. In the store of an older gateway a stream may
    have the name of a set: it is the topic, and the set's members are not reached.
    """
    from penstock.net.limits.work import in_turns  # the configuration's tables need these names, but no event loop

    members: dict[str, set[int]] = {}
    whole: set[str] = set()
    async for name in in_turns(names):
        if (match := _MEMBER.fullmatch(name)) is not None:
            members.setdefault(match[1], set()).add(int(match[2]))
        elif _TOPIC.fullmatch(name):
            whole.add(name)
    topics = dict.fromkeys(whole - _DOTS, 1)
    async for topic, numbers in in_turns(members.items()):
        count = without_gap(numbers)
        if count and topic not in _DOTS:
            topics.setdefault(topic, count)
    return dict(sorted(topics.items()))


def without_gap(numbers: set[int]) -> int:
    """Return how many numbers there are from 0 on without a gap."""
    return next(number for number in range(len(numbers) + 1) if number not in numbers)
