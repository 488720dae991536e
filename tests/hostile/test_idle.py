"""10,000 silent connections: they are closed to make room for active ones."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.attacks import FROM
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client

from penstock.model.limits import MIB

MANY = 10_000
ROOM = 200
"""Descriptors that this process needs for other things."""
LIMITED = """
[limits]
max_connections_per_client = 20_000
connections_per_second = 0

[listeners.s2.limits]
max_connections = {many}
"""
GROWTH = 300 * MIB


@pytest.fixture
def many() -> Iterator[int]:
    """As many connections as this machine lets a process have, up to 10,000."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1] if before[1] != resource.RLIM_INFINITY else 2 * MANY
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, before[1]))
    if hard < MANY + 2 * ROOM:
        print(f"this machine allows {hard} descriptors: {hard - 2 * ROOM} connections instead of {MANY}")
    yield min(MANY, hard - 2 * ROOM)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_idle_connections_lock_no_client_out(many: int) -> None:
    with running_gateway(CONFIG + LIMITED.format(many=many - ROOM)) as process, ExitStack() as stack:
        client = S2Client(("127.0.0.1", process.s2_port), BASIN)
        client.append("there", "before")
        before = process.resident_bytes()
        idle = [stack.enter_context(_connected(process)) for _ in range(many)]
        _once_they_are_a_second_old(lambda: client.append("there", "0"))
        for number in range(1, 20):
            client.append("there", str(number))
        assert client.bodies("there", seq_num=0) == ["before", *map(str, range(20))]
        assert process.resident_bytes() - before < GROWTH
        assert _ended(idle[0]), "the oldest made room"
        assert process.events("limit_reached")[0]["limit"] == "listener.max_connections"
        stack.close()
        client.append("there", "after")


def _once_they_are_a_second_old(append: Callable[[], object]) -> None:
    """Append once a connection may be closed to make room; before that, clients are told to retry.

    Connections may be closed when they are a second old; when the oldest is, the youngest is a second later.
    """
    for _ in range(100):
        try:
            append()
            time.sleep(1)
            return
        except AssertionError as refused:
            if "rate_limited" not in str(refused):
                raise
        time.sleep(0.1)
    raise AssertionError("no connection made room")


def _connected(process: GatewayProcess) -> socket.socket:
    one = socket.socket()
    one.settimeout(20)
    one.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)  # else ports of earlier runs are missing
    one.bind((FROM, 0))
    one.connect(("127.0.0.1", process.s2_port))
    return one


def _ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True
