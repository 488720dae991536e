"""Two ends of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.http.client import memory_pair, socket_pair

PAIRS = {"socket": socket_pair, "memory": memory_pair}


@pytest.fixture(params=PAIRS)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    """A client's end and a server's, of a socket or in memory."""
    client, server = PAIRS[request.param]()
    yield client, server
    await trio.aclose_forcefully(client)
    await trio.aclose_forcefully(server)


@pytest.fixture
async def sockets() -> AsyncIterator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    """A client's end and a server's."""
    client, server = socket_pair()
    yield client, server
    await trio.aclose_forcefully(client)
    await trio.aclose_forcefully(server)


@pytest.fixture
async def tcp() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """The same over TCP."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.open_tcp_stream(*listener.socket.getsockname())
        server = await listener.accept()
    yield client, server
    await trio.aclose_forcefully(client)
    await trio.aclose_forcefully(server)
