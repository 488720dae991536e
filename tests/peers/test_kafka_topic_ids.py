"""Ids of topics in use: the versions of requests that clients of Kafka send, and topics that are created again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.test_kafka_tools import GO, JAVA, java_tool
from support.go import go_tests
from support.peers import run_client, unique
from support.pravega.java import fetch_libraries
from support.pravega.relay import Relay
from support.process import CONFIG, running_gateway

from penstock.wire.codec import NEED_DATA
from penstock_kafka.codec import KafkaRequest, KafkaServer


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A relay in front of a gateway, which clients take for it."""
    with Relay() as relay:
        listener = f'[listeners.kafka]\nadvertise = "127.0.0.1:{relay.port}"'
        with running_gateway(CONFIG.replace("[listeners.kafka]", listener)) as gateway:
            relay.target = gateway.kafka_port
            yield relay


def versions(relay: Relay) -> dict[str, set[int]]:
    """Return the versions of the requests that came, by API."""
    found: dict[str, set[int]] = {}
    for said in relay.said:
        server = KafkaServer()
        server.receive(bytes(said))
        while (event := server.next_event()) is not NEED_DATA:
            assert isinstance(event, KafkaRequest)
            found.setdefault(event.api.name, set()).add(event.version)
    return found


def consumer_of(relay: Relay, topic: str) -> Any:
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{relay.port}",
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    return consumer


def produce(relay: Relay, topic: str, *values: str) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    producer = confluent.Producer({"bootstrap.servers": f"127.0.0.1:{relay.port}"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_librdkafka_fetches_by_id(relay: Relay) -> None:
    topic = unique("topic")
    produce(relay, topic, "a", "b")
    consumer = consumer_of(relay, topic)
    assert [one.value() for one in consumer.consume(2, 30)] == [b"a", b"b"]
    consumer.close()
    found = versions(relay)
    assert min(found["Fetch"]) >= 13, found
    assert max(found["Metadata"]) >= 12, found


def test_librdkafka_reads_a_topic_that_is_created_again(relay: Relay) -> None:
    """Its fetches of the old topic are refused, and it finds the new one, in which it goes on at its offset."""
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": f"127.0.0.1:{relay.port}"})
    topic = unique("topic")
    produce(relay, topic, "old", "old")
    consumer = consumer_of(relay, topic)
    assert [one.value() for one in consumer.consume(2, 30)] == [b"old", b"old"]
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    produce(relay, topic, "new", "new", "newest")
    seen, deadline = [], time.monotonic() + 60
    while b"newest" not in seen and time.monotonic() < deadline:
        for message in consumer.consume(10, 0.5):
            if message.error() is None:
                seen.append(message.value())
    consumer.close()
    assert seen == [b"newest"]


@pytest.mark.timeout(500)
def test_java_clients_produce_and_fetch_by_id(relay: Relay, tmp_path: Path) -> None:
    fetch_libraries(JAVA, tmp_path)
    place = ("--topic", unique("topic"), "--bootstrap-server", f"127.0.0.1:{relay.port}")
    java_tool(tmp_path, "ConsoleProducer", *place, given="a\nb\n")
    said = java_tool(tmp_path, "consumer.ConsoleConsumer", *place, "--from-beginning", "--max-messages", "2")
    assert said.split() == ["a", "b"]
    found = versions(relay)
    assert (min(found["Fetch"]), min(found["Produce"])) >= (13, 13), found


@pytest.mark.timeout(500)
def test_franz_go_fetches_by_id(relay: Relay, tmp_path: Path) -> None:
    command = [str(go_tests(GO, ".", tmp_path)), "-test.run=^TestProduceAndConsume$", "-test.timeout=60s"]
    where = {"KGO_SEEDS": f"127.0.0.1:{relay.port}", "TOPIC": unique("topic")}
    run_client(command, cwd=tmp_path, seconds=70, environment=where)
    found = versions(relay)
    assert min(found["Fetch"]) >= 13, found
