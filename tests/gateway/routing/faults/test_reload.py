"""Faults come and go with the configuration, for connections that are open too."""

from __future__ import annotations

import urllib.request
from contextlib import closing

from support.faults import injected, with_faults
from support.process import CONFIG, GatewayProcess
from support.s3p.client import S3PClient, S3PError

RULE = {"name": "busy", "action": "error", "operations": ["append"]}


def test_an_open_connection_has_the_new_rules(fresh_gateway: GatewayProcess) -> None:
    path = fresh_gateway.directory / "gateway.toml"
    plain = path.read_text()
    faulty = plain + with_faults(RULE, config="")
    with closing(S3PClient(("127.0.0.1", fresh_gateway.s3p_port))) as client:
        client.create("busy")
        assert isinstance(client.append("busy", b"1"), bytes)
        for text, refused in ((faulty, True), (plain, False)):
            path.write_text(text)
            reload(fresh_gateway)
            assert isinstance(client.append("busy", b"2"), S3PError) is refused
    assert injected(fresh_gateway, "busy") == ["error"]


def reload(gateway: GatewayProcess) -> None:
    url = f"http://127.0.0.1:{gateway.management_port}/reload"
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def test_faults_are_shown_among_what_is_in_force() -> None:
    with (
        GatewayProcess(with_faults(RULE, config=CONFIG)) as gateway,
        urllib.request.urlopen(f"http://127.0.0.1:{gateway.management_port}/config") as answer,
    ):
        assert b'"busy"' in answer.read()
