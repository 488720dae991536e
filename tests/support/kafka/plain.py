"""A client of Kafka on a blocking socket, one request at a time, by the codec's client end."""

from __future__ import annotations

import itertools
import socket
import time
from types import TracebackType
from typing import Final, Self, TypeVar

from support.kafka.front import BY_NAME

from penstock_codecs.codec import NEED_DATA
from penstock_codecs.kafka import APIS, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_codecs.kafka.batches import KafkaBatch, encode_batch
from penstock_codecs.kafka.record_messages import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

__all__ = ["KafkaSocket"]

T = TypeVar("T", bound=KafkaMessage)
_APIS: Final = {api.request: api for api in APIS.values()}
_SECONDS: Final = 20.0


class KafkaSocket:
    """A connection; use it as a context manager. Raises OSError where the server is lost."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, _SECONDS)
        self._codec = KafkaClient()
        self._numbers = itertools.count()

    def call(self, message: KafkaMessage, kind: type[T]) -> T:
        """Send a request in the newest version that names topics, and return its response."""
        api = _APIS[type(message)]
        request = KafkaRequest(api, BY_NAME.get(api.name, api.newest), next(self._numbers), "t", message)
        self._socket.sendall(b"".join(self._codec.send(request)))
        while (event := self._codec.next_event()) is NEED_DATA:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the server closed the connection")
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
        self._socket.close()
