"""All mock servers of a run: a listener for each kind of client, and one at which tests are named.

The last one serves HTTP: `PUT /test` with a test's name as its body, or an empty one, sets the test that asks from then
on, and `GET /report` returns the report so far as JSON.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog
import trio

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.http.exchange import Exchange, Handler
from penstock.net.http.serving import serve_http
from penstock.protocols.plugin import listener_kinds
from penstock.tools.mock_run.commands import CommandMock
from penstock.tools.mock_run.exchanges import has_equal_requests, over_http
from penstock.tools.mock_run.http import HttpMock
from penstock.tools.mock_run.state import MockRunState
from penstock_codecs.limits import KIB

__all__ = ["mocked", "open_mock_servers"]

log = structlog.get_logger()

_MOST_NAME_BYTES: Final = 16 * KIB
Serve = Callable[[trio.SocketStream], Awaitable[None]]


def mocked(kind: str) -> bool:
    """Return whether clients of a kind of listener can be answered from a recording."""
    played = over_http(kind) or has_equal_requests(kind)
    return played and all(map(mocked, listener_kinds()[kind].needs))


@asynccontextmanager
async def open_mock_servers(state: MockRunState) -> AsyncIterator[tuple[dict[str, Address], Address]]:
    """Serve until the block ends. Yields the address for each kind of client, and that of the listener for tests.
    Raises CannotStart."""
    async with trio.open_nursery() as nursery:
        addresses = {}
        for kind in listener_kinds():
            if not mocked(kind) and kind in state.forks:
                settings = state.forks[kind].settings
                addresses[kind] = Address(settings.host, settings.port)
                continue
            addresses[kind] = await nursery.start(_listen, _served(state, kind))
        control = await nursery.start(_listen, _over_http(_control(state)))
        yield addresses, control
        nursery.cancel_scope.cancel()


async def _listen(serve: Serve, *, task_status: trio.TaskStatus[Address]) -> None:
    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await serve(stream)
        except Exception:
            log.exception("connection_failed")
            await trio.aclose_forcefully(stream)

    try:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    except OSError as error:
        raise CannotStart(f"cannot listen on 127.0.0.1: {error.strerror or error}") from error
    task_status.started(Address(*listener.socket.getsockname()[:2]))
    await trio.serve_listeners(guarded, [listener])


def _served(state: MockRunState, kind: str) -> Serve:
    """Return the function that serves connections of a kind of client."""
    if not mocked(kind):
        return lambda stream: _turned_away(state, kind, stream)
    if over_http(kind):
        return _over_http(HttpMock(state, kind).handle)
    return lambda stream: CommandMock(state, kind, stream).run()


def _over_http(handler: Handler) -> Serve:
    return lambda stream: serve_http(stream, handler)


async def _turned_away(state: MockRunState, kind: str, stream: trio.SocketStream) -> None:
    """Close a connection whose messages cannot be told apart as requests."""
    state.report.miss(state.test, f"a connection of {listener_kinds()[kind].title}, which only --fork serves")
    await trio.aclose_forcefully(stream)


def _control(state: MockRunState) -> Handler:
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
