"""A client of Kafka on a blocking socket, one request at a time, by the codec's client end."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self, TypeVar

from penstock.wire.codec import NEED_DATA
from penstock_kafka.codec import API_OF, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.record_messages import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

__all__ = ["BY_NAME", "KafkaSocket"]

T = TypeVar("T", bound=KafkaMessage)
BY_NAME: Final = {"Produce": 12, "Fetch": 12, "DeleteTopics": 5, "OffsetCommit": 9, "OffsetFetch": 9}
"""The last versions of requests that name topics by their names."""
_SECONDS: Final = 20.0


class KafkaSocket:
    """A connection; use it as a context manager. Raises OSError where the server is lost.

    `versions`: of requests, by name; others are sent in the newest one that the codec knows. `seconds`: the longest
    wait for bytes. `length`: bytes of the last response.
    """

    def __init__(
        self, address: tuple[str, int], versions: Mapping[str, int] = BY_NAME, seconds: float = _SECONDS
    ) -> None:
        self._versions = versions
        self.length = 0
        self._socket = socket.create_connection(address, seconds)
        self._codec = KafkaClient()
        self._numbers = itertools.count()

    def call(self, message: KafkaMessage, kind: type[T]) -> T:
        """Send a request, and return its response."""
        self.send(message)
        return self.response(kind)

    def send(self, message: KafkaMessage) -> None:
        """Send a request."""
        api = API_OF[type(message)]
        version = self._versions.get(api.name, api.newest)
        self._socket.sendall(b"".join(self._codec.send(KafkaRequest(api, version, next(self._numbers), "t", message))))

    def response(self, kind: type[T]) -> T:
        """Return the response to the request that was sent."""
        self.length = 0
        while (event := self._codec.next_event()) is NEED_DATA:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self.length += len(data)
            self._codec.receive(data)
        assert isinstance(event, KafkaResponse) and isinstance(event.message, kind), event
        return event.message

    def produce(self, topic: str, *values: bytes) -> ProducePartitionResult:
        """Append one batch to a topic of one partition, stamped with the present time."""
        count = len(values)
        batch = KafkaBatch(
            keys=[None] * count, values=values, timestamps=[int(time.time() * 1000)] * count, offsets=range(count)
        )
        given = ProduceTopic(name=topic, partitions=[ProducePartition(index=0, records=encode_batch(batch))])
        response = self.call(ProduceRequest(acks=-1, timeout_ms=10_000, topics=[given]), ProduceResponse)
        return response.topics[0].partitions[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
