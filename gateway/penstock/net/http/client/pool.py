"""The pool of connections to one server, and the queue of requests that wait for one."""

from __future__ import annotations

from collections import deque
from typing import Final

import structlog
import trio

from penstock.model.failures import Failure, OperationFailed
from penstock.net.http.client.connection import HttpClientConnection
from penstock.net.http.client.settings import HttpClientSettings, HttpVersion
from penstock.net.transport import Transport
from penstock.net.upstream import Upstream, unreachable
from penstock.observe.taps.tapped import encrypted
from penstock.wire.codec import Role
from penstock.wire.http import connection

__all__ = ["HttpPool"]

_log = structlog.get_logger()

_OFFERED: Final = {
    HttpVersion.AUTO: ("h2", "http/1.1"),
    HttpVersion.H1: ("http/1.1",),
    HttpVersion.H2: ("h2",),
}


class _Waiter:
    """A request that waits for a connection."""

    __slots__ = ("connection", "failure", "served")

    def __init__(self) -> None:
        self.served = trio.Event()
        self.connection: HttpClientConnection | None = None
        self.failure: Failure | None = None


class HttpPool:
    """A pool of connections to one server.

    Connections are made in `nursery`, no more than are waited for, and shared as far as the HTTP version allows.
    Requests are served in order. If a connection cannot be made, the requests that it would have served fail.
    """

    def __init__(self, upstream: Upstream, settings: HttpClientSettings, nursery: trio.Nursery) -> None:
        self._upstream = upstream
        self._settings = settings
        self._nursery = nursery
        self._connections: list[HttpClientConnection] = []
        self._dialling = 0
        self._waiting: deque[_Waiter] = deque()
        encrypted = upstream.settings.tls is not None
        # Until a connection has shown its version, a dial is assumed to serve many requests: else each of the first
        # requests would dial.
        shared = settings.version is HttpVersion.H2 or (settings.version is HttpVersion.AUTO and encrypted)
        self._share = settings.streams_per_connection if shared else 1
        self._peer_streams = settings.streams_per_connection  # of the last connection, assumed for the next

    async def acquire(self) -> HttpClientConnection:
        """Return a connection with room for a request, counted in its `claims`, to be given back by `release`.

        Raises OperationFailed(HOT_SERVER) if none can be made, or none is free in `connect_seconds`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._serve()
        try:
            await self._wait(waiter)
        except BaseException:
            self._withdraw(waiter)
            raise
        if waiter.failure is not None:
            raise OperationFailed(waiter.failure)
        if waiter.connection is None:
            self._withdraw(waiter)
            settings = self._upstream.settings
            raise unreachable(settings, f"all {settings.max_connections} connections are in use")
        return waiter.connection

    async def _wait(self, waiter: _Waiter) -> None:
        for _ in range(2):  # once more while a connection is being made: its end serves or fails the waiter
            with trio.move_on_after(self._upstream.settings.connect_seconds):
                await waiter.served.wait()
            if waiter.served.is_set() or not self._dialling:
                return

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter.connection is not None:
            self.release(waiter.connection)
        elif waiter in self._waiting:
            self._waiting.remove(waiter)

    def release(self, connection: HttpClientConnection) -> None:
        """Give a claim back: its request has begun, or will not."""
        connection.claims -= 1
        connection.rest()
        self._serve()

    def _serve(self) -> None:
        """Serve waiting requests, in order, and make more connections if those do not suffice."""
        for ready in self._connections:
            while self._waiting and ready.room > 0:
                waiter = self._waiting.popleft()
                ready.claims += 1
                waiter.connection = ready
                waiter.served.set()
        most = self._upstream.settings.max_connections
        while self._dialling * self._share < len(self._waiting) and len(self._connections) + self._dialling < most:
            self._dialling += 1
            self._nursery.start_soon(self._dial)

    async def _dial(self) -> None:
        try:
            connection = await self._connect()
        except OperationFailed as error:
            self._log_failure(error.failure)
            return
        finally:
            self._dialling -= 1
        self._connections.append(connection)
        try:
            self._serve()
            await connection.run()
        except Exception:
            _log.exception("http_client_failed", back=self._upstream.settings.name)
        finally:
            self._peer_streams = connection.peer_streams
            self._connections.remove(connection)
            self._serve()

    def _log_failure(self, failure: Failure) -> None:
        """Fail the requests that a connection would have served that could not be made."""
        for waiter in [self._waiting.popleft() for _ in range(min(self._share, len(self._waiting)))]:
            waiter.failure = failure
            waiter.served.set()

    async def _connect(self) -> HttpClientConnection:
        settings = self._settings
        offered = _OFFERED[settings.version]
        stream = await self._upstream.connect(offered)
        agreed = "h2" if settings.version is HttpVersion.H2 else "http/1.1"
        scheme = "http"
        if (tls := encrypted(stream)) is not None:
            scheme = "https"
            agreed = tls.selected_alpn_protocol() or offered[-1]
        if agreed == "h2":
            assumed = min((each.peer_streams for each in self._connections), default=self._peer_streams)
        else:
            assumed = 1
        self._share = min(settings.streams_per_connection, assumed)
        transport = Transport(stream, settings.read_size, settings.write_seconds)
        codec = connection(agreed, Role.CLIENT, settings.limits, scheme)
        return HttpClientConnection(self._upstream, transport, codec, settings, self._serve, assumed)
