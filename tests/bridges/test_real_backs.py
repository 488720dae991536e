"""The servers that the other tests of this room stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kafka.plain import KafkaSocket
from support.real_backs import BackServer, KafkaBroker, PravegaStandalone, S2Lite, S3PReference, SecondPenstock
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataResponse
from penstock_kafka.codec.topic_messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TESTS = Path(__file__).parents[1]


def use_s2(server: BackServer, round_: int) -> None:
    client = S2Client(server.address).ensure_basin("real-backs-0001")
    client.ensure_stream(f"s{round_}")
    client.append(f"s{round_}", "x")
    assert client.bodies(f"s{round_}", seq_num=0) == ["x"]
    if server.keeps and round_:
        assert client.bodies("s0", seq_num=0) == ["x"]


def use_s3p(server: BackServer, round_: int) -> None:
    with S3PClient(server.address) as client:
        assert client.create(f"s{round_}") == "OK"
        client.append(f"s{round_}", b"x")
        assert [body for _, body in client.read(f"s{round_}")] == [b"x"]


def use_segment(server: BackServer, round_: int) -> None:
    with ReleasedSocket(server.address) as client:
        segment = client.new(f"ready/s{round_}/0.#epoch.0", b"x")
        assert client.content(segment)[8:] == b"x"


def use_kafka(server: BackServer, round_: int) -> None:
    with KafkaSocket(server.address) as client:
        created = client.call(CreateTopicsRequest(topics=[CreatableTopic(name=f"s{round_}")]), CreateTopicsResponse)
        assert created.topics[0].error_code == 0, created
        listed = client.call(MetadataRequest(topics=None), MetadataResponse)
        assert {"s0", f"s{round_}"} <= {topic.name for topic in listed.topics}


USE = {"kafka": use_kafka, "s2": use_s2, "s3p": use_s3p, "segment": use_segment}
SERVERS: dict[str, Callable[[], BackServer]] = {
    "s2 lite": S2Lite,
    "s2 lite on files": lambda: S2Lite(durable=True),
    "Pravega": PravegaStandalone,
    "Apache Kafka": KafkaBroker,
    "S3P reference": S3PReference,
    **{f"Penstock {kind}": lambda kind=kind: SecondPenstock(kind) for kind in USE},
}


LONG = dict.fromkeys(("Pravega", "Apache Kafka"), pytest.mark.long)
"""They take ten seconds to start, and the ordinary suite has started them once for the matrix."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in SERVERS])
def test_it_serves_and_comes_back_after_a_kill(name: str) -> None:
    with SERVERS[name]() as server:
        USE[server.kind](server, 0)
        address = server.address
        server.restart()
        assert server.address == address
        USE[server.kind](server, 1)


def test_the_installer_says_what_is_missing_and_does_not_fail(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "PENSTOCK_PEERS": str(tmp_path / "peers"), "PYTHONPATH": str(TESTS)}
    script = TESTS / "peers" / "real" / "install.py"
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    for server, tool in [
        ("s2 lite", "cargo"),
        ("Pravega standalone", "java"),
        ("Apache Kafka", "java"),
        ("S3P reference server", "go"),
    ]:
        [row] = [line for line in table if line.strip().startswith(server)]
        assert f"MISSING: {tool} is not installed: " in row
