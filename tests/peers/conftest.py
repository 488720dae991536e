"""Fixtures of the peer tests: programs that Penstock did not ship, against a running gateway process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.peers import Curl, create_basin, create_stream, need, unique
from support.pravega.clients import PravegaClient, need_pravega
from support.pravega.java import PROJECT, JavaPeer, running_java
from support.process import CONFIG, GatewayProcess, running_gateway

if TYPE_CHECKING:
    from support.s2.sdk import Connect


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this room is a peer test."""
    for item in items:
        if item.nodeid.startswith("tests/peers/"):
            item.add_marker("peer")


@pytest.fixture
def basin(gateway: GatewayProcess) -> str:
    """An empty basin of the shared gateway."""
    name = unique("peers")
    create_basin(gateway.s2_port, name)
    return name


@pytest.fixture
def stream(gateway: GatewayProcess, basin: str) -> str:
    """An empty stream of `basin`."""
    create_stream(gateway.s2_port, basin, "events")
    return "events"


@pytest.fixture
def connect(gateway: GatewayProcess) -> Connect:
    """Opens a client of the shared gateway, the official Python one."""
    from support.s2.sdk import connector

    return connector(gateway.s2_port)


@pytest.fixture(scope="session")
def pravega_gateway() -> Iterator[GatewayProcess]:
    """A gateway of their own, which the tests of Pravega's clients share."""
    with running_gateway() as process:
        yield process


@pytest.fixture
def client(pravega_gateway: GatewayProcess) -> Iterator[PravegaClient]:
    """Pravega's Python client, in a process of its own."""
    need_pravega()
    with PravegaClient(pravega_gateway.controller_port) as client:
        yield client


@pytest.fixture
def scope(client: PravegaClient) -> str:
    """A scope whose name is no basin's, so that for all other protocols its streams are called `scope/stream`."""
    name = unique("Scope")
    assert client.call("manage", "create_scope", name) is True
    return name


CONTROLLER = 'bind = "127.0.0.1:{controller_port}"\n'
OFTEN = CONFIG.replace(CONTROLLER, f"{CONTROLLER}retention_seconds = 1\n").replace(
    "[store]\n", "[store]\nsweep_interval_seconds = 1\n"
)
"""A gateway that truncates streams by their retention every second, and whose store does so by age."""


@pytest.fixture(scope="session", params=["gateway", pytest.param("pravega", marks=pytest.mark.long)])
def java_peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """Pravega's Java client at a gateway, and at Pravega itself to prove that a test expects what Pravega does."""
    from support.real_backs import PravegaStandalone

    with ExitStack() as stack:
        gateway = None
        if request.param == "gateway":
            gateway = stack.enter_context(running_gateway(OFTEN))
            port = gateway.controller_port
        else:
            controller = stack.enter_context(PravegaStandalone()).controller
            assert controller is not None
            port = controller[1]
        java = running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), f"tcp://127.0.0.1:{port}")
        yield JavaPeer(stack.enter_context(java), gateway)


@pytest.fixture
def java(java_peer: JavaPeer) -> Iterator[JavaPeer]:
    """The same, and what a test leaves open there is closed after it."""
    yield java_peer
    java_peer.ask("forget")


@pytest.fixture
def java_scope(java: JavaPeer) -> str:
    """An empty scope."""
    name = unique("Java")
    assert java.ask("scope", name) == ["true"]
    return name


@pytest.fixture
def curl() -> Curl:
    """Runs curl with the given arguments; a deadline ends it."""
    program = need("curl")

    def run(*args: str, stdin: bytes = b"", seconds: float = 20) -> subprocess.CompletedProcess[bytes]:
        command = [program, "--silent", "--show-error", "--noproxy", "*", *args]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=seconds, check=False)

    return run
