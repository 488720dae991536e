"""The README is true: its table of clients has the versions that the tests install, and each test runs its client."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from support import real_peers
from support.shipping import ROOT

PEERS: Final = ROOT / "tests" / "peers"
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
BY_THE_SYSTEM: Final = {"curl", "Chromium", "kcat", "tshark"}
"""Programs that the system brings: the table has the versions that ran last."""
WORDS: Final = {
    "s2-sdk (Python)": "s2_sdk",
    "@s2-dev/streamstore (TypeScript)": "scenarios.mjs",
    "s2-sdk-go": "go",
    "s2, the command line of S2 (Rust)": "s2_program",
    "curl": "curl",
    "eventsource (npm)": "eventsource.mjs",
    "Chromium": "EventSource",
    "redis-py and hiredis, as readers of RESP": "import hiredis",
    "pravega (Python)": "support.pravega.clients",
    "pravega-client (Java)": "Peer.java",
    "durable-streams (Python)": "durable_streams",
    "@durable-streams/server-conformance-tests": "durable.test.mjs",
    "confluent-kafka (librdkafka)": "confluent_kafka",
    "kafka-python": "kafka",
    "franz-go": "franz-go",
    "kafkajs (npm)": "kafkajs",
    "kafka-tools (Java), Apache Kafka's own": "ProducerPerformance",
    "kcat": "kcat",
    "mcp (Python)": "mcp",
    "tshark": "tshark",
}
"""A piece of each client's test that nothing else has."""


def versions() -> dict[str, str]:
    """Return the version of each client's package, as the tests install it."""
    found = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines())
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["peers"]
    found |= dict(re.findall(r"^([\w-]+)==([\d.]+)(?:;|$)", "\n".join(map(str, pinned)), re.MULTILINE))
    found |= json.loads((PEERS / "node" / "package.json").read_text())["dependencies"]
    for folder in (PEERS / "go", PEERS / "go" / "kafka"):
        found |= dict(re.findall(r"([\w-]+) (v[\d.]+)$", (folder / "go.mod").read_text(), re.MULTILINE))
    for folder in ("client", "kafka"):
        for one in ElementTree.parse(PEERS / "java" / folder / "pom.xml").iterfind(".//{*}dependency"):
            found[one.findtext("{*}artifactId") or ""] = one.findtext("{*}version") or ""
    return found | {"s2": real_peers.S2_VERSION}


def rows() -> list[list[str]]:
    """Return protocol, client, version and test of each row."""
    _, _, section = README.partition("\n## Clients\n")
    lines = re.findall(r"^\| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return [line.split(" | ") for line in lines if not line.startswith("protocol")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_each_client_is_the_one_that_is_tested(row: list[str]) -> None:
    _, client, version, test = row
    path = re.search(r"\]\((.+)\)", test)
    assert path is not None and Path(path[1]).parent == PEERS.relative_to(ROOT)
    assert WORDS[client] in (ROOT / path[1]).read_text()
    name = re.split(r" \(|,", client)[0]
    if name not in BY_THE_SYSTEM:
        packages = ["redis", "hiredis"] if "hiredis" in client else [name]
        assert version == ", ".join(versions()[package] for package in packages)


def test_all_clients_are_looked_at() -> None:
    assert [row[1] for row in rows()] == list(WORDS)


def test_it_has_no_figures() -> None:
    """Rates and times hold for one machine; `make bench` prints those of the reader's."""
    assert not re.findall(r"\b[\d,.]+ ?(?:[kM]?B/s|records/s|ms\b|us\b|times (?:as|faster))", README)
