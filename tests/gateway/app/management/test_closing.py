"""Connections that operators end: with clients, and with servers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from support.captures.traffic import until
from support.management import ask
from support.process import BASIN, CONFIG, GatewayProcess
from support.real_backs import SecondPenstock
from support.s2.client import S2Client
from support.s3p.client import S3PClient


def shown(port: int, side: str, protocol: str) -> list[dict[str, Any]]:
    rows = ask(port, "/connections")[1]["connections"]
    return [row for row in rows if (row["side"], row["protocol"]) == (side, protocol)]


def numbers(port: int, protocol: str, stream: str) -> list[int]:
    """Of the connections that are about this stream alone."""
    return [row["connection"] for row in shown(port, "front", protocol) if row["streams"] == [f"{BASIN}/{stream}"]]


def test_a_clients_connection_is_ended_and_no_other(gateway: GatewayProcess) -> None:
    port = gateway.management_port
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as first, S3PClient(("127.0.0.1", gateway.s3p_port)) as second:
        for client, name in ((first, "closing-1"), (second, "closing-2")):
            client.create(name)
        (number,) = numbers(port, "s3p", "closing-1")
        assert ask(port, f"/connections/{number}/close", {}) == (200, {"connection": number, "closed": True})
        with pytest.raises((EOFError, ConnectionError)):
            first.append("closing-1", b"lost")
        second.append("closing-2", b"kept")
        assert ask(port, f"/connections/{number}/close", {})[0] == 404


def test_a_follower_is_ended_by_delete(gateway: GatewayProcess) -> None:
    """A client that only reads is disconnected too."""
    port = gateway.management_port
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append("followed", "one")
    with client.events("followed", seq_num=0) as events:
        events.batch()
        (number,) = numbers(port, "s2", "followed")
        assert ask(port, f"/connections/{number}", method="DELETE")[0] == 200
        with contextlib.suppress(ConnectionError, EOFError, ValueError):
            events.rest()
    assert ask(port, "/connections/nonsense", method="DELETE")[0] == 404


BEFORE = """
[backs.second]
kind = "s2"
address = "127.0.0.1:PORT"
[[routes]]
name = "all"
back = "second"
"""


def test_a_connection_with_a_server_is_made_anew() -> None:
    with (
        SecondPenstock("s2") as server,
        GatewayProcess(CONFIG + BEFORE.replace("PORT", str(server.process.s2_port))) as gateway,
    ):
        port = gateway.management_port
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        client.append("orders", "first")
        before = [row["connection"] for row in shown(port, "back", "s2")]
        assert before and all(ask(port, f"/connections/{number}/close", {})[0] == 200 for number in before)
        until(lambda: not shown(port, "back", "s2"))
        client.append("orders", "second")
        after = [row["connection"] for row in shown(port, "back", "s2")]
        assert after and not set(after) & set(before)
