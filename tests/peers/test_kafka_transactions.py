"""Transactions of librdkafka (confluent-kafka) and of the Java client, with gateways that are killed; and what clients
of all other protocols see of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.bridges import EMBEDDED
from support.bridges.plain_fronts import FRONTS
from support.peers import unique
from support.process import GatewayProcess


@pytest.fixture(scope="module")
def txn_gateway() -> Iterator[GatewayProcess]:
    with EMBEDDED.running() as gateway:
        yield gateway


@pytest.fixture
def topic() -> str:
    return unique("topic")


def server(gateway: GatewayProcess) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}"}


def producer_of(gateway: GatewayProcess, name: str) -> Any:
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    producer = confluent.Producer({**server(gateway), "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(60)
    return producer


def read_all(gateway: GatewayProcess, topic: str, level: str = "read_committed") -> list[bytes]:
    """Return the values of a topic of one partition."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    options = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": level}
    consumer = confluent.Consumer({**server(gateway), **options})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(30)) is not None:
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            break
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_only_committed_records_are_read(txn_gateway: GatewayProcess, topic: str, level: str) -> None:
    producer = producer_of(txn_gateway, topic)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"%d %d" % (commit, number))
        assert producer.flush(30) == 0
        before = read_all(txn_gateway, topic, level)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        assert before == read_all(txn_gateway, topic, level)[: len(before)]
    assert read_all(txn_gateway, topic, level) == [b"1 0", b"1 1", b"1 2"] * 2


@pytest.mark.parametrize("front", FRONTS)
def test_other_protocols_read_committed_records_only(txn_gateway: GatewayProcess, topic: str, front: str) -> None:
    producer = producer_of(txn_gateway, topic)
    for text, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(30) == 0
    client = FRONTS[front](txn_gateway, topic)
    assert [seen.record.body for seen in client.read(client.start())] == [b"committed"]
    client.close()
    producer.abort_transaction(30)


def test_an_older_producer_is_fenced(txn_gateway: GatewayProcess, topic: str) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    old = producer_of(txn_gateway, topic)
    old.begin_transaction()
    old.produce(topic, b"lost")
    assert old.flush(30) == 0
    new = producer_of(txn_gateway, topic)
    with pytest.raises(confluent.KafkaException) as fenced:
        old.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"kept")
    new.commit_transaction(30)
    assert read_all(txn_gateway, topic) == [b"kept"]


@pytest.mark.timeout(300)
def test_records_are_passed_on_exactly_once_by_a_gateway_that_is_killed(fresh_gateway: GatewayProcess) -> None:
    """A group consumes, and commits its offsets with what it produces; the gateway is killed while transactions end.

    It is not killed before the offsets are sent: librdkafka 2.x then waits for ever, with no request on its way.
    """
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    given = [b"%06d" % number for number in range(1500)]
    first = confluent.Producer({**server(fresh_gateway), "enable.idempotence": True})
    for value in given:
        first.produce("given", value)
    assert first.flush(60) == 0
    consumer = confluent.Consumer(
        {
            **server(fresh_gateway),
            "group.id": "copies",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["given"])
    producer = producer_of(fresh_gateway, "copies")
    done = rounds = 0
    deadline = time.monotonic() + 200
    while done < len(given):
        assert time.monotonic() < deadline, f"{done} of {len(given)} records"
        messages = [one for one in consumer.consume(100, timeout=5) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("taken", message.value())
        rounds += 1
        aborts = rounds % 5 == 0
        try:
            place = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), 60)
            killer = threading.Timer(0.01 * (rounds % 4), fresh_gateway.restart, kwargs={"kill": True})
            if rounds % 3 == 0:  # at some time of the flush, the decision, or the appends
                killer.start()
            if not aborts:
                producer.commit_transaction(60)
                done += len(messages)
            if rounds % 3 == 0:
                killer.join()
        except confluent.KafkaException as error:
            assert error.args[0].txn_requires_abort(), error
            aborts = True
        if aborts:
            producer.abort_transaction(60)
            consumer.unsubscribe()
            consumer.subscribe(["given"])
    consumer.close()
    assert read_all(fresh_gateway, "taken") == given
