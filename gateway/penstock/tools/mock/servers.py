"""All mock servers of a run: a listener for each kind of client, and one at which tests are named.

The last one serves HTTP: `PUT /test` with a test's name as its body, or an empty one, sets the test that asks from then
on, and `GET /report` returns the report so far as JSON.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog
import trio

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.model.limits import KIB
from penstock.net.http.exchange import Exchange, Handler
from penstock.net.http.serving import serve_http
from penstock.net.tls import tls_stream
from penstock.protocols.plugin import listener_kinds
from penstock.tools.mock.commands import CommandMock
from penstock.tools.mock.exchanges import has_equal_requests, over_http
from penstock.tools.mock.http import HttpMock
from penstock.tools.mock.state import MockState

__all__ = ["LOOPBACK", "mocked", "open_mock_servers"]

log = structlog.get_logger()

_MOST_NAME_BYTES: Final = 16 * KIB
LOOPBACK: Final = Address("127.0.0.1", 0)
"""A free port of this machine."""
Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def mocked(kind: str) -> bool:
    """Return whether clients of a kind of listener can be answered from a recording."""
    played = over_http(kind) or has_equal_requests(kind)
    return played and all(map(mocked, listener_kinds()[kind].needs))


@asynccontextmanager
async def open_mock_servers(
    state: MockState, listeners: Mapping[str, Address], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[dict[str, Address], Address]]:
    """Serve until the block ends. Yields the address for each kind of client, and that of the listener for tests.

    `listeners`: the address to listen at for each kind of client. `tls`: serve clients over TLS. Raises CannotStart.
    """
    async with trio.open_nursery() as nursery:
        addresses = {}
        for kind, address in listeners.items():
            if not mocked(kind) and kind in state.forks:
                if address != LOOPBACK:
                    raise CannotStart(f"cannot serve {kind} on {address}: --fork serves it on a port of its own")
                settings = state.forks[kind].settings
                addresses[kind] = Address(settings.host, settings.port)
                continue
            addresses[kind] = await nursery.start(_listen, address, _served(state, kind), tls)
        control = await nursery.start(_listen, LOOPBACK, _over_http(_control(state)), None)
        yield addresses, control
        nursery.cancel_scope.cancel()


async def _listen(
    address: Address, serve: Serve, tls: ssl.SSLContext | None, *, task_status: trio.TaskStatus[Address]
) -> None:
    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await serve(stream if tls is None else tls_stream(stream, tls))
        except Exception:
            log.exception("connection_failed")
            await trio.aclose_forcefully(stream)

    try:
        sockets = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        raise CannotStart(f"cannot listen on {address}: {error.strerror or error}") from error
    task_status.started(Address(*sockets[0].socket.getsockname()[:2]))
    await trio.serve_listeners(guarded, sockets)


def _served(state: MockState, kind: str) -> Serve:
    """Return the function that serves connections of a kind of client."""
    if not mocked(kind):
        return lambda stream: _turned_away(state, kind, stream)
    if over_http(kind):
        return _over_http(HttpMock(state, kind).handle)
    return lambda stream: CommandMock(state, kind, stream).run()


def _over_http(handler: Handler) -> Serve:
    return lambda stream: serve_http(stream, handler)


async def _turned_away(state: MockState, kind: str, stream: trio.abc.Stream) -> None:
    """Close a connection whose messages cannot be told apart as requests."""
    state.report.miss(state.test, f"a connection of {listener_kinds()[kind].title}, which only --fork serves")
    await trio.aclose_forcefully(stream)


def _control(state: MockState) -> Handler:
    async def handle(exchange: Exchange) -> None:
        request = exchange.request
        match request.method, request.path:
            case "PUT", "/test":
                name = b""
                while piece := await exchange.receive():
                    name += piece
                    if len(name) > _MOST_NAME_BYTES:
                        await exchange.respond(413, [], b"the name of a test is too long\n")
                        return
                state.begin_test(name.decode(errors="replace"))
                await exchange.respond(204, [])
            case "GET", "/report":
                body = json.dumps(state.report_now().as_json()).encode()
                await exchange.respond(200, [("content-type", "application/json")], body)
            case _:
                await exchange.respond(404, [], b"PUT /test, or GET /report\n")

    return handle
