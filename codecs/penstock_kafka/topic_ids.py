"""Ids of topics (KIP-516): 16 bytes that tell a topic from earlier and later ones of its name.

Theory of operation. An id is a hash of the topic's name and of the time at which the stream of its partition 0 was
created, which is created last and deleted first. So it needs no table, it lasts as long as the topic, clients of all
protocols change it by deleting and creating a stream, and every gateway before the same store tells the same one. The
way back, from an id to a topic, is remembered for those that were told; for another one all topics are looked through.
Each use of an id checks that the stream of partition 0 still is the one that was created at that time.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from math import inf
from typing import Final, NamedTuple

import trio

from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.limits.work import in_turns
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topics import FirstPartition, KafkaTopics

__all__ = ["TopicIds", "TopicKey"]

TopicKey = str | bytes
"""A topic as a request names it: by its name, or by its id in newer versions."""

_REMEMBERED: Final = 100_000
"""Ids whose topics are remembered, about 500 bytes each."""
_LOOK_SECONDS: Final = 1.0
"""Time between two looks through all topics."""


class _Topic(NamedTuple):
    name: str
    first: FirstPartition


class TopicIds:
    """The ids of a listener's topics."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._topics_by_id: OrderedDict[bytes, _Topic] = OrderedDict()
        self._looked_at = -inf
        self._looking = trio.Lock()

    async def of(self, topic: str) -> bytes:
        """Return the id of a topic; NO_UUID if it cannot be told: of a server that cannot list its streams, or for a
        client that may not list them. Such a topic is used by its name. Raises STREAM_NOT_FOUND, BAD_PATH."""
        try:
            return await self.look_up(topic)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.PERMISSION_DENIED:
                raise
            return NO_UUID

    async def look_up(self, topic: str) -> bytes:
        """Return the id of a topic; NO_UUID if the server cannot list its streams. Raises STREAM_NOT_FOUND, BAD_PATH,
        and PERMISSION_DENIED for a client that may not list them."""
        first = await self._topics.first_partition(topic)
        return NO_UUID if first is None else self._id(topic, first)

    async def all(self) -> dict[str, tuple[int, bytes]]:
        """Return the number of partitions and the id of each topic. Raises LIMIT_EXCEEDED for too many streams."""
        topics = (await self._topics.all()).items()
        return {name: (topic.partitions, self._id(name, topic.first)) async for name, topic in in_turns(topics)}

    async def resolve(self, topic: TopicKey) -> str:
        """Return the name of a topic. Raises KafkaRefusal (UNKNOWN_TOPIC_ID)."""
        return topic if isinstance(topic, str) else await self.name_of(topic)

    async def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic that has an id. Raises KafkaRefusal (UNKNOWN_TOPIC_ID)."""
        topic = self._topics_by_id.get(topic_id) or await self._looked_for(topic_id)
        if topic is not None and await self._topics.exists(topic.first):
            return topic.name
        raise KafkaRefusal(KafkaError.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")

    async def _looked_for(self, topic_id: bytes) -> _Topic | None:
        """Return a topic after a look through all of them, which all that ask meanwhile wait for."""
        async with self._looking:
            if topic_id not in self._topics_by_id and self._looked_at + _LOOK_SECONDS <= trio.current_time():
                self._looked_at = trio.current_time()
                await self.all()
        return self._topics_by_id.get(topic_id)

    def _id(self, name: str, first: FirstPartition) -> bytes:
        topic_id = blake2b(f"{first.created_at} {name}".encode(), digest_size=len(NO_UUID)).digest()
        self._topics_by_id[topic_id] = _Topic(name, first)
        self._topics_by_id.move_to_end(topic_id)
        if len(self._topics_by_id) > _REMEMBERED:
            self._topics_by_id.popitem(last=False)
        return topic_id
