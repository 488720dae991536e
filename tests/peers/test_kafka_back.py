"""Apache Kafka behind a gateway, as one broker and as three: its own clients beside those of the gateway, and kills."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.bridges import REAL
from support.captures.traffic import until
from support.kafka.cluster import KafkaCluster
from support.peers import unique
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import KafkaBroker
from support.s2.client import Answer, S2Client

pytestmark = pytest.mark.peer
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE = 300.0
"""Time for which the gateway looks for a lost broker, and clients wait: beside load, one takes minutes to start."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    with KafkaBroker() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(broker: KafkaBroker) -> Iterator[GatewayProcess]:
    bridge = replace(REAL["kafka"], more=f"{REAL['kafka'].more}\nrecover_seconds = {PATIENCE}")
    with running_gateway(bridge.configuration(broker.address)) as process:
        yield process


def client(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def server(broker: KafkaBroker) -> dict[str, Any]:
    return {"bootstrap.servers": "{}:{}".format(*broker.address)}


def raw(gateway: GatewayProcess, stream: str, **query: object) -> list[dict[str, Any]]:
    """Return records through the gateway, with bodies and headers in base64."""
    answer = client(gateway).read(stream, {"s2-format": "base64"}, **(query or {"seq_num": 0}))
    assert answer.status == 200, answer
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


def plain(record: dict[str, Any]) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    headers = [(base64.b64decode(name), base64.b64decode(value)) for name, value in record.get("headers", [])]
    return record["seq_num"], base64.b64decode(record.get("body", "")), headers


def created(broker: KafkaBroker, name: str, partitions: int = 1, **config: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient(server(broker))
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        future.result(30)
    # The broker answers once the controller has the topic, and may learn of its partitions later.
    until(lambda: len(admin.list_topics(name, 5).topics[name].partitions) == partitions)
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_produces_is_read(broker: KafkaBroker, gateway: GatewayProcess, codec: str) -> None:
    """In every compression, with keys, nulls and headers, and at its own offsets and timestamps."""
    from confluent_kafka import Producer

    topic = created(broker, unique(codec))
    producer = Producer({**server(broker), "compression.type": codec, "linger.ms": 50})
    producer.produce(topic, b"v" * 1000, b"key", headers=[("a", b"1"), ("a", b"")], timestamp=1_700_000_000_000)
    producer.produce(topic, None, b"tombstone", timestamp=1_700_000_000_001)
    for number in range(500):
        producer.produce(topic, b"%d" % number, timestamp=1_700_000_000_002)
    assert producer.flush(30) == 0
    records = raw(gateway, topic)
    found = [plain(one) for one in records]
    assert found[0] == (0, b"v" * 1000, [(b"kafka-key", b"key"), (b"a", b"1"), (b"a", b"")])
    assert found[1] == (1, b"", [(b"kafka-key", b"tombstone"), (b"kafka-null", b"value")])
    assert found[2:] == [(2 + number, b"%d" % number, []) for number in range(500)]
    assert [one["timestamp"] for one in records[:3]] == [1_700_000_000_000 + n for n in range(3)]
    assert plain(raw(gateway, topic, timestamp=1_700_000_000_001, count=1)[0])[0] == 1


def test_librdkafka_reads_what_s2_appends(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic, s2 = unique("s2"), client(gateway)
    records = [{"body": "v", "headers": [["kafka-key", "k"], ["h", "1"]]}, {"body": ""}]
    assert s2.append_json(topic, {"records": records}).status == 200
    assert s2.append(topic, "later")["start"]["seq_num"] == 2
    consumer = Consumer({**server(broker), "group.id": "none", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(3, 30)
    consumer.close()
    assert [(one.offset(), one.key(), one.value(), one.headers()) for one in found] == [
        (0, b"k", b"v", [("h", b"1")]),
        (1, None, b"", None),
        (2, None, b"later", None),
    ]
    assert [one["timestamp"] for one in raw(gateway, topic)] == [one.timestamp()[1] for one in found]


def test_transactions_leave_gaps(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    """Records of an aborted transaction are never read, and control records have numbers; the tail is behind them."""
    from confluent_kafka import Producer

    topic = created(broker, unique("transactions"))
    producer = Producer({**server(broker), "transactional.id": topic})
    producer.init_transactions(30)
    for bodies, ends in ((b"ab", producer.commit_transaction), (b"cd", producer.abort_transaction)):
        producer.begin_transaction()
        for body in bodies:
            producer.produce(topic, bytes([body]))
        producer.flush(30)  # an abort drops what was not sent
        ends(30)
    until(lambda: client(gateway).tail(topic)["seq_num"] == 6)  # the coordinator writes the markers after its answer
    assert client(gateway).append(topic, "e")["start"]["seq_num"] == 6
    assert [plain(one)[:2] for one in raw(gateway, topic)] == [(0, b"a"), (1, b"b"), (6, b"e")]
    assert client(gateway).tail(topic)["seq_num"] == 7
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert client(gateway).tail(topic)["seq_num"] == 7, "the records of an open transaction are not there yet"
    producer.commit_transaction(30)
    until(lambda: client(gateway).tail(topic)["seq_num"] == 9)
    assert plain(raw(gateway, topic, seq_num=7)[0])[:2] == (7, b"open")


def test_partitions_are_streams(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    topic, s2 = created(broker, unique("several"), 3), client(gateway)
    for number in range(3):
        assert s2.append(f"{topic}/{number}", f"to {number}")["start"]["seq_num"] == 0
    assert s2.bodies(f"{topic}/2", seq_num=0) == ["to 2"]
    page = s2.request("GET", f"/v1/streams?prefix={topic}").json()
    assert [one["name"] for one in page["streams"]] == [f"{topic}/{number}" for number in range(3)]
    s2.append_json(topic, {"records": [{"body": "x"}]}).fails(404, "stream_not_found")


def test_a_topic_gets_another_partition(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    """Its only stream gets another name; consumers of the gateway go on where they were."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic, s2 = created(broker, unique("grows")), client(gateway)
    s2.append_json(topic, {"records": [{"body": "a"}, {"body": "b"}]})
    settings = {"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}", "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    admin = AdminClient(server(broker))
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    until(lambda: s2.append_json(f"{topic}/1", {"records": [{"body": "c"}]}).status == 200)
    [found] = consumer.committed([TopicPartition(topic, 0)], 30)
    consumer.close()
    assert found.offset == 1
    assert s2.bodies(f"{topic}/0", seq_num=0) == ["a", "b"]


def test_small_records_that_are_well_compressed(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    """The broker sends more of them in one answer than the gateway decodes at once."""
    from confluent_kafka import Producer

    topic, count = created(broker, unique("small")), 150_000
    producer = Producer(
        {
            **server(broker),
            "compression.type": "gzip",
            "linger.ms": 1000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 2 * count,
        }
    )
    for number in range(count):
        producer.produce(topic, b"%d" % (number % 10), timestamp=1_700_000_000_000)
    assert producer.flush(60) == 0
    for first in (0, 55_555, count - 1000):
        assert [one["seq_num"] for one in raw(gateway, topic, seq_num=first)] == list(range(first, first + 1000))


def test_settings_and_trim(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    topic, s2 = unique("settings"), client(gateway)
    s2.ensure_stream(topic, retention_policy={"age": 3600}, timestamping={"mode": "client-prefer"})
    s2.ensure_stream(topic, retention_policy={"age": 7200})
    config = s2.request("GET", f"/v1/streams/{topic}").json()
    assert (config["retention_policy"], config["timestamping"]["mode"]) == ({"age": 7200}, "client-prefer")
    s2.append_json(topic, {"records": [{"body": "x", "timestamp": n} for n in (5, 6, 7)]})
    assert [one["timestamp"] for one in raw(gateway, topic)] == [5, 6, 7]


def refused(answer: Answer) -> str:
    code: str = json.loads(answer.body)["code"]
    return code


def test_what_kafka_lacks_is_refused(gateway: GatewayProcess) -> None:
    topic, s2 = unique("refused"), client(gateway)
    s2.append(topic, "x")
    for more in ({"match_seq_num": 1}, {"fencing_token": "t"}):
        assert refused(s2.append_json(topic, {"records": [{"body": "y"}], **more})) == "not_implemented"
    assert s2.bodies(topic, seq_num=0) == ["x"]


# ---- kills -----------------------------------------------------------------------------------------------------------


class Appending:
    """A client that appends numbers, one after the other, and says again what failed without an effect."""

    def __init__(self, gateway: GatewayProcess, stream: str) -> None:
        self.gateway = gateway
        self.stream = stream
        self.acked: dict[str, int] = {}
        self.told: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        number, path = 0, f"/v1/streams/{self.stream}/records"
        while not self.stopping.is_set():
            number += 1
            body = json.dumps({"records": [{"body": str(number)}]}).encode()
            try:
                answer = client(self.gateway).request(
                    "POST", path, body, {"content-type": "application/json"}, timeout=PATIENCE
                )
            except OSError as error:  # the gateway was killed
                self.told.append(str(error))
                time.sleep(0.05)
                continue
            if answer.status == 200:
                self.acked[str(number)] = answer.json()["start"]["seq_num"]
            else:
                assert refused(answer) in ("hot_server", "unavailable", "upstream_timeout"), answer
                self.told.append(str(answer.body))
                time.sleep(0.05)

    def wait_for_more(self, count: int = 20) -> None:
        until, deadline = len(self.acked) + count, time.monotonic() + PATIENCE
        while len(self.acked) < until:
            assert self.thread.is_alive() and time.monotonic() < deadline, f"{len(self.acked)} of {until}"
            time.sleep(0.01)

    def check(self) -> None:
        """Every append that was acknowledged is there once, where the acknowledgement said."""
        self.stopping.set()
        self.thread.join(PATIENCE)
        found: dict[str, int] = {}
        s2, count = client(self.gateway), 0
        end = s2.tail(self.stream)["seq_num"]
        while count < end:
            page = s2.read(self.stream, seq_num=count, count=1000).json()["records"]
            for record in page:
                assert record["body"] not in found, record
                found[record["body"]] = record["seq_num"]
            count = page[-1]["seq_num"] + 1
        assert {body: found.get(body) for body in self.acked} == self.acked
        assert list(found.values()) == list(range(len(found)))


@pytest.mark.timeout(900)
def test_the_broker_is_killed(broker: KafkaBroker, gateway: GatewayProcess) -> None:
    appending = Appending(gateway, unique("killed"))
    try:
        appending.wait_for_more()
        broker.restart()
        appending.wait_for_more()
    finally:
        appending.check()
    assert not appending.told, "all appends waited for the broker, and were stored once"


def test_the_gateway_is_killed(gateway: GatewayProcess) -> None:
    """Its next incarnation has the same numbers: they are Kafka's."""
    appending = Appending(gateway, unique("killed"))
    try:
        appending.wait_for_more()
        gateway.restart(kill=True)
        appending.wait_for_more()
    finally:
        appending.check()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_leader_of_three_is_killed() -> None:
    """Appends and a follower go on at the next leader, and the killed one comes back."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    with KafkaCluster() as cluster:
        first, *others = (f'"{host}:{port}"' for host, port in cluster.addresses)
        more = f"create_streams = true\nmore_addresses = [{', '.join(others)}]\nrequest_seconds = 2"
        text = REAL["kafka"].configuration(cluster.addresses[0]).replace("create_streams = true", more)
        assert first in text
        with running_gateway(text) as gateway:
            appending = Appending(gateway, unique("three"))
            try:
                for _ in range(2):
                    appending.wait_for_more()
                    leader = cluster.leader_of(appending.stream)
                    cluster.brokers[leader].kill()
                    appending.wait_for_more()
                    assert cluster.leader_of(appending.stream, but=leader) != leader
                    cluster.brokers[leader].start()
                    appending.wait_for_more()
            finally:
                appending.check()
