"""Who is led to the management listener by a name that is not this machine's is told nothing."""

from __future__ import annotations

import http.client

import pytest
from support.management import management_port
from support.process import CONFIG, GatewayProcess
from support.recorded_traffic import MANAGEMENT

from penstock.config import Management
from penstock.management.hosts import is_local_name
from penstock.wiring.management import management_settings


@pytest.mark.parametrize(
    ("authority", "local"),
    [
        ("", True),
        ("127.0.0.1:9600", True),
        ("127.0.0.1", True),
        ("10.1.2.3:9600", True),
        ("[::1]:9600", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost.:9600", True),
        ("gateway.localhost:9600", True),
        ("evil.example:9600", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:9600", False),
        ("evillocalhost", False),
        ("evil.example:127.0.0.1", False),
        ("[evil.example]:1", False),
    ],
)
def test_names_of_this_machine(authority: str, local: bool) -> None:
    assert is_local_name(authority) is local


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("[::1]", True),
        ("localhost", True),
        ("gw.localhost", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("gw", False),
    ],
)
def test_names_are_looked_at_where_only_this_machine_is_heard(host: str, loopback: bool) -> None:
    assert management_settings(Management(bind=f"{host}:9600")).loopback is loopback


@pytest.mark.parametrize("tokens", [False, True])
def test_a_page_that_has_its_name_lead_here_is_told_nothing(tokens: bool) -> None:
    with GatewayProcess(CONFIG + MANAGEMENT + ('auth_tokens = ["secret"]' if tokens else "")) as gateway:
        port = management_port(gateway)

        def status(target: str, host: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", target, headers={"host": host, "authorization": "Bearer secret"})
            answer = connection.getresponse().status
            connection.close()
            return answer

        for target in ("/tail", "/connections", "/recordings", "/routes"):
            assert status(target, f"evil.example:{port}") == (200 if tokens else 403)
            assert status(target, f"localhost:{port}") == 200
        assert status("/health", "evil.example") == 200
