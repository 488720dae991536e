"""Changing the configuration of a gateway that runs."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from support.process import BASIN, GatewayProcess

__all__ = ["KeptAlive", "ask_for_reload", "churn", "client_connections", "rewrite", "wait_for"]

PATIENCE_SECONDS = 15.0


def config_path(gateway: GatewayProcess) -> Path:
    """Return the path of the file that the gateway was started with."""
    return gateway.directory / "gateway.toml"


def rewrite(gateway: GatewayProcess, *changes: tuple[str, str], more: str = "") -> str:
    """Replace texts in the configuration file, add `more` at its end, and return the previous text."""
    path = config_path(gateway)
    before = text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    temporary = path.with_suffix(".new")
    temporary.write_text(text + more)
    temporary.replace(path)
    return before


def ask_for_reload(gateway: GatewayProcess) -> tuple[int, Any]:
    """`POST /reload`: status and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.management_port, timeout=30)
    try:
        connection.request("POST", "/reload", "{}", {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def wait_for(gateway: GatewayProcess, event: str, count: int = 1) -> dict[str, Any]:
    """Wait for the log's event of this name, and return the `count`-th of them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := gateway.events(event)) < count:
        assert time.monotonic() < deadline, f"no {event}\n{gateway.log_tail()}"
        time.sleep(0.01)
    return found[count - 1]


class KeptAlive:
    """One HTTP/1.1 connection, whose requests must all go by way of it."""

    def __init__(self, port: int, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.connection.connect()
        self._socket: socket.socket = self.connection.sock
        self.headers = {"s2-basin": BASIN, "content-type": "application/json", **headers}

    def ask(self, method: str, path: str, words: object = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON, or text that is none."""
        body = None if words is None else json.dumps(words)
        self.connection.request(method, path, body, {**self.headers, **headers})
        answer = self.connection.getresponse()
        data = answer.read()
        assert self.connection.sock is self._socket, "the connection was closed"
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data

    def append(self, stream: str, *bodies: str, **headers: str) -> int:
        """Append records; the status."""
        words = {"records": [{"body": body} for body in bodies]}
        return self.ask("POST", f"/v1/streams/{stream}/records", words, **headers)[0]

    def bodies(self, stream: str, **headers: str) -> list[str]:
        """Return all records."""
        status, answer = self.ask("GET", f"/v1/streams/{stream}/records?seq_num=0", **headers)
        assert status == 200, answer
        return [record["body"] for record in answer["records"]]

    def close(self) -> None:
        """End it."""
        self.connection.close()


_ALTERNATES = (
    '\n[[routes]]\nname = "nobody"\nbasin = "nobody-s-basin"\nread_only = true\n[[routes]]\nname = "rest"\n',
    '\n[[identities]]\nname = "reader"\ntokens = ["sesame"]\n[drain]\ngrace_seconds = 2\n',
    '\n[[listeners.s2]]\nname = "extra"\nbind = "127.0.0.1:0"\n',
)
_UNUSABLE = "\n[store\n", "\n[recorder]\ndirectory = 'elsewhere'\n", '\n[[routes]]\nname = "x"\nback = "nowhere"\n'


def client_connections(gateway: GatewayProcess, protocol: str) -> set[int]:
    """Return the numbers of the open connections with clients of the protocol."""
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.management_port, timeout=30)) as connection:
        connection.request("GET", "/connections")
        shown = json.loads(connection.getresponse().read())["connections"]
    return {one["connection"] for one in shown if one["side"] == "front" and one["protocol"] == protocol}


def churn(gateway: GatewayProcess, protocols: Sequence[str], times: int = 12) -> None:
    """Reload `times` times, every second time refused, and check that the protocols' connections are the same."""
    path = gateway.directory / "gateway.toml"
    first = path.read_text().replace("[listeners.s2]", "[[listeners.s2]]")
    before = {protocol: client_connections(gateway, protocol) for protocol in protocols}
    assert all(before.values()), before
    for turn in range(times):
        path.write_text(first + _ALTERNATES[turn % len(_ALTERNATES)])
        status, answer = ask_for_reload(gateway)
        assert status == 200, answer
        path.write_text(first + _UNUSABLE[turn % len(_UNUSABLE)])
        assert ask_for_reload(gateway)[0] == 409
    assert {protocol: before[protocol] & client_connections(gateway, protocol) for protocol in protocols} == before
