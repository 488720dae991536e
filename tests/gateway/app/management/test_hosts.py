"""Names that lead to the management listener but are not this machine's (DNS rebinding) get no answers."""

from __future__ import annotations

import http.client

import pytest
from support.captures.traffic import MANAGEMENT
from support.management import management_port
from support.process import CONFIG, GatewayProcess

from penstock.app.bootstrap.management import management_settings
from penstock.app.config import Management


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
