"""Clients before a gateway whose every message has what they do not know, where its protocol lets it: they work as
ever."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import s2_sdk as s2
from s2_sdk import Compression
from support.bridges.client_fronts import DurableFront
from support.bridges.fronts import Record
from support.faults import injected, with_faults
from support.peers import create_basin, create_stream, finish, need, run_client, unique
from support.pravega.clients import Found, PravegaClient, need_pravega, numbered
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.sdk import EVERY_COMPRESSION, bodies, connector

NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def strange() -> Iterator[GatewayProcess]:
    """A gateway of which no answer is as specified."""
    with running_gateway(with_faults({"name": "unknown", "stream": None, "action": "unknown"})) as process:
        yield process


@pytest.fixture(autouse=True)
def faults_are_injected(strange: GatewayProcess) -> Iterator[None]:
    before = len(injected(strange, "unknown"))
    yield
    assert len(injected(strange, "unknown")) > before


def run_node(script: str, *arguments: str) -> None:
    """Run a client from npm, which must find everything as it should be."""
    if not (NODE / "node_modules").is_dir():
        pytest.skip("the npm clients are not installed: `make node-peers`")
    run_client([need("node"), script, *arguments], cwd=NODE, seconds=60)


@EVERY_COMPRESSION
def test_s2_sdk(strange: GatewayProcess, compression: Compression) -> None:
    """Frames are compressed from 1 KiB on."""
    records = [b"x" * 3000, b"small"]

    async def append_and_read() -> list[bytes]:
        async with connector(strange.s2_port)(compression) as client:
            stream = client.basin(BASIN).stream(f"sdk-{compression.value}")
            async with stream.append_session() as session:
                ticket = await session.submit(s2.AppendInput([s2.Record(body) for body in records]))
                assert (await ticket).end.seq_num == len(records)
            limit = s2.ReadLimit(count=len(records))
            async with stream.read_session(start=s2.SeqNum(0), limit=limit) as batches:
                return [body async for batch in batches for body in bodies(batch)]

    assert finish(append_and_read()) == records


@pytest.mark.parametrize("transport", ["s2s", "fetch"])
@pytest.mark.parametrize("scenario", ["unaryStrings", "appendSession", "readSessionFollows", "errors"])
def test_streamstore(strange: GatewayProcess, scenario: str, transport: str) -> None:
    basin = unique("peers")
    create_basin(strange.s2_port, basin)
    run_node("scenarios.mjs", scenario, strange.s2_url, basin, transport, "none")


def test_eventsource(strange: GatewayProcess) -> None:
    create_stream(strange.s2_port, BASIN, "events")
    run_node("eventsource.mjs", "query", strange.s2_url, BASIN, "events")


def test_durable_streams(strange: GatewayProcess) -> None:
    """Its events, too."""
    front = DurableFront(strange, "unknown")
    front.create()
    records = [front.formed(Record(b"%d" % number)) for number in range(3)]
    front.append(records)
    with front.follow(front.start()) as take:
        assert [one.record for one in take(3)] == records
    with urllib.request.urlopen(f"{strange.durable_url}unknown?offset=-1&live=sse", timeout=20) as answer:
        found = b""
        while b"upToDate" not in found:
            found += answer.readline()
    assert found.startswith(b": ") and b"penstock_unknown" in found.partition(b"event: control")[2]


def test_kafka_python(strange: GatewayProcess) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed (group peers)")
    server = {"bootstrap_servers": f"127.0.0.1:{strange.kafka_port}"}
    producer = kafka.KafkaProducer(**server)
    assert [producer.send("by-python", value=b"%d" % number).get(30).offset for number in range(3)] == [0, 1, 2]
    producer.close()
    consumer = kafka.KafkaConsumer(
        "by-python", group_id="one", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **server
    )
    assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
    consumer.close()


def test_pravega(strange: GatewayProcess) -> None:
    """By gRPC; segments have no unknown fields."""
    need_pravega()
    with PravegaClient(strange.controller_port) as client:
        scope = unique("Scope")
        assert client.call("manage", "create_scope", scope) is True
        client.call("manage", "create_stream", scope, "s", 1)
        client.call("write", scope, "s", numbered(20, 1))
        client.call("group", "g", scope, "s")
        client.call("reader", "r", "g")
        assert len(Found(client.call("read", ["r"], 20, 20)).bodies("r")) == 20
