"""Gateways that listen at `[::1]`, with clients of every protocol, and another gateway behind each kind of back."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from support.peers import unique
from support.pravega.clients import PravegaClient, need_pravega
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s3p.client import S3PClient

pytestmark = [pytest.mark.peer, pytest.mark.slow]

V6 = CONFIG.replace("127.0.0.1:{", "[::1]:{")
KINDS = ("s2", "s3p", "segment", "durable", "kafka")
BACK = """
[backs.far-{kind}]
kind = "{kind}"
{key} = "[::1]:{port}"
{more}
[[routes]]
name = "{kind}"
basin = "penstock"
match = "prefix"
stream = "{kind}-"
back = "far-{kind}"
"""
REST = """
[[routes]]
name = "rest"
back = "embedded"
"""
MORE = {"kafka": "create_streams = true\n", "durable": 'create_streams = true\ncreate_as = "json"\n'}


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayProcess]:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")
    with running_gateway(V6) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: GatewayProcess) -> Iterator[GatewayProcess]:
    backs = [
        BACK.format(
            kind=kind,
            key="controller" if kind == "segment" else "address",
            port=server.controller_port if kind == "segment" else getattr(server, f"{kind}_port"),
            more=MORE.get(kind, ""),
        )
        for kind in KINDS
    ]
    with running_gateway(V6 + "".join(backs) + REST) as started:
        yield started


def s2(gateway: GatewayProcess, method: str, path: str, body: object = None) -> object:
    request = urllib.request.Request(
        f"http://[::1]:{gateway.s2_port}/v1/streams/{path}",
        None if body is None else json.dumps(body).encode(),
        {"s2-basin": BASIN, "content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def bodies(gateway: GatewayProcess, stream: str) -> list[str]:
    records = s2(gateway, "GET", f"{quote(stream, safe='')}/records?seq_num=0")
    return [record["body"] for record in records["records"]]  # type: ignore[index]


@pytest.mark.parametrize("kind", KINDS)
def test_a_back_of_each_kind(gateway: GatewayProcess, server: GatewayProcess, kind: str) -> None:
    stream = unique(kind)
    s2(gateway, "PUT", stream, {})
    s2(gateway, "POST", f"{stream}/records", {"records": [{"body": "1"}, {"body": "2"}]})
    assert bodies(gateway, stream) == ["1", "2"]
    assert bodies(server, stream) == ["1", "2"]


def test_s3p_and_durable_clients(server: GatewayProcess) -> None:
    stream = unique("clients")
    with S3PClient(("::1", server.s3p_port)) as s3p:
        s3p.create(stream)
        s3p.append(stream, b"x")
    with urllib.request.urlopen(f"http://[::1]:{server.durable_port}/v1/stream/{stream}", timeout=30) as answer:
        assert answer.read() == b"x"


@pytest.mark.parametrize("library", ["confluent_kafka", "kafka"])
def test_kafka_clients(server: GatewayProcess, library: str) -> None:
    kafka = pytest.importorskip(library)
    topic, address = unique("topic"), f"[::1]:{server.kafka_port}"
    if library == "kafka":
        producer = kafka.KafkaProducer(bootstrap_servers=address)
        producer.send(topic, b"x").get(30)
        producer.close()
    else:
        producer = kafka.Producer({"bootstrap.servers": address})
        producer.produce(topic, b"x")
        assert producer.flush(30) == 0
    assert bodies(server, topic) == ["x"]


def test_the_python_client_of_pravega(server: GatewayProcess) -> None:
    need_pravega()
    scope, stream = unique("Scope"), unique("stream")
    with PravegaClient(server.controller_port, host="[::1]") as client:
        client.call("manage", "create_scope", scope)
        client.call("manage", "create_stream", scope, stream, 1)
        client.call("write", scope, stream, [["x", "key"]])
    assert bodies(server, f"{scope}/{stream}") == ["x"]
