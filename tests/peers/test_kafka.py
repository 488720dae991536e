"""Kafka's clients, librdkafka (confluent-kafka) and kafka-python: what they produce and consume, between themselves and
with the clients of all other protocols."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from support.bridges import EMBEDDED, SECOND
from support.bridges.fronts import Record
from support.bridges.plain_fronts import FRONTS
from support.peers import unique
from support.process import BASIN, GatewayProcess
from support.s3p.client import S3PClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as Kafka's clients give and get it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RECORDS = [
    Sent(b"plain"),
    Sent(b"", b""),
    Sent(None, b"tombstone"),
    Sent(b"value", b"key", (("a", b"1"), ("null", None), ("empty", b""), ("a", b"2"), ("ü", b"\xff"))),
    *(Sent(b"%d" % number * 50, b"key" if number % 2 else None) for number in range(1500)),
]
"""Nulls and empty values of every kind, and more records than one append takes."""
WITHOUT_NULL_HEADERS = [
    one._replace(headers=tuple((name, value) for name, value in one.headers if value is not None)) for one in RECORDS
]
"""Those that kafka-python can produce."""


@pytest.fixture(scope="module")
def kafka_gateway() -> Iterator[GatewayProcess]:
    """A gateway on its embedded store; protocols that carry bodies alone get the rest in envelopes."""
    with EMBEDDED.running() as gateway:
        yield gateway


@pytest.fixture
def topic() -> str:
    return unique("topic")


def server(gateway: GatewayProcess) -> str:
    return f"127.0.0.1:{gateway.kafka_port}"


def alone(gateway: GatewayProcess) -> dict[str, Any]:
    """Settings of a consumer of librdkafka without a group."""
    return {
        "bootstrap.servers": server(gateway),
        "group.id": "none",
        "enable.auto.commit": False,
        "check.crcs": True,
    }


# ---- the clients -----------------------------------------------------------------------------------------------------


def produce_confluent(gateway: GatewayProcess, topic: str, records: Sequence[Sent], **options: Any) -> list[int]:
    """Produce with librdkafka; return the offsets."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    producer = confluent.Producer({"bootstrap.servers": server(gateway), "linger.ms": 50, **options})
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for record in records:
        headers = list(record.headers) or None
        producer.produce(topic, record.value, record.key, headers=headers, on_delivery=delivered)
    assert producer.flush(60) == 0
    return offsets


def consume_confluent(gateway: GatewayProcess, topic: str, count: int, start: int = 0) -> list[Sent]:
    """Consume with librdkafka, without a group."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    consumer = confluent.Consumer(alone(gateway))
    consumer.assign([confluent.TopicPartition(topic, 0, start)])
    found: list[Sent] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), timeout=1):
            assert message.error() is None, message.error()
            found.append(Sent(message.value(), message.key(), tuple(message.headers() or ())))
    consumer.close()
    return found


def produce_python(gateway: GatewayProcess, topic: str, records: Sequence[Sent], **options: Any) -> list[int]:
    """Produce with kafka-python; return the offsets."""
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    producer = kafka.KafkaProducer(bootstrap_servers=server(gateway), linger_ms=50, **options)
    try:
        futures = [
            producer.send(topic, value=one.value, key=one.key, headers=[(n, v) for n, v in one.headers])
            for one in records
        ]
        producer.flush(60)
        return [future.get(60).offset for future in futures]
    finally:
        producer.close()


def consume_python(gateway: GatewayProcess, topic: str, count: int, start: int = 0) -> list[Sent]:
    """Consume with kafka-python, without a group."""
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server(gateway), enable_auto_commit=False, consumer_timeout_ms=30_000, check_crcs=True
    )
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, start)
        found: list[Sent] = []
        for message in consumer:
            found.append(Sent(message.value, message.key, tuple((name, value) for name, value in message.headers)))
            if len(found) == count:
                break
        return found
    finally:
        consumer.close()


Produce = Callable[..., list[int]]
PRODUCERS: dict[str, tuple[Produce, str]] = {
    "confluent": (produce_confluent, "compression.type"),
    "python": (produce_python, "compression_type"),
}
CONSUMERS = {"confluent": consume_confluent, "python": consume_python}


# ---- between themselves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_records_of_every_kind_come_back(kafka_gateway: GatewayProcess, topic: str, producer: str, codec: str) -> None:
    """Both clients read what either has produced, with its keys, headers and nulls."""
    produce, option = PRODUCERS[producer]
    for module in ("snappy", "lz4"):
        if producer == "python" and module == codec:
            pytest.importorskip(module, reason=f"kafka-python needs it: `pip install {module}`")
    given = None if (producer, codec) == ("python", "none") else codec
    records = RECORDS if producer == "confluent" else WITHOUT_NULL_HEADERS
    offsets = produce(kafka_gateway, topic, records, **{option: given})
    assert offsets == list(range(len(records)))
    for consume in CONSUMERS.values():
        assert consume(kafka_gateway, topic, len(records)) == records


def test_times_of_events_come_back_in_any_order(kafka_gateway: GatewayProcess, topic: str) -> None:
    """Two producers take turns, with times that fall; both clients read them, and are told that they are kept. Once the
    topic stamps its records, they are told those times."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    ours = confluent.Producer({"bootstrap.servers": server(kafka_gateway), "compression.type": "gzip"})
    theirs = kafka.KafkaProducer(bootstrap_servers=server(kafka_gateway))
    times = [1_600_000_000_000 + (number * 7) % 10 for number in range(10)]
    reported: list[int] = []

    def produce(number: int, sent: int) -> None:
        if number % 2:
            reported.append(theirs.send(topic, b"%d" % number, timestamp_ms=sent).get(60).timestamp)
        else:
            ours.produce(topic, b"%d" % number, timestamp=sent, on_delivery=delivered)
            assert ours.flush(60) == 0

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        reported.append(message.timestamp()[1])

    for number, stamp in enumerate(times):
        produce(number, stamp)
    assert reported == times
    consumer = confluent.Consumer(alone(kafka_gateway))
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found = [consumer.poll(30).timestamp() for _ in times]
    assert found == [(confluent.TIMESTAMP_CREATE_TIME, stamp) for stamp in times]
    [sought] = consumer.offsets_for_times([confluent.TopicPartition(topic, 0, times[0] + 8)], timeout=30)
    assert sought.offset == next(index for index, stamp in enumerate(times) if stamp >= times[0] + 8)
    consumer.close()
    other = kafka.KafkaConsumer(bootstrap_servers=server(kafka_gateway), consumer_timeout_ms=30_000)
    other.assign([kafka.TopicPartition(topic, 0)])
    other.seek(kafka.TopicPartition(topic, 0), 3)
    assert [next(other).timestamp for _ in times[3:]] == times[3:]
    other.close()
    of = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
    entry = of.ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=of.AlterConfigOpType.SET)
    stamping = of.ConfigResource(of.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = of.AdminClient({"bootstrap.servers": server(kafka_gateway)})
    for future in admin.incremental_alter_configs([stamping]).values():
        future.result(30)
    described = admin.describe_configs([of.ConfigResource(of.ConfigResource.Type.TOPIC, topic)])
    [settings] = [future.result(30) for future in described.values()]
    assert settings["message.timestamp.type"].value == "LogAppendTime"
    for number in (0, 1):
        produce(number, times[0])
    assert all(stamp > times[0] + 1_000_000_000 for stamp in reported[-2:])
    theirs.close()


def test_a_consumer_follows_a_producer(kafka_gateway: GatewayProcess, topic: str) -> None:
    """It waits at the end, and goes on with what comes."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    produce_confluent(kafka_gateway, topic, [Sent(b"first")])
    consumer = confluent.Consumer(alone(kafka_gateway))
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    assert consumer.poll(30).value() == b"first"
    for number in range(5):
        produce_confluent(kafka_gateway, topic, [Sent(b"%d" % number)])
        assert consumer.poll(30).value() == b"%d" % number
    consumer.close()


def test_partitions_of_a_topic(kafka_gateway: GatewayProcess, topic: str) -> None:
    """Each keyed record goes to the partition of its key, and stays in order there."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    admin_of = pytest.importorskip("confluent_kafka.admin")
    admin = admin_of.AdminClient({"bootstrap.servers": server(kafka_gateway)})
    for future in admin.create_topics([admin_of.NewTopic(topic, 4, 1)]).values():
        future.result(30)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 4
    produce_confluent(kafka_gateway, topic, [Sent(b"%d" % number, b"key%d" % (number % 7)) for number in range(700)])
    consumer = confluent.Consumer(alone(kafka_gateway))
    ends = [consumer.get_watermark_offsets(confluent.TopicPartition(topic, one), timeout=30)[1] for one in range(4)]
    assert sum(ends) == 700 and sorted(ends)[-2] > 0
    consumer.assign([confluent.TopicPartition(topic, one, 0) for one in range(4)])
    found: list[Any] = []
    while len(found) < 700:
        batch = consumer.consume(700, timeout=10)
        assert batch, f"{len(found)} of 700 records"
        found += batch
    consumer.close()
    for key in range(7):
        values = [int(one.value()) for one in found if one.key() == b"key%d" % key]
        assert values == list(range(key, 700, 7))
    for future in admin.delete_topics([topic]).values():
        future.result(30)


def test_settings_of_a_topic_are_changed(kafka_gateway: GatewayProcess, topic: str) -> None:
    """Those of its streams, and those that are told back alone."""
    of = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
    admin = of.AdminClient({"bootstrap.servers": server(kafka_gateway)})
    initial = {"segment.bytes": "52428800", "max.message.bytes": "2000000", "compression.type": "producer"}
    for future in admin.create_topics([of.NewTopic(topic, 2, 1, config=initial)]).values():
        future.result(30)
    resource = of.ConfigResource.Type.TOPIC, topic

    def settings() -> dict[str, str]:
        [future] = admin.describe_configs([of.ConfigResource(*resource)]).values()
        return {name: entry.value for name, entry in future.result(30).items()}

    before = settings()
    assert initial.items() <= before.items()
    names = "retention.ms", "segment.ms"
    for operation, value in ((of.AlterConfigOpType.SET, "7200000"), (of.AlterConfigOpType.DELETE, None)):
        entries = [of.ConfigEntry(name, value, incremental_operation=operation) for name in names]
        changing = admin.incremental_alter_configs([of.ConfigResource(*resource, incremental_configs=entries)])
        for future in changing.values():
            future.result(30)
        changed = {} if value is None else dict.fromkeys(names, value)
        assert settings() == before | changed
    with pytest.warns(DeprecationWarning):
        replacing = admin.alter_configs([of.ConfigResource(*resource, set_config={"segment.ms": "1000"})])
    for future in replacing.values():
        future.result(30)
    assert settings()["segment.ms"] == "1000" and "segment.bytes" not in settings()


def test_idempotent_producers_survive_a_gateway_that_is_killed(fresh_gateway: GatewayProcess) -> None:
    """Every record is there once, and in order, though the producer had to send some again."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    producer = confluent.Producer(
        {"bootstrap.servers": server(fresh_gateway), "enable.idempotence": True, "linger.ms": 1, "batch.size": 2000}
    )
    failed: list[Any] = []
    for number in range(3000):
        producer.produce("once", b"%06d" % number, on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0)
        if number in (1000, 2000):
            time.sleep(0.05)
            fresh_gateway.restart(kill=True)
    assert producer.flush(120) == 0
    assert failed == []
    found = [int(record.value or b"") for record in consume_confluent(fresh_gateway, "once", 3000)]
    assert found == list(range(3000))


def test_admin_clients_see_topics_settings_and_the_cluster(kafka_gateway: GatewayProcess, topic: str) -> None:
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    produce_python(kafka_gateway, topic, [Sent(b"%d" % number) for number in range(10)])
    admin = kafka.KafkaAdminClient(bootstrap_servers=server(kafka_gateway))
    assert topic in admin.list_topics()
    [broker] = admin.describe_cluster()["brokers"]
    assert (broker["host"], broker["port"]) == ("127.0.0.1", kafka_gateway.kafka_port)
    partition = kafka.TopicPartition(topic, 0)
    admin.delete_records({partition: 4})
    admin.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=server(kafka_gateway))
    assert consumer.beginning_offsets([partition]) == {partition: 4}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()
    assert consume_python(kafka_gateway, topic, 6, 4) == [Sent(b"%d" % number) for number in range(4, 10)]


def test_consoles_look_into_the_cluster(kafka_gateway: GatewayProcess, topic: str) -> None:
    """By the requests that they begin with."""
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    admin_module = pytest.importorskip("kafka.admin")
    admin = kafka.KafkaAdminClient(bootstrap_servers=server(kafka_gateway))
    whole = f"{topic}-whole"
    admin.create_topics({topic: {"num_partitions": 2}, whole: {"num_partitions": 1}})
    admin.create_partitions({topic: admin_module.NewPartitions(4)})
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({whole: admin_module.NewPartitions(2)})
    assert [len(one["partitions"]) for one in admin.describe_topics([topic, whole])] == [4, 1]
    assert topic in str(admin.describe_log_dirs())
    pattern = admin_module.ResourceType.ANY, None, admin_module.ACLResourcePatternType.ANY
    acl = admin_module.ACLFilter(
        principal=None,
        host=None,
        operation=admin_module.ACLOperation.ANY,
        permission_type=admin_module.ACLPermissionType.ANY,
        resource_pattern=admin_module.ResourcePatternFilter(*pattern),
    )
    assert admin.describe_acls(acl)[0] == []
    producer = kafka.KafkaProducer(bootstrap_servers=server(kafka_gateway), transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x", partition=3).get(30)
    [listed] = [one for each in admin.list_transactions().values() for one in each if one.transactional_id == topic]
    described = admin.describe_transactions([topic])[topic]
    partition = kafka.TopicPartition(topic, 3)
    assert listed.state == described.state and described.state.value == "Ongoing"
    assert described.producer_id == listed.producer_id and described.topic_partitions == {partition}
    assert admin.describe_producers([partition])[partition].active_producers == []
    producer.abort_transaction()
    producer.close()
    admin.close()


# ---- with the clients of all other protocols -------------------------------------------------------------------------


@pytest.mark.parametrize("front", FRONTS)
def test_other_protocols_read_what_kafka_produced(kafka_gateway: GatewayProcess, topic: str, front: str) -> None:
    produce_confluent(kafka_gateway, topic, RECORDS[:200])
    client = FRONTS[front](kafka_gateway, topic)
    found = [seen.record for seen in client.read(client.start())]
    client.close()
    assert found[:4] == [
        Record(b"plain"),
        Record(b"", ((b"kafka-key", b""),)),
        Record(b"", ((b"kafka-key", b"tombstone"), (b"kafka-null", b"value"))),
        Record(
            b"value",
            (
                (b"kafka-key", b"key"),
                (b"kafka-null", b"1"),
                (b"a", b"1"),
                (b"null", b""),
                (b"empty", b""),
                (b"a", b"2"),
                ("ü".encode(), b"\xff"),
            ),
        ),
    ]
    assert [one.body for one in found[4:]] == [one.value for one in RECORDS[4:200]]


@pytest.mark.parametrize("front", FRONTS)
def test_kafka_reads_what_other_protocols_appended(kafka_gateway: GatewayProcess, topic: str, front: str) -> None:
    client = FRONTS[front](kafka_gateway, topic)
    client.create()
    given = [Record(b"first"), Record(b"\x00\xff" * 1000), Record(b"x" * 500_000)]
    wanted = [Sent(one.body) for one in given]
    if not client.plain:
        given += [Record(b"keyed", ((b"kafka-key", b"k"), (b"h", b"v"))), Record(b"")]
        wanted += [Sent(b"keyed", b"k", (("h", b"v"),)), Sent(b"")]
    client.append(given)
    client.close()
    for consume in CONSUMERS.values():
        assert consume(kafka_gateway, topic, len(given)) == wanted


def test_durable_streams_read_and_append(kafka_gateway: GatewayProcess, topic: str) -> None:
    produce_confluent(kafka_gateway, topic, [Sent(b"by "), Sent(b"Kafka")])
    url = kafka_gateway.durable_url + topic
    with urllib.request.urlopen(f"{url}?offset=-1", timeout=10) as answer:
        assert answer.read() == b"by Kafka"
    headers = {"content-type": "application/octet-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, b", not", headers, method="POST"), timeout=10) as answer:
        assert answer.status in (200, 204)
    for consume in CONSUMERS.values():
        assert consume(kafka_gateway, topic, 3) == [Sent(b"by "), Sent(b"Kafka"), Sent(b", not")]


def test_no_request_of_another_protocol_hides_the_partitions_of_a_topic(
    kafka_gateway: GatewayProcess, topic: str
) -> None:
    """Nor brings a topic back that was deleted. Reads and appends create streams in this basin."""
    admin_of = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
    admin = admin_of.AdminClient({"bootstrap.servers": server(kafka_gateway)})
    for future in admin.create_topics([admin_of.NewTopic(topic, 4, 1)]).values():
        future.result(30)
    sent = [Sent(b"%d" % number, b"key%d" % (number % 7)) for number in range(100)]
    produce_confluent(kafka_gateway, topic, sent)
    s2 = f"{kafka_gateway.s2_url}/v1/streams/{topic}"
    requests = {
        f"{s2}/records?seq_num=0": ("GET", b"", 404),
        f"{s2}/records/tail": ("GET", b"", 404),
        f"{s2}/records": ("POST", b'{"records": [{"body": "x"}]}', 404),
        s2: ("PUT", b"{}", 422),
        kafka_gateway.durable_url + topic: ("PUT", b"x", 400),
    }
    for url, (method, body, status) in requests.items():
        headers = {"s2-basin": BASIN, "content-type": "application/json" if url.startswith(s2) else "text/plain"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, body or None, headers, method=method), timeout=10)
        message = refused.value.read().decode()
        assert refused.value.status == status and topic in message and "partitions" in message, message
    s3p = S3PClient(("127.0.0.1", kafka_gateway.s3p_port))
    assert s3p.append(topic, b"x").code == "ERR_UNKNOWN_STREAM"
    refused_creation = s3p.create(topic)
    assert topic in refused_creation.message and "partitions" in refused_creation.message, refused_creation
    s3p.close()
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 4
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent.Consumer(alone(kafka_gateway))
    partitions = [confluent.TopicPartition(topic, number) for number in range(4)]
    assert sum(consumer.get_watermark_offsets(one, timeout=30)[1] for one in partitions) == 100
    consumer.close()
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    assert topic not in admin.list_topics(timeout=30).topics


@pytest.mark.parametrize("kind", SECOND)
def test_records_are_kept_by_other_servers(kind: str) -> None:
    """A topic on a server behind the gateway: the same records, and producers that repeat themselves."""
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    with SECOND[kind].running() as gateway:
        admin_of = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
        admin = admin_of.AdminClient({"bootstrap.servers": server(gateway)})
        for future in admin.create_topics([admin_of.NewTopic("far", 1, 1)]).values():
            future.result(30)
        given = RECORDS[:300]
        offsets = produce_confluent(gateway, "far", given, **{"enable.idempotence": True})
        assert offsets == list(range(len(given)))
        for consume in CONSUMERS.values():
            assert consume(gateway, "far", len(given)) == given
        consumer = kafka.KafkaConsumer(bootstrap_servers=server(gateway))
        partition = kafka.TopicPartition("far", 0)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: len(given)}
        consumer.close()


def test_positions_of_a_record_include_its_offset(kafka_gateway: GatewayProcess, topic: str) -> None:
    produce_confluent(kafka_gateway, topic, [Sent(b"a"), Sent(b"b")])
    url = f"http://127.0.0.1:{kafka_gateway.management_port}/positions?stream={BASIN}/{topic}&seq_num=1"
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = json.load(answer)["read_on"]["kafka"]
    assert (found["topic"], found["partition"], found["offset"]) == (topic, 0, 1)
