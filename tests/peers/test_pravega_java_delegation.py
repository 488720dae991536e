"""Pravega's Java client with a user name and a password: it shows delegation tokens with all its requests."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers import unique
from support.pravega.clients import bodies_by_s2s
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.process import CONFIG, GatewayProcess, running_gateway

from penstock.routing.access.passwords import hash_password

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 60)

PROJECT = Path(__file__).parent / "java" / "client"
DELEGATING = (
    CONFIG.replace("[listeners.controller]", "delegation_tokens = true\n\n[listeners.controller]")
    + f"""
[[identities]]
name = "analytics"
username = "ana"
password_hash = "{hash_password("of ana")}"
"""
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(DELEGATING) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def java(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    uri = f"tcp://127.0.0.1:{gateway.controller_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("pravega_client_auth_method", "Basic")
        patch.setenv("pravega_client_auth_token", base64.b64encode(b"ana:of ana").decode())
        with running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), uri) as java:
            yield java


@pytest.mark.long
def test_all_kinds_of_clients(gateway: GatewayProcess, java: JavaProgram) -> None:
    def ask(*question: object) -> list[str]:
        verdict, *words = java.ask(*question)
        assert verdict == "ok", words
        return words

    scope = unique("JavaDelegated")
    assert ask("scope", scope) == ["true"]
    assert (
        ask("stream", scope, "s", 1) == ask("stream", scope, "bytes", 1) == ask("stream", scope, "sum", 1) == ["true"]
    )
    ask("write", scope, "s", "e", 20, 3, 50)
    ask("group", scope, "g", "s")
    assert len(ask("read", scope, "s", "g", "r", 20, 20_000)) == 20
    ask("transaction", scope, "s", "t", 3, "commit")
    assert len(bodies_by_s2s(gateway, f"{scope}/s")) == 23
    ask("appendBytes", scope, "bytes", "hello")
    assert ask("readBytes", scope, "bytes", 0, 5)[-1] == "hello"
    assert ask("count", scope, "sum", 2, 5)[0] == "10"
    assert ask("kvt", "create", scope, "table", 2, 4, 0) == ["true"]
    ask("kvt", scope, "table", "insert", "key1", "one")
    assert ask("kvt", scope, "table", "get", "key1")[0].startswith("key1=one@")
    assert not gateway.events("token_rejected")
