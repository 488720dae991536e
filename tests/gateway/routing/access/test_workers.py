"""Tokens where a gateway has several processes: each knows them, and hears of a revocation by another at once."""

from __future__ import annotations

from pathlib import Path

from support.access import closed_gateway
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client

TWO = """
workers = 2

[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[access]

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"

[log]
format = "json"
"""
CONNECTIONS = 16
"""The system shares them out between the two."""


def test_every_process_knows_them(tmp_path: Path) -> None:
    def answers(gateway: GatewayProcess, token: str) -> set[int]:
        headers = {"authorization": f"Bearer {token}"}
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        return {client.request("GET", "/v1/streams", headers=headers).status for _ in range(CONNECTIONS)}

    with closed_gateway(tmp_path, TWO) as (gateway, tokens):
        token = tokens.issue("a")
        assert answers(gateway, token) == {200}
        tokens.revoke("a")
        assert answers(gateway, token) == {401}
