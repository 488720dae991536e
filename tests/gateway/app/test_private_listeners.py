"""A listener that serves any client must be reachable from this machine only, whatever name or socket it is given."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from penstock.app.bootstrap import open_listeners, open_store
from penstock.app.config import parse_config
from penstock.app.host import HostServices
from penstock.app.server import RunningGateway, serve
from penstock.core.address import Address
from penstock.core.errors import CannotReload, CannotStart
from penstock.net.accepting import Listener
from penstock.net.limits import Limiter
from penstock.net.listeners import ListenerServer
from penstock.observe.taps.connections import Connections
from penstock.routing.router import Router

GUARD = {
    "s2": 'auth_tokens = ["secret"]',
    "s3p": "anonymous = true",
    "segment": "delegation_tokens = true",
    "management": 'auth_tokens = ["secret"]',
}
CONFIG = """
[listeners.s2]
bind = "127.0.0.1:0"
{s2}
[listeners.s3p]
bind = "127.0.0.1:0"
{s3p}
[listeners.segment]
bind = "127.0.0.1:0"
{segment}
[listeners.controller]
bind = "127.0.0.1:0"
[management]
bind = "127.0.0.1:0"
{management}
[store]
directory = "{data}"
"""


def text(data: Path, guarded: bool) -> str:
    return CONFIG.format(**{kind: words if guarded else "" for kind, words in GUARD.items()}, data=data)


@pytest.fixture
def public() -> Iterator[socket.socket]:
    """It listens for all machines."""
    with socket.create_server(("0.0.0.0", 0)) as one:
        yield one


async def _nobody(_stream: trio.abc.Stream) -> None:
    raise AssertionError("there is no connection")


def listener(host: str, *, private: bool) -> Listener:
    return Listener("listeners.s2", "s2", Address(host, 0), 10, _nobody, lambda: None, private=private)


async def test_what_a_name_stands_for_counts() -> None:
    with pytest.raises(CannotStart, match=r"listeners\.s2: .* is 0\.0\.0\.0:[0-9]+, which other machines can reach"):
        await ListenerServer.listen(listener("0.0.0.0", private=True), [], Limiter(), Connections())
    for host, private in (("0.0.0.0", False), ("127.0.0.1", True)):
        place = await ListenerServer.listen(listener(host, private=private), [], Limiter(), Connections())
        place.close()


async def test_a_socket_that_is_given_counts_too(public: socket.socket) -> None:
    given = socket.socket(fileno=socket.dup(public.fileno()))
    with pytest.raises(CannotStart, match="other machines can reach"):
        await ListenerServer.listen(listener("127.0.0.1", private=True), [given], Limiter(), Connections())


@pytest.mark.parametrize("guarded", [True, False])
async def test_which_listeners_are_private(tmp_path: Path, guarded: bool) -> None:
    config = parse_config(text(tmp_path, guarded))
    async with open_store(config) as back:
        listeners = open_listeners(config, Router((), back))
    assert {one.name: one.private for one in listeners} == dict.fromkeys(
        (f"listeners.{kind}" for kind in ("s2", "s3p", "segment", "controller")), not guarded
    ) | {"management": not guarded}


async def test_a_reload_does_not_open_one(nursery: trio.Nursery, public: socket.socket, tmp_path: Path) -> None:
    given = {"listeners.s2": [socket.socket(fileno=socket.dup(public.fileno()))]}
    started = parse_config(text(tmp_path, guarded=True))
    running: RunningGateway = await nursery.start(serve, started, HostServices(sockets=given))
    with pytest.raises(CannotReload, match=r"listeners\.s2: .* other machines can reach"):
        await running.reload(parse_config(text(tmp_path, guarded=False)))
    nursery.cancel_scope.cancel()
