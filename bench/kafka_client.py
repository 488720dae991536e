"""Kafka in the benchmark's client: its bytes, its lane for appends, its script for reads.

A batch is one Produce request with one record batch, without compression, with acks of all replicas. Requests have old
versions, whose answers have a fixed shape.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from struct import unpack_from

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import wire
from lanes import LANES, Lane, Refused
from scripts import Script
from support.kafka.plain import KafkaSocket

from penstock_kafka.codec import API_OF, KafkaClient, KafkaMessage, KafkaRequest
from penstock_kafka.codec.batches import KafkaBatch, encode_batch, read_batches
from penstock_kafka.codec.group_messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupProtocol,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from penstock_kafka.codec.record_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from penstock_kafka.codec.topic_messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

__all__ = ["KAFKA", "Member", "connected", "create_topics", "end_of", "kafka_script"]

KAFKA = "kafka"
PAGE_BYTES = 1 << 20
"""Bytes that one Fetch request asks for."""
_SECONDS = 60.0
_VERSIONS = {
    "Produce": 7,
    "Fetch": 11,
    "ListOffsets": 1,
    "Metadata": 1,
    "FindCoordinator": 0,
    "JoinGroup": 2,
    "SyncGroup": 1,
    "Heartbeat": 1,
    "CreateTopics": 2,
}
"""Versions that Apache Kafka 4 still has, without flexible messages; of Fetch the last one, as librdkafka sends."""
_NOT_YET = frozenset({14, 15, 16})
"""Errors of a coordinator that has not loaded its groups yet."""


def request(message: KafkaMessage) -> bytes:
    """The bytes of a request."""
    api = API_OF[type(message)]
    return b"".join(KafkaClient().send(KafkaRequest(api, _VERSIONS[api.name], 0, "benchmark", message)))


def connected(port: int) -> KafkaSocket:
    """A connection for one request at a time."""
    return KafkaSocket(("127.0.0.1", port), _VERSIONS)


def create_topics(port: int, topics: list[str], partitions: int = 1) -> None:
    """Create topics, and wait until their partitions have leaders."""
    asking = connected(port)
    wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in topics]
    created = asking.call(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), CreateTopicsResponse)
    if any(topic.error_code for topic in created.topics):
        raise Refused(repr(created)[:300])
    deadline = time.monotonic() + _SECONDS
    for topic in topics:
        for partition in range(partitions):
            while (result := _end(asking, topic, partition)).error_code:
                if time.monotonic() > deadline:
                    raise Refused(f"topic {topic} has no leader, error {result.error_code}")
                time.sleep(0.02)
    asking.close()


def end_of(port: int, topic: str, partitions: int = 1) -> int:
    """The sum of the offsets behind the last records of a topic's partitions."""
    asking = connected(port)
    end = sum(_end(asking, topic, partition).offset for partition in range(partitions))
    asking.close()
    return end


def _end(asking: KafkaSocket, topic: str, partition: int) -> ListOffsetsPartitionResult:
    latest = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    wanted = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[latest])])
    return asking.call(wanted, ListOffsetsResponse).topics[0].partitions[0]


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
    asking = connected(port)
    steps: list[tuple[bytes, int]] = []
    offset = 0
    while offset < records:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=PAGE_BYTES)
        topic = FetchTopic(topic=stream, partitions=[part])
        fetch = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=PAGE_BYTES, topics=[topic])
        found = asking.call(fetch, FetchResponse).topics[0].partitions[0]
        batches = list(read_batches(found.records or b""))
        if found.error_code or not batches:
            raise Refused(f"{records} records were appended, {offset} came back, error {found.error_code}")
        if any(not (value or b"").startswith(wire.MARKER) for one in batches for value in one.values):
            raise Refused("a record is not what was appended")
        steps.append((request(fetch), asking.length))
        offset = batches[-1].offsets[-1] + 1
    asking.close()
    return Script(tuple(steps), offset, closes=False)


class Member:
    """The only member of a consumer group (classic protocol), with a session of 30 s. It has asked to join the group,
    which takes 3 s, the delay in which brokers wait for more members: call `join` once all members are made."""

    def __init__(self, port: int, group: str) -> None:
        self._asking = connected(port)
        self._group = group
        while self._asking.call(FindCoordinatorRequest(key=group), FindCoordinatorResponse).error_code:
            time.sleep(0.1)  # the broker creates the topic of groups for the first one
        probe = HeartbeatRequest(group_id=group, generation_id=-1, member_id="none")
        while self._asking.call(probe, HeartbeatResponse).error_code in _NOT_YET:
            time.sleep(0.1)
        protocols = [GroupProtocol(name="range", metadata=b"")]
        times = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
        self._asking.send(
            JoinGroupRequest(group_id=group, member_id="", protocol_type="consumer", protocols=protocols, **times)
        )

    def join(self) -> None:
        """Wait until it has joined the group."""
        joined = self._asking.response(JoinGroupResponse)
        who = {"group_id": self._group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        own = [SyncGroupAssignment(member_id=joined.member_id, assignment=b"")]
        synced = self._asking.call(SyncGroupRequest(assignments=own, **who), SyncGroupResponse)
        if joined.error_code or synced.error_code:
            raise Refused(f"errors {joined.error_code} and {synced.error_code}")
        self._beat = HeartbeatRequest(**who)

    def beat(self) -> None:
        """Prolong the session."""
        if error := self._asking.call(self._beat, HeartbeatResponse).error_code:
            raise Refused(f"error {error}")

    def close(self) -> None:
        """Close the connection."""
        self._asking.close()


LANES[KAFKA] = KafkaLane
