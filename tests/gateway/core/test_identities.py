"""A client's identity, from its token or its address, decides which routes it may take; in a real process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import Answer, S2Client
from support.s3p.client import S3PClient, S3PError

CONFIG = """
[[listeners.s2]]
name = "open"
bind = "127.0.0.1:{s2_port}"

[[listeners.s2]]
name = "closed"
bind = "127.0.0.1:0"
auth_tokens = ["of-the-listener"]

[listeners.s3p]
bind = "127.0.0.1:{s3p_port}"
basin = "{basin}"

[[identities]]
name = "analytics"
tokens = ["of-analytics"]

[[identities]]
name = "here"
addresses = ["127.0.0.0/8"]

[[routes]]
name = "for-analytics"
identity = ["analytics"]
match = "prefix"
stream = "analytics/"

[[routes]]
name = "for-s3p"
identity = ["here"]
listeners = ["s3p"]
match = "exact"
stream = "legacy"

[[routes]]
name = "for-all"
stream = "open"

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"

[log]
format = "json"
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(CONFIG) as running:
        yield running


def ask(gateway: GatewayProcess, stream: str, token: str | None = None, listener: str = "open") -> Answer:
    ports = {event["listener"]: event["port"] for event in gateway.events("listening")}
    client = S2Client(("127.0.0.1", ports[f"listeners.s2.{listener}"]), BASIN)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return client.request("GET", f"/v1/streams/{stream}/records/tail", headers=headers)


def test_a_token_is_an_identity(gateway: GatewayProcess) -> None:
    assert ask(gateway, "analytics%2Fa", "of-analytics").status == 200
    refused = ask(gateway, "analytics%2Fa", "of-nobody").fails(403, "permission_denied")
    assert "route for-analytics" in refused and "is not for identity here" in refused
    assert ask(gateway, "analytics%2Fa").status == 403
    assert ask(gateway, "open").status == 200
    ask(gateway, "another").fails(404, "stream_not_found")


def test_an_address_is_an_identity(gateway: GatewayProcess) -> None:
    client = S3PClient(("127.0.0.1", gateway.s3p_port))
    try:
        assert client.create("legacy") == "OK"
        refused = client.create("analytics/a")
        assert isinstance(refused, S3PError) and "is not for identity here" in str(refused)
    finally:
        client.close()
    ask(gateway, "legacy").fails(404, "stream_not_found")


def test_a_listener_with_tokens_takes_those_of_identities_too(gateway: GatewayProcess) -> None:
    for token in (None, "of-nobody"):
        ask(gateway, "open", token, "closed").fails(401, "authn")
    assert ask(gateway, "open", "of-the-listener", "closed").status == 200
    assert ask(gateway, "analytics%2Fa", "of-analytics", "closed").status == 200
    assert ask(gateway, "analytics%2Fa", "of-the-listener", "closed").status == 403


def test_the_banner_shows_the_first_of_each_kind(gateway: GatewayProcess) -> None:
    banner = gateway.banner()
    assert f"127.0.0.1:{gateway.s2_port}/v1" in banner
    assert banner.count("# append two records (S2, JSON)") == 1
