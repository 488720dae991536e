"""Access tokens at a listener: what each operation needs, within the token's scope and outside it."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from support.access import TokensOf, closed_gateway, scope
from support.process import GatewayProcess

from penstock.model.access_tokens import ResourceSet

TEXT = {"content-type": "text/plain"}
PRODUCER = {"producer-id": "p", "producer-epoch": "0"}
CLOSE = {"stream-closed": "true"}
PLANT = ResourceSet(prefix="plant/")
WRITES = ("create-stream", "append", "check-tail")


class Client:
    """A client of the listener with one token."""

    def __init__(self, gateway: GatewayProcess, token: str | None) -> None:
        self.port = gateway.durable_port
        self.token = token

    def ask(self, method: str, path: str, body: bytes = b"", **headers: Any) -> tuple[int, bytes]:
        """Return status and body of one request; `path`: the stream and the query."""
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            shown["authorization"] = f"Bearer {self.token}"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, f"/v1/stream/{path}", body or None, TEXT | shown)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, TokensOf]]:
    with closed_gateway(tmp_path_factory.mktemp("closed")) as running:
        yield running


def test_a_token_may_use_the_streams_of_its_scope(closed: tuple[GatewayProcess, TokensOf]) -> None:
    gateway, tokens = closed
    client = Client(gateway, tokens.issue("all-ops", scope(*WRITES, "read", "delete-stream", streams=PLANT)))
    stranger = Client(gateway, tokens.issue("stranger", scope(*WRITES, "read", "delete-stream")))
    assert client.ask("PUT", "plant/a", b"0")[0] == 201
    assert client.ask("POST", "plant/a", b"1")[0] == 204
    for number, more in enumerate(({}, CLOSE)):
        headers = {**PRODUCER, "producer-seq": str(number), **more}
        assert client.ask("POST", "plant/a", b"%d" % (number + 2), **headers)[0] == 200
    assert client.ask("HEAD", "plant/a") == (200, b"")
    assert client.ask("GET", "plant/a?offset=-1") == (200, b"0123")
    status, events = client.ask("GET", "plant/a?offset=-1&live=sse")
    assert status == 200 and b"event: data" in events and b'"streamClosed":true' in events
    assert client.ask("PUT", "plant/fork", **{"stream-forked-from": "/v1/stream/plant/a"})[0] == 201
    assert stranger.ask("PUT", "other/b", b"secret")[0] == 201
    for method, body in (("PUT", b""), ("POST", b"x"), ("GET", b""), ("HEAD", b""), ("DELETE", b"")):
        assert client.ask(method, "other/b", body)[0] == 403, method
        assert client.ask(method, "other/new", body)[0] == 403, method
    assert client.ask("PUT", "plant/stolen", **{"stream-forked-from": "/v1/stream/other/b"})[0] == 403
    assert stranger.ask("GET", "other/b?offset=-1") == (200, b"secret")
    assert client.ask("DELETE", "plant/a")[0] == 204
    assert client.ask("GET", "plant/fork?offset=-1") == (200, b"0123")


def test_a_token_may_do_no_more_than_its_operations(closed: tuple[GatewayProcess, TokensOf]) -> None:
    gateway, tokens = closed
    writer = Client(gateway, tokens.issue("writer", scope(*WRITES)))
    reader = Client(gateway, tokens.issue("reader", scope("read", "check-tail")))
    assert writer.ask("PUT", "plant/b", b"0")[0] == 201
    assert reader.ask("GET", "plant/b?offset=-1") == (200, b"0")
    first = {**PRODUCER, "producer-seq": "0"}
    for headers, body in (
        ({}, b"x"),
        (CLOSE, b""),
        (first, b"x"),
        ({**first, **CLOSE}, b"x"),
        ({**first, **CLOSE}, b""),
    ):
        assert reader.ask("POST", "plant/b", body, **headers)[0] == 403, (headers, body)
    assert reader.ask("PUT", "plant/new")[0] == 403
    assert reader.ask("DELETE", "plant/b")[0] == 403
    assert writer.ask("GET", "plant/b?offset=-1")[0] == 403
    assert writer.ask("DELETE", "plant/b")[0] == 403
    assert Client(gateway, tokens.issue("blind", scope("append"))).ask("POST", "plant/b", b"x")[0] == 403
    for token in (None, "nonsense"):
        assert Client(gateway, token).ask("GET", "plant/b?offset=-1")[0] == 401
    assert reader.ask("GET", "plant/b?offset=-1") == (200, b"0")
    assert writer.ask("POST", "plant/b", **CLOSE)[0] == 204
