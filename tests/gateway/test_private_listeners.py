"""A listener that serves whoever reaches it is reached by this machine alone, whatever name or socket it is given."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from penstock.accepting import Listener
from penstock.config import Address, parse_config
from penstock.errors import CannotReload, CannotStart
from penstock.limits import Limiter
from penstock.places import Place
from penstock.recorder.connections import Connections
from penstock.routing.router import Router
from penstock.server import Running, serve
from penstock.surroundings import Surroundings
from penstock.wiring import open_listeners, open_store

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
    """It listens for everybody."""
    with socket.create_server(("0.0.0.0", 0)) as one:
        yield one


async def _nobody(_stream: trio.abc.Stream) -> None:
    raise AssertionError("there is no connection")


def listener(host: str, *, private: bool) -> Listener:
    return Listener("listeners.s2", "s2", Address(host, 0), 10, _nobody, lambda: None, private=private)


async def test_what_a_name_stands_for_counts() -> None:
    with pytest.raises(CannotStart, match=r"listeners\.s2: .* which is 0\.0\.0\.0:[0-9]+: other machines reach"):
        await Place.listen(listener("0.0.0.0", private=True), [], Limiter(), Connections())
    for host, private in (("0.0.0.0", False), ("127.0.0.1", True)):
        place = await Place.listen(listener(host, private=private), [], Limiter(), Connections())
        place.close()


async def test_a_socket_that_is_given_counts_too(public: socket.socket) -> None:
    given = socket.socket(fileno=socket.dup(public.fileno()))
    with pytest.raises(CannotStart, match="other machines reach"):
        await Place.listen(listener("127.0.0.1", private=True), [given], Limiter(), Connections())


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
    running: Running = await nursery.start(serve, started, Surroundings(sockets=given))
    with pytest.raises(CannotReload, match=r"listeners\.s2: .* other machines reach"):
        await running.reload(parse_config(text(tmp_path, guarded=False)))
    nursery.cancel_scope.cancel()
