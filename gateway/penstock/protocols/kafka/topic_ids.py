"""Ids of topics (KIP-516): 16 bytes that tell a topic from earlier and later ones of its name.

Theory of operation. An id is a hash of the topic's name and of the time at which the stream of its partition 0 was
created, which is created last and deleted first. So it needs no table, it lasts as long as the topic, clients of all
protocols change it by deleting and creating a stream, and every gateway before the same store tells the same one. The
way back, from an id to a name, is remembered for those that were told; for another one all topics are looked through.
A name that is found has its id checked: the stream may have been created again since.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from math import inf
from typing import Final

import trio

from penstock.protocols.kafka.sequences import KafkaRefusal
from penstock.protocols.kafka.topics import KafkaTopics
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.schema import NO_UUID

__all__ = ["TopicIds", "TopicKey"]

TopicKey = str | bytes
"""A topic as a request names it: by its name, or by its id in newer versions."""

_REMEMBERED: Final = 100_000
"""Ids whose names are remembered, about 200 bytes each."""
_LOOK_SECONDS: Final = 1.0
"""Time between two looks through all topics."""


class TopicIds:
    """The ids of a listener's topics."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._names: OrderedDict[bytes, str] = OrderedDict()
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
        created_at = await self._topics.created_at(topic)
        return NO_UUID if created_at is None else self._id(topic, created_at)

    async def all(self) -> dict[str, tuple[int, bytes]]:
        """Return the number of partitions and the id of each topic. Raises LIMIT_EXCEEDED for too many streams."""
        found = await self._topics.all()
        return {name: (one.partitions, self._id(name, one.created_at)) for name, one in found.items()}

    async def resolve(self, topic: TopicKey) -> str:
        """Return the name of a topic. Raises KafkaRefusal (UNKNOWN_TOPIC_ID)."""
        return topic if isinstance(topic, str) else await self.name_of(topic)

    async def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic that has an id. Raises KafkaRefusal (UNKNOWN_TOPIC_ID)."""
        name = self._names.get(topic_id) or await self._looked_for(topic_id)
        try:
            if name is not None and await self.of(name) == topic_id:
                return name
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        raise KafkaRefusal(KafkaError.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")

    async def _looked_for(self, topic_id: bytes) -> str | None:
        """Return the name of a topic after a look through all of them, which all that ask meanwhile wait for."""
        async with self._looking:
            if topic_id not in self._names and self._looked_at + _LOOK_SECONDS <= trio.current_time():
                self._looked_at = trio.current_time()
                await self.all()
        return self._names.get(topic_id)

    def _id(self, topic: str, created_at: int) -> bytes:
        found = blake2b(f"{created_at} {topic}".encode(), digest_size=len(NO_UUID)).digest()
        self._names[found] = topic
        self._names.move_to_end(found)
        if len(self._names) > _REMEMBERED:
            self._names.popitem(last=False)
        return found
