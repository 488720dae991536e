"""Rules for some routes, identities and listeners, where the wiring must know which those are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.faults import injected, with_faults
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient, S3PError

WAYS = """
[access]

[[identities]]
name = "unlucky"
tokens = ["unlucky-token"]

[[routes]]
name = "orders"
match = "prefix"
stream = "orders"

[[routes]]
name = "rest"
"""
RULES = [
    {"name": "by-route", "stream": None, "action": "error", "operations": ["append"], "routes": ["orders"]},
    {"name": "by-identity", "stream": None, "action": "error", "operations": ["read"], "identity": ["unlucky"]},
    {"name": "by-listener", "action": "error", "operations": ["append"], "listeners": ["s3p"]},
]


@pytest.fixture(scope="module")
def faulty() -> Iterator[GatewayProcess]:
    config = CONFIG.replace("[listeners.s2]\n", "[listeners.s2]\nanonymous = true\n")
    with running_gateway(with_faults(*RULES, config=config + WAYS)) as process:
        yield process


@pytest.fixture
def client(faulty: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", faulty.s2_port), BASIN)


def appended(client: S2Client, stream: str) -> int:
    return client.append_json(stream, {"records": [{"body": "x"}]}).status


def test_routes(faulty: GatewayProcess, client: S2Client) -> None:
    """Also behind what looks at tokens."""
    assert [appended(client, stream) for stream in ("orders-1", "others", "orders-2")] == [503, 200, 503]
    assert injected(faulty, "by-route") == ["error", "error"]


def test_identities(client: S2Client) -> None:
    appended(client, "shared")
    token = {"authorization": "Bearer unlucky-token"}
    path = "/v1/streams/shared/records?seq_num=0"
    answers = [client.request("GET", path, headers=headers) for headers in ({}, token)]
    assert [answer.status for answer in answers] == [200, 503]
    assert json.loads(answers[1].body)["message"] == "injected by fault by-identity"


def test_listeners(faulty: GatewayProcess, client: S2Client) -> None:
    assert appended(client, "by-listener") == 200
    with S3PClient(("127.0.0.1", faulty.s3p_port)) as other:
        assert isinstance(other.append("by-listener", b"x"), S3PError)
