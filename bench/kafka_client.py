"""Kafka in the benchmark's client: its bytes, its lane for appends, its script for reads.

A batch is one Produce request with one record batch, without compression, with acks of all replicas. Requests have old
versions, whose answers have a fixed shape.
"""

from __future__ import annotations

import itertools
import socket
import time
from struct import unpack_from
from typing import TypeVar

import wire
from lanes import LANES, Lane, Refused
from scripts import Script

from penstock_codecs.codec import NEED_DATA
from penstock_codecs.kafka import APIS, KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse
from penstock_codecs.kafka.batches import KafkaBatch, encode_batch, read_batches
from penstock_codecs.kafka.cluster_messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock_codecs.kafka.record_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from penstock_codecs.kafka.topic_messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

__all__ = ["KAFKA", "Asking", "create_topics", "end_of", "kafka_script"]

KAFKA = "kafka"
PAGE_BYTES = 1 << 20
"""Bytes that one Fetch request asks for."""
_SECONDS = 60.0
_VERSIONS = {ProduceRequest: 7, FetchRequest: 4, ListOffsetsRequest: 1, MetadataRequest: 1, CreateTopicsRequest: 2}
"""Versions that Apache Kafka 4 still has, and whose messages are not flexible."""
_APIS = {api.request: api for api in APIS.values()}

M = TypeVar("M", bound=KafkaMessage)


def request(message: KafkaMessage, number: int = 0) -> bytes:
    """The bytes of a request."""
    return b"".join(KafkaClient().send(_numbered(message, number)))


def _numbered(message: KafkaMessage, number: int) -> KafkaRequest:
    return KafkaRequest(_APIS[type(message)], _VERSIONS[type(message)], number, "benchmark", message)


class Asking:
    """A connection for one request at a time. `length`: bytes of the last answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._codec = KafkaClient()
        self._numbers = itertools.count()
        self.length = 0

    def __call__(self, message: KafkaMessage, kind: type[M]) -> M:
        """Return the answer to a request, which must be of this kind."""
        self.socket.sendall(b"".join(self._codec.send(_numbered(message, next(self._numbers)))))
        self.length = 0
        while (event := self._codec.next_event()) is NEED_DATA:
            data = self.socket.recv(1 << 20)
            if not data:
                raise Refused("the connection was closed")
            self.length += len(data)
            self._codec.receive(data)
        if not isinstance(event, KafkaResponse) or not isinstance(event.message, kind):
            raise Refused(repr(event)[:300])
        return event.message


def create_topics(port: int, topics: list[str]) -> None:
    """Create topics of one partition, and wait until they have leaders."""
    asking = Asking(port)
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    created = asking(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), CreateTopicsResponse)
    if any(topic.error_code for topic in created.topics):
        raise Refused(repr(created)[:300])
    look = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
    deadline = time.monotonic() + _SECONDS
    while True:
        found = asking(look, MetadataResponse).topics
        if not any(topic.error_code or topic.partitions[0].error_code for topic in found):
            break
        if time.monotonic() > deadline:
            raise Refused(f"no leader: {found!r:.300}")
        time.sleep(0.02)
    asking.socket.close()


def end_of(port: int, topic: str) -> int:
    """The offset behind the last record of a topic."""
    asking = Asking(port)
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    wanted = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[latest])])
    found = asking(wanted, ListOffsetsResponse).topics[0].partitions[0].offset
    asking.socket.close()
    return found


class KafkaLane(Lane):
    """A producer. The topic must be there."""

    def batch(self, body: bytes) -> bytes:
        now, count = int(time.time() * 1000), self.count
        columns = {"keys": [None] * count, "values": [body] * count, "timestamps": [now] * count}
        records = encode_batch(KafkaBatch(**columns, offsets=range(count)))
        topic = ProduceTopic(name=self.stream, partitions=[ProducePartition(index=0, records=records)])
        self._error_at = 22 + len(self.stream.encode())  # behind length, number, count, name, count, partition
        return request(ProduceRequest(acks=-1, timeout_ms=30_000, topics=[topic]))

    def open(self) -> None:
        self._held = b""

    def credit(self, data: bytes) -> int:
        data = self._held + data
        at = acks = 0
        while len(data) - at >= 4:
            end = at + 4 + unpack_from(">i", data, at)[0]
            if end > len(data):
                break
            if error := unpack_from(">h", data, at + self._error_at)[0]:
                raise Refused(f"error {error}: {data[at : at + 300]!r}")
            acks += 1
            at = end
        self._held = data[at:]
        return acks


def kafka_script(port: int, stream: str, records: int) -> Script:
    """Fetch requests of 1 MiB each, each from behind the last record of the one before."""
    asking = Asking(port)
    steps: list[tuple[bytes, int]] = []
    offset = 0
    while offset < records:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=PAGE_BYTES)
        topic = FetchTopic(topic=stream, partitions=[part])
        fetch = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=PAGE_BYTES, topics=[topic])
        found = asking(fetch, FetchResponse).topics[0].partitions[0]
        batches = list(read_batches(found.records or b""))
        if found.error_code or not batches:
            raise Refused(f"{records} records were appended, {offset} came back, error {found.error_code}")
        if any(not (value or b"").startswith(wire.MARKER) for one in batches for value in one.values):
            raise Refused("a record is not what was appended")
        steps.append((request(fetch), asking.length))
        offset = batches[-1].offsets[-1] + 1
    asking.socket.close()
    return Script(tuple(steps), offset, closes=False)


LANES[KAFKA] = KafkaLane
