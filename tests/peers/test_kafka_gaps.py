"""Consumers of a Kafka cluster through the gateway, on a topic with gaps between its offsets and a leader epoch that
has risen: another client has written transactions to it, and its broker was killed in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.bridges import REAL
from support.captures.traffic import until
from support.kafka.plain import KafkaSocket
from support.peers import need, run_client, unique
from support.pravega.java import QUICK_START, fetch_libraries
from support.process import GatewayProcess, running_gateway
from support.real_backs import KafkaBroker

from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataRequestTopic, MetadataResponse

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ROUNDS = [(1, False), (3, True), (2, False), (1, True), (4, False), (2, False), (5, True), (0, True), (1, False)]
"""Transactions: their number of records, and whether they are committed. Those without records leave no marker."""
RESTARTS = (2, 5)
"""Rounds before which the broker is killed and started again."""


class Written(NamedTuple):
    """The topic as the cluster has it. `committed`: values by offset. `end`: the next offset. `epoch`: its leader's."""

    topic: str
    committed: dict[int, bytes]
    end: int
    epoch: int

    def after(self, offset: int) -> list[tuple[int, bytes]]:
        """Return the records from an offset on."""
        return [one for one in self.committed.items() if one[0] >= offset]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    with KafkaBroker() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(broker: KafkaBroker) -> Iterator[GatewayProcess]:
    bridge = replace(REAL["kafka"], more=f"{REAL['kafka'].more}\nrecover_seconds = 100")
    text = bridge.configuration(broker.address)
    with running_gateway(
        text.replace("[listeners.kafka]", "[listeners.kafka]\nfirst_rebalance_seconds = 0.0")
    ) as process:
        yield process


@pytest.fixture(scope="module")
def written(broker: KafkaBroker, gateway: GatewayProcess) -> Written:
    """The topic, written to directly, while the gateway runs."""
    topic = unique("gaps")
    created(broker, topic)
    committed: dict[int, bytes] = {}
    for number, (count, commits) in enumerate(ROUNDS):
        if number in RESTARTS:
            broker.restart()
        found = transaction(broker, topic, [b"%d.%d" % (number, one) for one in range(count)], commits=commits)
        if commits:
            committed.update(found)
    end = sum(count + bool(count) for count, _ in ROUNDS)  # each ends with a marker
    until(lambda: direct_end(broker, topic) == end, 60)
    return Written(topic, committed, end, epoch_of(broker, topic))


def created(broker: KafkaBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*broker.address)})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    until(lambda: len(admin.list_topics(topic, 5).topics[topic].partitions) == 1)


def transaction(broker: KafkaBroker, topic: str, values: list[bytes], *, commits: bool) -> dict[int, bytes]:
    """Write one, in two batches if it has several records; return its records by offset."""
    from confluent_kafka import Producer

    found: dict[int, bytes] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        found[message.offset()] = message.value()

    settings = {"bootstrap.servers": "{}:{}".format(*broker.address), "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
        if value is values[0]:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0  # an abort drops what was not sent
    (producer.commit_transaction if commits else producer.abort_transaction)(60)
    Producer(settings).init_transactions(60)  # waits until it is over: a broker killed before writes a second marker
    return found


def direct_end(broker: KafkaBroker, topic: str) -> int:
    """Return the end of committed records, as the broker says."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": "{}:{}".format(*broker.address), "group.id": "none"})
    end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1]
    consumer.close()
    return end


def epoch_of(broker: KafkaBroker, topic: str) -> int:
    with KafkaSocket(broker.address) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return client.call(request, MetadataResponse).topics[0].partitions[0].leader_epoch


def test_the_topic_has_gaps_and_its_leader_epoch_has_risen(written: Written) -> None:
    assert written.epoch >= len(RESTARTS)
    assert [*written.committed] == [2, 3, 4, 9, *range(19, 24)]
    assert written.end == 27


# ---- librdkafka ------------------------------------------------------------------------------------------------------


class Consuming:
    """A consumer of librdkafka, which fails where its offset would be reset. Use it as a context manager."""

    def __init__(self, address: str, group: str, **options: Any) -> None:
        from confluent_kafka import Consumer

        self.errors: list[Any] = []
        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "error_cb": self.errors.append,
            **options,
        }
        self.consumer = Consumer(settings)

    def __enter__(self) -> Consuming:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def to_end(self, most: int = 1000) -> tuple[list[Any], int]:
        """Return the next records, up to the end of the partition or at most so many, and the place of the end."""
        from confluent_kafka import KafkaError

        found: list[Any] = []
        while len(found) < most:
            message = self.consumer.poll(30)
            assert message is not None, f"nothing came behind {[one.offset() for one in found]}: {self.errors}"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found, message.offset()
            found.append(message)
        return found, -1


def through(gateway: GatewayProcess) -> str:
    return f"127.0.0.1:{gateway.kafka_port}"


def plain(messages: list[Any]) -> list[tuple[int, bytes]]:
    return [(one.offset(), one.value()) for one in messages]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_each_committed_record_comes_once_with_its_offset(
    broker: KafkaBroker, gateway: GatewayProcess, written: Written, isolation: str
) -> None:
    """As they come from the broker to a consumer of committed records; through the gateway there are no others."""
    from confluent_kafka import TopicPartition

    found = []
    for address, level in (("{}:{}".format(*broker.address), "read_committed"), (through(gateway), isolation)):
        with Consuming(address, "none", **{"isolation.level": level}) as client:
            client.consumer.assign([TopicPartition(written.topic, 0, 0)])
            messages, end = client.to_end()
            found.append(([(one.offset(), one.value(), one.timestamp()) for one in messages], end))
            assert not client.errors
    assert found[0] == found[1]
    assert ([one[:2] for one in found[1][0]], found[1][1]) == (written.after(0), written.end)


@pytest.mark.parametrize("epoch", ["no epoch", "epoch of the cluster"])
def test_a_consumer_begins_at_any_offset(gateway: GatewayProcess, written: Written, epoch: str) -> None:
    """Records, markers, aborted records and the end; with the leader epoch of a record that the cluster gave, too."""
    from confluent_kafka import TopicPartition

    more = {"leader_epoch": written.epoch} if epoch != "no epoch" else {}
    with Consuming(through(gateway), "none") as client:
        for start in range(written.end + 1):
            client.consumer.assign([TopicPartition(written.topic, 0, start, **more)])
            messages, end = client.to_end()
            assert (start, plain(messages), end) == (start, written.after(start), written.end)
        assert not client.errors


def test_a_group_resumes_at_any_offset(gateway: GatewayProcess, written: Written) -> None:
    """Also where the committed offset is a marker, or has the leader epoch of the cluster."""
    from confluent_kafka import TopicPartition

    group, epochs = unique("group"), [-1, 0, written.epoch]
    for number, start in enumerate((0, 1, 5, 7, 9, 16, written.end)):
        with Consuming(through(gateway), group) as client:
            place = TopicPartition(written.topic, 0, start, leader_epoch=epochs[number % 3])
            client.consumer.commit(offsets=[place], asynchronous=False)
            client.consumer.subscribe([written.topic])
            messages, end = client.to_end()
            assert (start, plain(messages), end) == (start, written.after(start), written.end)
            assert not client.errors


def test_a_group_goes_on_behind_each_record(gateway: GatewayProcess, written: Written) -> None:
    """A consumer commits the offset behind each record, which may be in a gap, and another one goes on from there."""
    group, found = unique("steps"), []
    while len(found) < len(written.committed):
        with Consuming(through(gateway), group, **{"auto.offset.reset": "error" if found else "earliest"}) as client:
            client.consumer.subscribe([written.topic])
            [message], _ = client.to_end(1)
            client.consumer.commit(message, asynchronous=False)
            found += plain([message])
            assert not client.errors
    assert found == written.after(0)


def test_a_follower_gets_behind_gaps_at_the_tail(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    """It waits at the tail while transactions are aborted and committed, and the broker is killed."""
    from confluent_kafka import TopicPartition

    topic = unique("tail")
    created(broker, topic)
    with Consuming(through(gateway), "none", **{"enable.partition.eof": False}) as client:
        client.consumer.assign([TopicPartition(topic, 0, 0)])
        assert client.consumer.poll(1) is None
        transaction(broker, topic, [b"lost", b"too"], commits=False)
        transaction(broker, topic, [b"a"], commits=True)
        assert plain(client.to_end(1)[0]) == [(3, b"a")]
        transaction(broker, topic, [b"lost"], commits=False)
        broker.restart()
        assert client.consumer.poll(2) is None
        transaction(broker, topic, [b"b"], commits=True)
        assert plain(client.to_end(1)[0]) == [(7, b"b")]
        assert client.consumer.poll(1) is None


# ---- Java ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Apache Kafka's console consumer, and returns what it prints."""
    directory = tmp_path_factory.mktemp("kafka-tools")
    fetch_libraries(Path(__file__).parent / "java" / "kafka", directory)
    command = [need("java"), *QUICK_START, "-Xmx256m", "-cp", f"{directory}/*"]

    def run(*arguments: str) -> str:
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return run_client([*command, tool, *arguments], cwd=directory, seconds=90)

    return run


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "start", [0, 1, 3, 5, 11], ids=["aborted at first", "its marker", "record", "marker", "aborted"]
)
def test_the_java_consumer(gateway: GatewayProcess, written: Written, console: Callable[..., str], start: int) -> None:
    wanted = written.after(start)
    place = ("--bootstrap-server", through(gateway), "--topic", written.topic, "--partition", "0")
    options = ("--consumer-property", "auto.offset.reset=none", "--property", "print.offset=true")
    said = console(*place, "--offset", str(start), "--max-messages", str(len(wanted)), *options).splitlines()
    assert said == [f"Offset:{offset}\t{value.decode()}" for offset, value in wanted]


@pytest.mark.timeout(500)
def test_a_group_of_java_consumers_resumes(
    gateway: GatewayProcess, written: Written, console: Callable[..., str]
) -> None:
    """Each run commits the offset behind its last record, and the next one goes on there."""
    place = ("--bootstrap-server", through(gateway), "--topic", written.topic, "--group", unique("java"))
    said = []
    for reset, count in (("earliest", 3), ("none", 1), ("none", len(written.committed) - 4)):
        options = ("--consumer-property", f"auto.offset.reset={reset}", "--max-messages", str(count))
        said += console(*place, *options).split()
    assert said == [value.decode() for value in written.committed.values()]
