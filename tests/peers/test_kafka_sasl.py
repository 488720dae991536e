"""SASL by Kafka's clients, over plain connections and TLS: librdkafka, kafka-python and franz-go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from support.access import TokensOf, scope
from support.bridges import REAL, SECOND, Bridge
from support.go import go_tests
from support.kafka.guarded import GuardedBroker
from support.peers import run_client, unique
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.real_backs import Address
from support.s2.client import S2Client
from support.tls.certificates import self_signed

from penstock.model.access_tokens import ResourceSet
from penstock.routing.access.passwords import hash_password

GO = Path(__file__).parent / "go" / "kafka"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENER = 'bind = "127.0.0.1:{kafka_port}"\n'
SECRETS = f"""
[[identities]]
name = "plant"
tokens = ["a-token-of-plant"]
username = "user"
password_hash = "{hash_password("a long password")}"
"""


class Server(NamedTuple):
    """A gateway whose clients must authenticate. `certificate`: the one that it shows, None without TLS."""

    gateway: GatewayProcess
    certificate: str | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gateway.kafka_port}"


@pytest.fixture(scope="module", params=["plain", "tls"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys, certificate = 'auth_tokens = ["of-all"]\n', None
    if request.param == "tls":
        certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
        keys += f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    with running_gateway(CONFIG.replace(LISTENER, LISTENER + keys) + SECRETS) as gateway:
        yield Server(gateway, certificate)


def confluent(server: Server, mechanism: str, name: str, secret: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_SSL" if server.certificate else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": secret,
        **({"ssl.ca.location": server.certificate} if server.certificate else {}),
    }


def round_trip(server: Server, mechanism: str, name: str, secret: str) -> None:
    """Produce a record and consume it in a group, with librdkafka."""
    client = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    settings, topic = confluent(server, mechanism, name, secret), unique("topic")
    producer = client.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = client.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(30)
    assert record.error() is None and record.value() == b"value"
    consumer.commit(record, asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "secret"), [("any", "of-all"), ("plant", "a-token-of-plant")])
def test_librdkafka(guarded: Server, mechanism: str, name: str, secret: str) -> None:
    round_trip(guarded, mechanism, name, secret)


def test_a_password_is_for_plain_alone(guarded: Server) -> None:
    client = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    round_trip(guarded, "PLAIN", "user", "a long password")
    for mechanism, secret in (("SCRAM-SHA-256", "a long password"), ("PLAIN", "another")):
        failures: list[Any] = []
        settings = {**confluent(guarded, mechanism, "user", secret), "error_cb": failures.append}
        producer = client.Producer(settings)
        while not failures:
            producer.poll(1)
        assert failures[0].name() == "_AUTHENTICATION", failures[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(guarded: Server, mechanism: str) -> None:
    kafka = pytest.importorskip("kafka", reason="`pip install kafka-python`")
    producer = kafka.KafkaProducer(
        bootstrap_servers=guarded.address,
        security_protocol="SASL_SSL" if guarded.certificate else "SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="plant",
        sasl_plain_password="a-token-of-plant",
        ssl_cafile=guarded.certificate,
    )
    assert producer.send(unique("topic"), b"value").get(30).offset == 0
    producer.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_franz_go(guarded: Server, mechanism: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if guarded.certificate:
        pytest.skip("the program of the tests has no TLS")
    directory = tmp_path_factory.getbasetemp()
    where = {"KGO_SEEDS": guarded.address, "TOPIC": unique("topic")}
    who = {"MECHANISM": mechanism, "NAME": "plant", "SECRET": "a-token-of-plant"}
    command = [str(go_tests(GO, ".", directory)), "-test.run=^TestProduceAndConsume$", "-test.timeout=60s"]
    run_client(command, cwd=directory, seconds=70, environment={**where, **who})


def test_access_tokens_limit_a_client_of_plain() -> None:
    """A token may do in Kafka what it may do in S2; SCRAM cannot prove it."""
    client = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    with running_gateway(CONFIG + "\n[access]\n") as gateway:
        tokens, server = TokensOf(gateway.data), Server(gateway, None)
        full = tokens.issue("full")
        round_trip(server, "PLAIN", "full", full)
        reads = tokens.issue("reads", scope("read", "check-tail", "list-streams"))
        topic = unique("topic")
        producer = client.Producer(confluent(server, "PLAIN", "full", full))
        producer.produce(topic, b"value")
        assert producer.flush(30) == 0
        refused: list[Any] = []
        producer = client.Producer(confluent(server, "PLAIN", "reads", reads))
        producer.produce(topic, b"refused", on_delivery=lambda error, _: refused.append(error))
        producer.flush(30)
        assert refused[0].name() == "TOPIC_AUTHORIZATION_FAILED"
        consumer = client.Consumer({**confluent(server, "PLAIN", "reads", reads), "group.id": "g"})
        consumer.assign([client.TopicPartition(topic, 0, 0)])
        assert consumer.poll(30).value() == b"value"
        consumer.close()


def test_two_tenants_keep_their_groups() -> None:
    """By the streams that their tokens have, and by the names of groups."""
    client = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    admin_of = pytest.importorskip("confluent_kafka.admin")
    with running_gateway(CONFIG + "\n[access]\n") as gateway:
        tokens, server = TokensOf(gateway.data), Server(gateway, None)
        allowed = scope("read", "append", "check-tail", "list-streams", "create-stream")
        settings: dict[str, dict[str, Any]] = {}
        for name in ("a", "b"):
            token = tokens.issue(name, msgspec.structs.replace(allowed, streams=ResourceSet(prefix=f"{name}-")))
            settings[name] = confluent(server, "PLAIN", name, token)
            producer = client.Producer(settings[name])
            producer.produce(f"{name}-topic", b"value")
            assert producer.flush(30) == 0
            member = {"group.id": f"group-of-{name}", "auto.offset.reset": "earliest"}
            consumer = client.Consumer({**settings[name], **member})
            consumer.subscribe([f"{name}-topic"])
            record = consumer.poll(30)
            assert record.error() is None
            consumer.commit(record, asynchronous=False)
            consumer.close()
        transactional = client.Producer({**settings["a"], "transactional.id": "x"})
        transactional.init_transactions(30)
        transactional.begin_transaction()
        transactional.produce("a-topic", b"second")
        assert transactional.flush(30) == 0
        admin = admin_of.AdminClient(settings["b"])
        assert [one.group_id for one in admin.list_consumer_groups().result(30).valid] == ["group-of-b"]
        for future in (
            *admin.delete_consumer_groups(["group-of-a"]).values(),
            *admin.describe_consumer_groups(["group-of-a"]).values(),
            *admin.list_consumer_group_offsets([client.ConsumerGroupTopicPartitions("group-of-a")]).values(),
        ):
            with pytest.raises(client.KafkaException) as refused:
                future.result(30)
            assert refused.value.args[0].name() == "GROUP_AUTHORIZATION_FAILED"
        thief = client.Producer({**settings["b"], "transactional.id": "x"})
        with pytest.raises(client.KafkaException) as refused:
            thief.init_transactions(30)
        assert refused.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        transactional.commit_transaction(30)
        admin = admin_of.AdminClient(settings["a"])
        asked = client.ConsumerGroupTopicPartitions("group-of-a")
        [future] = admin.list_consumer_group_offsets([asked]).values()
        assert [one.offset for one in future.result(30).topic_partitions] == [1]
        [future] = admin.delete_consumer_groups(["group-of-a"]).values()
        future.result(30)


# ---- the gateway as a client -----------------------------------------------------------------------------------------


def before(
    bridge: Bridge, address: Address, certificate: str | None, directory: Path, mechanism: str, secret: str
) -> str:
    """Return the configuration of a gateway that logs in as `plant`."""
    (directory / "password").write_text(secret)
    more = f'mechanism = "{mechanism}"\nusername = "plant"\npassword_file = "{directory / "password"}"\n'
    more += f"recover_seconds = 2\n{bridge.more}"
    if certificate:
        more += f'\ntls = true\ntls_ca = "{certificate}"'
    return replace(bridge, more=more).configuration(address)


def behind(server: Server, directory: Path, mechanism: str, secret: str) -> str:
    """Return the configuration of a gateway before the guarded one."""
    address = ("127.0.0.1", server.gateway.kafka_port)
    return before(SECOND["kafka"], address, server.certificate, directory, mechanism, secret)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_gateway_logs_in(guarded: Server, mechanism: str, tmp_path: Path) -> None:
    """At another gateway, whose records it appends and reads; the secret is in no log."""
    with running_gateway(behind(guarded, tmp_path, mechanism, "a-token-of-plant")) as gateway:
        client, stream = S2Client(("127.0.0.1", gateway.s2_port), BASIN), unique("stream")
        client.ensure_stream(stream)
        client.append(stream, "first", "second")
        assert client.bodies(stream, seq_num=0) == ["first", "second"]
        assert "a-token-of-plant" not in gateway.log_tail()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(guarded: Server, mechanism: str, tmp_path: Path) -> None:
    with running_gateway(behind(guarded, tmp_path, mechanism, "wrong-secret")) as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        answer = client.append_json("stream", {"records": [{"body": "x"}]})
        assert answer.status == 403 and f"login as plant by {mechanism}" in answer.body.decode(), answer
        assert "wrong-secret" not in answer.body.decode() + gateway.log_tail()


# ---- Apache Kafka ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedBroker]:
    with GuardedBroker() as started:
        yield started


def before_kafka(broker: GuardedBroker, directory: Path, mechanism: str, secret: str, *, tls: bool) -> str:
    """Return the configuration of a gateway before a broker of Apache Kafka."""
    address, certificate = (broker.secure, broker.certificate) if tls else (broker.plain, None)
    return before(REAL["kafka"], address, certificate, directory, mechanism, secret)


@pytest.mark.peer
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_gateway_logs_in_at_apache_kafka(broker: GuardedBroker, mechanism: str, tls: bool, tmp_path: Path) -> None:
    """Clients of S2, and those of Kafka who need no login of their own, use its topics; the secret is in no log."""
    client = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    with running_gateway(before_kafka(broker, tmp_path, mechanism, broker.SECRET, tls=tls)) as gateway:
        stream, s2 = unique("stream"), S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        s2.ensure_stream(stream)
        s2.append(stream, "first")
        producer = client.Producer({"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}"})
        producer.produce(stream, b"second")
        assert producer.flush(30) == 0
        assert s2.bodies(stream, seq_num=0) == ["first", "second"]
        assert broker.SECRET not in gateway.log_tail()


@pytest.mark.peer
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_apache_kafka_refuses_a_wrong_password(broker: GuardedBroker, mechanism: str, tmp_path: Path) -> None:
    with running_gateway(before_kafka(broker, tmp_path, mechanism, "wrong-secret", tls=False)) as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        answer = client.append_json("stream", {"records": [{"body": "x"}]})
        assert answer.status == 403 and f"login as plant by {mechanism}" in answer.body.decode(), answer
        assert "wrong-secret" not in answer.body.decode() + gateway.log_tail()
