"""Clients of S3P and of Pravega against faults: nothing acknowledged is lost, and what was read is read once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import hiredis
import pytest
from support.faults import injected, with_faults
from support.pravega.clients import PravegaClient, bodies_by_s3p, need_pravega, numbered
from support.process import GatewayProcess, running_gateway
from support.s3p.client import encode

RULES = [
    {"name": "s3p", "action": "cut", "listeners": ["s3p"], "every": 9, "cut_after_bytes": 5},
    {"name": "busy", "stream": "s3p", "action": "error", "listeners": ["s3p"], "every": 7},
    {"name": "acks", "action": "cut", "operations": ["append"], "after": 2, "every": 2, "times": 2},
    {"name": "reads", "action": "cut", "operations": ["read"], "after": 1, "times": 1, "cut_after_bytes": 20},
    {"name": "late", "action": "delay", "listeners": ["segment"], "delay_ms": 1, "jitter_ms": 5, "seed": 1},
    {"name": "slow-control", "stream": None, "action": "delay", "listeners": ["controller"], "delay_ms": 5},
    {"name": "no-control", "stream": None, "action": "error", "listeners": ["controller"], "times": 1, "after": 3},
]


@pytest.fixture(scope="module")
def faulty() -> Iterator[GatewayProcess]:
    with running_gateway(with_faults(*RULES)) as process:
        yield process


class RespReader:
    """A client with a RESP library that connects anew, and asks again, as long as it takes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.failures = 0

    def ask(self, *arguments: object) -> Any:
        while self.failures < 1000:
            try:
                reply = self._ask(arguments)
            except (EOFError, ConnectionError):
                self.failures += 1
                continue
            if not isinstance(reply, hiredis.ReplyError):
                return reply
            assert str(reply).startswith("ERR_UNAVAILABLE"), reply
            self.failures += 1
        raise AssertionError("it never works")

    def _ask(self, arguments: tuple[object, ...]) -> Any:
        reader = hiredis.Reader()
        with closing(socket.create_connection(("127.0.0.1", self._port), timeout=10)) as connection:
            connection.sendall(encode(arguments))
            while (reply := reader.gets()) is False:
                data = connection.recv(65536)
                if not data:
                    raise EOFError
                reader.feed(data)
        return reply


def test_a_resp_reader(faulty: GatewayProcess) -> None:
    """Appends are at least once, as a client without conditions must have them; reads go on behind what they have."""
    client = RespReader(faulty.s3p_port)
    client.ask("CREATE", "s3p", [])
    for number in range(30):
        client.ask("APPEND", "s3p", [], [b"%d" % number])
    found: list[bytes] = []
    after = b"0-0"
    while page := client.ask("READ", "s3p", ["COUNT", 5, "MIN_ID", after]):
        found += page[1::2]
        ms, seq = page[-2].split(b"-")
        after = b"%b-%d" % (ms, int(seq) + 1)
    assert client.failures > 5
    assert sorted(set(map(int, found))) == list(range(30))
    assert [int(body) for body in found] == sorted(map(int, found))
    assert {"cut", "error"} <= {*injected(faulty, "s3p"), *injected(faulty, "busy")}


@pytest.mark.parametrize("stream", ["acks", "reads", "late"])
def test_pravega(faulty: GatewayProcess, stream: str) -> None:
    """Its writers ask what was stored before they go on, its readers go on where they were: exactly once."""
    need_pravega()
    with PravegaClient(faulty.controller_port) as client:
        client.call("manage", "create_scope", "penstock")
        client.call("manage", "create_stream", "penstock", stream, 1)
        events = numbered(60, 1)
        client.call("write", "penstock", stream, events, 10)
        client.call("group", f"group-{stream}", "penstock", stream)
        client.call("reader", "one", f"group-{stream}")
        found = client.call("read", ["one"], 60, 30.0)
    assert [text for _, text in found["one"]] == [text for text, _ in events]
    assert bodies_by_s3p(faulty, stream) == [text.encode() for text, _ in events]
    assert injected(faulty, stream)
    assert injected(faulty, "slow-control")
    assert injected(faulty, "no-control") == ["error"], "the client asks again by itself"
