"""Two gateways that have their state in a topic of Apache Kafka, or a stream of Pravega, and no disk: clients of each
see one truth."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.bridges.balanced import before_kafka, before_pravega
from support.captures.traffic import until
from support.kafka.plain import KafkaSocket
from support.management import ask
from support.peers import unique
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import KafkaBroker, PravegaStandalone
from support.s2.client import S2Client
from support.s3p.client import S3PClient

from penstock.backends.logged_tables.leases import PATIENCE
from penstock_kafka.codec.config_messages import (
    AlteredConfig,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock_kafka.codec.topic_messages import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

pytestmark = pytest.mark.peer
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as started:
        yield started


@pytest.fixture(scope="module")
def gateways(broker: KafkaBroker) -> Iterator[list[GatewayProcess]]:
    template = before_kafka([broker.address])
    template = template.replace("[listeners.kafka]\n", "[listeners.kafka]\nfirst_rebalance_seconds = 0\n")
    with running_gateway(template) as one, running_gateway(template) as other:
        yield [one, other]


def test_a_gateway_that_was_there_before_the_broker_is_ready_once_it_comes() -> None:
    broker = KafkaBroker()
    with GatewayProcess(before_kafka([broker.address])) as gateway:
        until(lambda: gateway.events("waiting_for_state"))
        assert ask(gateway.management_port, "/ready")[0] == 503
        with broker:
            until(lambda: ask(gateway.management_port, "/ready")[0] == 200, 60)
            assert gateway.events("state_reached")
            s2(gateway).append(unique("late"), "x")
        assert gateway.terminate() == 0


def s2(gateway: GatewayProcess) -> S2Client:
    return S2Client((LOOPBACK, gateway.s2_port), BASIN)


def s3p(gateway: GatewayProcess) -> S3PClient:
    return S3PClient((LOOPBACK, gateway.s3p_port), timeout=30)


def test_they_have_no_files(gateways: list[GatewayProcess]) -> None:
    s2(gateways[0]).append(unique("no-files"), "x")
    for gateway in gateways:
        names = {path.name for path in gateway.directory.rglob("*")}
        assert names == {"gateway.toml", "stderr.log", "stdout.log"}


def test_identifiers_and_a_trim_within_one_ms_are_the_same_through_both(gateways: list[GatewayProcess]) -> None:
    stream = unique("identified")
    with s3p(gateways[0]) as one, s3p(gateways[1]) as other:
        assert one.create(stream) == "OK"
        for _ in range(5):
            one.append(stream, *(b"%d" % number for number in range(10)))
        before = one.read(stream)
        assert other.read(stream) == before
        middle = before[5][0]  # the records of an append have one ms
        assert middle.endswith(b"-5"), before
        assert one.call("TRIM", stream, ["MIN_ID", middle]) == "OK"
        for client in (other, one):
            assert client.read(stream) == before[5:]


def durable(gateway: GatewayProcess, method: str, stream: str, body: bytes = b"", **headers: str) -> int:
    """Send a request of Durable Streams; underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(gateway.durable_url + stream, body or None, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_durable_producer_goes_on_at_the_other_gateway(gateways: list[GatewayProcess]) -> None:
    one, other = gateways
    stream, plain = unique("durable"), {"content_type": "text/plain"}
    assert durable(one, "PUT", stream, **plain) == 201
    assert durable(other, "PUT", stream, **plain) == 200

    def produce(gateway: GatewayProcess, number: int) -> int:
        named = {"producer_id": "p", "producer_epoch": "0", "producer_seq": str(number)}
        return durable(gateway, "POST", stream, b"%d," % number, **named, **plain)

    for number in range(6):
        gateway, again = (one, other) if number % 2 else (other, one)
        assert produce(gateway, number) == 200
        assert produce(again, number) == 204, "it is stored already"
    for gateway in gateways:
        with urllib.request.urlopen(gateway.durable_url + stream + "?offset=-1", timeout=60) as answer:
            assert answer.read() == b"0,1,2,3,4,5,"
    assert durable(other, "POST", stream, b"", stream_closed="true", **plain) in (200, 204)
    assert durable(one, "POST", stream, b"x", **plain) == 409
    assert s2(one).append_json(stream, {"records": [{"body": "x"}]}).status >= 400


@pytest.mark.parametrize("body", [b"", b"END"])
def test_a_close_is_behind_all_that_both_gateways_acknowledge(gateways: list[GatewayProcess], body: bytes) -> None:
    stream, ends = unique("closing"), [0]
    assert durable(gateways[0], "PUT", stream, content_type="text/plain") == 201

    def append(gateway: GatewayProcess) -> None:
        client = s2(gateway)
        while (answer := client.append_json(stream, {"records": [{"body": "x"}]})).status == 200:
            ends.append(answer.json()["end"]["seq_num"])

    writers = [threading.Thread(target=append, args=(gateway,), daemon=True) for gateway in (*gateways, *gateways)]
    for writer in writers:
        writer.start()
    until(lambda: len(ends) > 50)
    named = {"content-type": "text/plain", "stream-closed": "true"}
    request = urllib.request.Request(gateways[1].durable_url + stream, body or None, named, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        final = int(answer.headers["stream-next-offset"].partition("_")[0])
    for writer in writers:
        writer.join(60)
    assert not any(writer.is_alive() for writer in writers)
    assert max(ends) <= final


def test_a_gateway_that_was_stopped_takes_no_lease_from_the_one_that_serves(gateways: list[GatewayProcess]) -> None:
    """It has not read the beats of that time; before, it counted from the last one that it had read."""
    [serving], [waiting] = (
        [gateway for gateway in gateways if bool(gateway.events("lease_taken")) is holds] for holds in (True, False)
    )
    before = len(serving.events("lease_taken"))
    for _ in range(3):
        os.kill(waiting.pid, signal.SIGSTOP)
        try:
            time.sleep(1.2 * PATIENCE)
        finally:
            os.kill(waiting.pid, signal.SIGCONT)
        s2(waiting).append(unique("stopped"), "x")  # it is back
        time.sleep(PATIENCE / 2)
        assert not waiting.events("lease_taken")
        assert not serving.events("lease_lost")
        assert len(serving.events("lease_taken")) == before


def test_a_state_topic_that_is_endangered_or_deleted_is_a_reason_not_to_be_ready(broker: KafkaBroker) -> None:
    """The gateways keep what they have read. Before, they created the topic again and were ready, with nothing of what
    they had acknowledged, and a changed policy was not noticed."""
    topic, stream = unique("state"), unique("kept")
    template = before_kafka([broker.address]).replace('"penstock-state"', f'"{topic}"')

    def reasons(gateway: GatewayProcess) -> str:
        status, body = ask(gateway.management_port, "/ready")
        return "" if status == 200 else str(body)

    def set_policy(value: str) -> None:
        changed = AlteredResource(
            resource_type=2,
            resource_name=topic,
            configs=[AlteredConfig(name="cleanup.policy", config_operation=0, value=value)],
        )
        with KafkaSocket(broker.address) as client:
            found = client.call(IncrementalAlterConfigsRequest(resources=[changed]), IncrementalAlterConfigsResponse)
        assert found.responses[0].error_code == 0, found

    with running_gateway(template) as one, running_gateway(template) as other:
        for gateway in (one, other):
            assert durable(gateway, "PUT", stream, content_type="text/plain") in (200, 201)
            until(lambda: not reasons(gateway), 30)  # noqa: B023 - it is called here
        set_policy("compact,delete")
        for gateway in (one, other):
            assert until(lambda: "cleanup.policy=compact,delete" in reasons(gateway), 60)  # noqa: B023
            assert gateway.events("state_endangered")[0]["level"] == "error"
        set_policy("compact")
        for gateway in (one, other):
            until(lambda: not reasons(gateway), 60)  # noqa: B023
            assert durable(gateway, "PUT", stream, content_type="text/plain") == 200
        with KafkaSocket(broker.address) as client:
            deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=10_000)
            assert client.call(deleted, DeleteTopicsResponse).responses[0].error_code == 0
        for gateway in (one, other):
            assert until(lambda: "was deleted" in reasons(gateway), 60)  # noqa: B023
            assert gateway.events("state_lost")[0]["level"] == "error"
            assert durable(gateway, "PUT", stream, content_type="text/plain") == 503
        other.restart()  # as the message says, it begins with what there is: nothing
        assert durable(other, "PUT", unique("new"), content_type="text/plain") == 201
        assert "was deleted" in reasons(one)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(params=["Kafka", pytest.param("Pravega", marks=pytest.mark.long)])
def configured(request: pytest.FixtureRequest) -> Iterator[str]:
    """The configuration of gateways before a server that has their state."""
    if request.param == "Kafka":
        yield before_kafka([request.getfixturevalue("broker").address])
        return
    with PravegaStandalone() as server:
        assert server.controller is not None
        yield before_pravega(server.controller)


def test_a_token_that_one_gateway_issues_is_accepted_by_the_other_until_it_is_revoked(configured: str) -> None:
    """Also by a gateway that starts later, and sessions with it end on all of them."""
    template = configured.replace("[listeners.s2]\n", '[listeners.s2]\nauth_tokens = ["first-token"]\n')
    template += "\n[access]\n"
    first, stream, name = bearer("first-token"), unique("with-token"), unique("reader-and-writer")
    scope = {"basins": {"prefix": ""}, "streams": {"prefix": ""}, "ops": ["append", "read", "create-stream"]}
    with running_gateway(template) as one, running_gateway(template) as other:
        issue = ("POST", "/v1/access-tokens", {"id": name, "scope": scope}, first)
        token = bearer(s2(one).send_json(*issue).json(201)["access_token"])
        s2(other).send_json(*issue).fails(409, "resource_already_exists")
        until(lambda: s2(other).append_json(stream, {"records": [{"body": "x"}]}, token).status == 200)
        [found] = s2(other).request("GET", "/v1/access-tokens", headers=first, prefix=name).json()["access_tokens"]
        assert found["id"] == name
        with running_gateway(template) as third:
            until(lambda: ask(third.management_port, "/ready")[0] == 200, 60)
            followers = [s2(gateway).events(stream, headers=token, seq_num=0) for gateway in (other, third)]
            for followed in followers:
                assert followed.batch()
            assert s2(one).request("DELETE", f"/v1/access-tokens/{name}", headers=first).status == 204
            for followed in followers:
                assert followed.rest()[-1].name == "error"
                followed.close()
            for gateway in (one, other, third):
                assert s2(gateway).append_json(stream, {"records": [{"body": "x"}]}, token).fails(401, "authn")


def test_kafka_clients_find_the_gateway_that_serves_them_and_its_successor(gateways: list[GatewayProcess]) -> None:
    """A group goes on behind its committed offset when the gateway that coordinated it is killed."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    topic, group, received = unique("topic"), unique("group"), []
    both = ",".join(f"{LOOPBACK}:{gateway.kafka_port}" for gateway in gateways)
    producer = kafka.Producer({"bootstrap.servers": f"{LOOPBACK}:{gateways[1].kafka_port}"})
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": both,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "topic.metadata.refresh.interval.ms": 5000,
        }
    )

    def receive(count: int) -> None:
        deadline = time.monotonic() + 90
        while len(received) < count:
            assert time.monotonic() < deadline, f"{len(received)} of {count} came"
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                received.append(message.value())
        consumer.commit(asynchronous=False)

    s2(gateways[0]).append(topic, "0")
    producer.produce(topic, b"1")
    assert producer.flush(60) == 0
    consumer.subscribe([topic])
    receive(2)
    holder = next(gateway for gateway in gateways if gateway.events("lease_taken"))
    rest = gateways[1 - gateways.index(holder)]
    assert not rest.events("lease_taken")
    holder.kill()
    try:
        s2(rest).append(topic, "2")
        receive(3)
        assert received == [b"0", b"1", b"2"]
        assert rest.events("lease_taken")
    finally:
        consumer.close()
        holder.start()


def test_kafka_clients_that_knew_the_serving_gateway_alone_find_its_successor(gateways: list[GatewayProcess]) -> None:
    """Metadata of the gateway that is killed has told them of the other one."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (group peers)")
    topic, ports = unique("known"), {gateway.kafka_port for gateway in gateways}

    def listed(port: int) -> Any:
        """Return the metadata of all gateways, for a client that is configured with this one."""
        client = kafka.Producer({"bootstrap.servers": f"{LOOPBACK}:{port}"})

        def complete() -> Any:
            found = client.list_topics(timeout=30)
            return len(found.brokers) == len(ports) and found.controller_id in found.brokers and found

        return until(complete, 60)

    found = listed(gateways[0].kafka_port)
    serving = found.brokers[found.controller_id].port
    assert {broker.port for broker in listed(serving).brokers.values()} == ports
    holder = next(gateway for gateway in gateways if gateway.kafka_port == serving)
    server = {"bootstrap.servers": f"{LOOPBACK}:{serving}"}
    producer = kafka.Producer({**server, "enable.idempotence": True})
    consumer = kafka.Consumer({**server, "group.id": unique("group"), "enable.auto.commit": False})
    producer.produce(topic, b"0")
    assert producer.flush(60) == 0
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert [message.value() for message in consumer.consume(1, timeout=60)] == [b"0"]
    holder.kill()
    try:
        producer.produce(topic, b"1")
        assert producer.flush(90) == 0
        assert [message.value() for message in consumer.consume(1, timeout=90)] == [b"1"]
    finally:
        consumer.close()
        holder.start()
