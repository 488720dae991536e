"""Transactions of librdkafka (confluent-kafka) and of the Java client, with gateways that are killed; and what clients
of all other protocols see of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.bridges import EMBEDDED
from support.bridges.fronts import LOOPBACK
from support.bridges.plain_fronts import FRONTS
from support.peers import unique
from support.process import BASIN, GatewayProcess
from support.segment.client import ReleasedSocket


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


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_to_a_sealed_stream_lets_the_producer_abort(
    txn_gateway: GatewayProcess, topic: str, late: bool
) -> None:
    """A stream is sealed before the transaction, or while it is open; the producer goes on with another one."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    sealed = f"{topic}-sealed"
    producer = producer_of(txn_gateway, topic)
    segment = f"{BASIN}/{sealed}/0.#epoch.0"
    with ReleasedSocket((LOOPBACK, txn_gateway.segment_port), timeout=30) as client:
        client.create(segment)
        if not late:
            client.seal(segment)
        producer.begin_transaction()
        producer.produce(topic, b"lost")
        producer.produce(sealed, b"lost")
        producer.flush(30)
        if late:
            client.seal(segment)
        with pytest.raises(confluent.KafkaException) as refused:
            producer.commit_transaction(30)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(30)
    assert read_all(txn_gateway, topic) == [b"kept"]


def test_offsets_of_a_group_are_committed_with_the_records(txn_gateway: GatewayProcess, topic: str) -> None:
    """Each record is passed on once, though every third transaction is aborted."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    given = [b"%d" % number for number in range(300)]
    first = confluent.Producer(server(txn_gateway))
    for value in given:
        first.produce(topic, value)
    assert first.flush(30) == 0
    producer, taken, rounds = producer_of(txn_gateway, topic), 0, 0
    while taken < len(given):
        options = {"group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = confluent.Consumer({**server(txn_gateway), **options, "isolation.level": "read_committed"})
        consumer.subscribe([topic])
        messages = consumer.consume(100, timeout=5)
        producer.begin_transaction()
        for message in messages:
            producer.produce(f"{topic}-copy", message.value())
        place = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), 30)
        rounds += 1
        if rounds % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            taken += len(messages)
        consumer.close()
    assert rounds > 3
    assert read_all(txn_gateway, f"{topic}-copy") == given


@pytest.mark.timeout(400)
def test_transactions_survive_a_gateway_that_is_killed(fresh_gateway: GatewayProcess) -> None:
    """It is killed while transactions begin, while they are open, and while they end."""
    producer, committed = producer_of(fresh_gateway, "killed"), []
    for number in range(12):
        values = [b"%d.%d" % (number, one) for one in range(700)]
        killer = threading.Timer(0.02 * number, fresh_gateway.restart, kwargs={"kill": True})
        producer.begin_transaction()
        if number % 2:
            killer.start()
        for value in values:
            producer.produce("taken", value)
        if number % 3 == 1:
            producer.flush(60)
        if number % 4 == 3:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += values
        if number % 2:
            killer.join()
    assert read_all(fresh_gateway, "taken") == committed
