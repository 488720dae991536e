"""A consumer of Kafka goes on over other protocols where its group has committed, and the other way round: no record is
lost, and none is read twice."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.bridges import EMBEDDED
from support.bridges.plain_fronts import FRONTS
from support.peers import unique
from support.process import BASIN, GatewayProcess

VALUES = [b"%d" % number * (number % 7 + 1) for number in range(120)]


@pytest.fixture(scope="module")
def kafka_gateway() -> Iterator[GatewayProcess]:
    with EMBEDDED.running() as gateway:
        yield gateway


def find(gateway: GatewayProcess, query: str) -> Any:
    url = f"http://127.0.0.1:{gateway.management_port}/positions?{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def consumer_of(gateway: GatewayProcess, group: str) -> Any:
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    options = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    return confluent.Consumer({"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}", **options})


def read_in_group(gateway: GatewayProcess, group: str, topic: str, count: int) -> list[bytes]:
    """Read so many records in a group, and commit where it is."""
    consumer = consumer_of(gateway, group)
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        [message] = consumer.consume(1, timeout=30)
        assert message.error() is None
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("front", "place"),
    [
        ("S2S", lambda read_on: int(read_on["s2"]["query"].removeprefix("seq_num="))),
        ("S3P", lambda read_on: tuple(map(int, read_on["s3p"]["min_id"].split("-")))),
        ("segment released", lambda read_on: read_on["segment"]["offset"]),
    ],
)
def test_a_consumer_moves_there_and_back(kafka_gateway: GatewayProcess, front: str, place: Any) -> None:
    """40 records in a group, 40 over another protocol, and the last 40 in a new group; the hash tells the order."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    topic, running = unique("moving"), hashlib.sha256()
    producer = confluent.Producer({"bootstrap.servers": f"127.0.0.1:{kafka_gateway.kafka_port}"})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    for value in read_in_group(kafka_gateway, f"{topic}-a", topic, 40):
        running.update(value)
    there = find(kafka_gateway, f"kafka={topic}&group={topic}-a")
    assert there["position"]["seq_num"] == 40
    client = FRONTS[front](kafka_gateway, topic)
    for seen in client.read(place(there["read_on"]))[:40]:
        running.update(seen.record.body)
    client.close()
    back = find(kafka_gateway, f"stream={BASIN}/{topic}&seq_num=80")["read_on"]["kafka"]
    consumer = consumer_of(kafka_gateway, f"{topic}-b")
    start = confluent.TopicPartition(back["topic"], back["partition"], back["offset"])
    consumer.commit(offsets=[start], asynchronous=False)
    consumer.close()
    for value in read_in_group(kafka_gateway, f"{topic}-b", topic, 40):
        running.update(value)
    assert running.digest() == hashlib.sha256(b"".join(VALUES)).digest()


def test_a_group_without_an_offset_is_named(kafka_gateway: GatewayProcess) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    producer = confluent.Producer({"bootstrap.servers": f"127.0.0.1:{kafka_gateway.kafka_port}"})
    producer.produce("unread", b"value")
    assert producer.flush(30) == 0
    with pytest.raises(urllib.error.HTTPError) as refused:
        find(kafka_gateway, "kafka=unread&group=nothing")
    assert refused.value.code == 400 and b"group 'nothing' has committed no offset" in refused.value.read()
