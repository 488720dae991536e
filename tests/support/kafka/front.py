"""A Kafka front over a real store, in this process, for tests that run under trio."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
import trio.testing
from support.backs import DecodedBack
from support.kafka.plain import BY_NAME

from penstock.backends.logged_tables import Lease
from penstock.core.back import Back
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import ListStreams, Operation
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_kafka.codec import API_OF, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.front import KafkaFront, KafkaSettings

__all__ = ["CannotList", "Client", "Connect", "fetched", "records", "serving"]

T = TypeVar("T", bound=KafkaMessage)


class Client:
    """A client by the codec's own client end, which refuses responses that do not fit their requests."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.codec = KafkaClient()
        self._numbers = itertools.count(1)

    async def send(self, message: KafkaMessage, version: int | None = None, *, answered: bool = True) -> KafkaRequest:
        """Send a request, in its newest version, or the last one by the names of topics, unless another is given."""
        api = API_OF[type(message)]
        number = next(self._numbers)
        version = BY_NAME.get(api.name, api.newest) if version is None else version
        request = KafkaRequest(api, version, number, "test", message)
        await self.stream.send_all(b"".join(self.codec.send(request, answered=answered)))
        return request

    async def response(self) -> KafkaMessage | None:
        """Return the next response; None if the server closed the connection."""
        while (event := self.codec.next_event()) is NEED_DATA:
            self.codec.receive(await self.stream.receive_some(65536))
        if event is PAUSED:
            return None
        assert isinstance(event, KafkaResponse)
        return event.message

    async def call(self, message: KafkaMessage, kind: type[T], version: int | None = None) -> T:
        """Send a request, and return its response."""
        await self.send(message, version)
        found = await self.response()
        assert isinstance(found, kind), found
        return found

    async def ended(self) -> bool:
        """Return whether the server closes without another byte."""
        return await self.stream.receive_some(65536) == b""

    async def produce(
        self, batch: KafkaBatch | bytes, topic: str = "t", partition: int = 0, acks: int = -1
    ) -> ProducePartitionResult:
        """Append a batch to one partition."""
        data = batch if isinstance(batch, bytes) else encode_batch(batch)
        given = ProduceTopic(name=topic, partitions=[ProducePartition(index=partition, records=data)])
        response = await self.call(ProduceRequest(acks=acks, timeout_ms=1000, topics=[given]), ProduceResponse)
        return response.topics[0].partitions[0]

    async def fetch(self, offset: int = 0, topic: str = "t", **bounds: int) -> FetchPartitionResult:
        """Read one partition."""
        response = await self.call(fetching({(topic, 0): offset}, **bounds), FetchResponse)
        return response.topics[0].partitions[0]


def fetching(
    offsets: dict[tuple[str, int], int],
    *,
    wait: int = 0,
    least: int = 1,
    most: int = 1 << 20,
    each: int = 1 << 20,
) -> FetchRequest:
    """Return a Fetch request for these partitions."""
    topics = [
        FetchTopic(
            topic=topic, partitions=[FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=each)]
        )
        for (topic, number), offset in offsets.items()
    ]
    return FetchRequest(max_wait_ms=wait, min_bytes=least, max_bytes=most, topics=topics)


def records(
    *values: bytes | None, key: bytes | None = None, sequence: int = -1, producer: int = -1, epoch: int = 0
) -> KafkaBatch:
    """Return a batch of these values."""
    count = len(values)
    return KafkaBatch(
        keys=[key] * count,
        values=list(values),
        timestamps=[1_700_000_000_000] * count,
        offsets=range(count),
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
    )


def fetched(result: FetchPartitionResult) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record that is no control record."""
    assert result.error_code == 0, result.error_code
    return [
        (offset, key, value)
        for batch in read_batches(result.records or b"")
        if not batch.control
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True)
    ]


class CannotList(DecodedBack):
    """A back whose server cannot list its streams, as S3P's cannot."""

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, ListStreams):
            raise fail(FailureCode.NOT_IMPLEMENTED, "no listings")
        return await super().perform(operation)


Connect = Callable[[], Client]


@asynccontextmanager
async def serving(
    back: Back, settings: KafkaSettings | None = None, lease: Lease | None = None
) -> AsyncIterator[tuple[Connect, KafkaFront]]:
    """Serve connections in memory until the block ends; nothing runs the front's duties."""
    front = KafkaFront(back, settings, lease=lease)
    async with trio.open_nursery() as nursery:

        def connect() -> Client:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(front.serve, theirs)
            return Client(ours)

        yield connect, front
        nursery.cancel_scope.cancel()
