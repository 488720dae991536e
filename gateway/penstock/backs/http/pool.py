"""The connections to one server, and who gets the next."""

from __future__ import annotations

from collections import deque
from typing import Final

import structlog
import trio

from penstock.backs.http.connection import HttpClientConnection
from penstock.backs.http.settings import HttpClientSettings, HttpVersion
from penstock.backs.upstream import Upstream, unreachable
from penstock.recorder.tapped import encrypted
from penstock.wire import Wire
from penstock_codecs.codec import Role
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.http import connection

__all__ = ["HttpPool"]

_log = structlog.get_logger()

_OFFERED: Final = {
    HttpVersion.AUTO: ("h2", "http/1.1"),
    HttpVersion.H1: ("http/1.1",),
    HttpVersion.H2: ("h2",),
}


class _Waiter:
    """Somebody who waits for a connection."""

    __slots__ = ("connection", "failure", "served")

    def __init__(self) -> None:
        self.served = trio.Event()
        self.connection: HttpClientConnection | None = None
        self.failure: Failure | None = None


class HttpPool:
    """Connections are made in `nursery`, not more than are waited for, and shared as far as HTTP's version allows.

    Who waits is served in turn. A connection that could not be made fails those whom it would have served.
    """

    def __init__(self, upstream: Upstream, settings: HttpClientSettings, nursery: trio.Nursery) -> None:
        self._upstream = upstream
        self._settings = settings
        self._nursery = nursery
        self._connections: list[HttpClientConnection] = []
        self._dialling = 0
        self._waiting: deque[_Waiter] = deque()
        encrypted = upstream.settings.tls is not None
        # Until a connection has shown what is spoken, a dial is taken to serve many: else all of the first who come
        # would dial.
        shared = settings.version is HttpVersion.H2 or (settings.version is HttpVersion.AUTO and encrypted)
        self._share = settings.streams_per_connection if shared else 1
        self._peer_streams = settings.streams_per_connection  # as the last connection had it, for the next

    async def acquire(self) -> HttpClientConnection:
        """A connection with room for a request: one of its `claims`, to be given back by `release`.

        Raises OperationFailed(HOT_SERVER) where none can be made, or none is free in `connect_seconds`.
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
        for _ in range(2):  # who waits for a connection that is being made is told how that ends
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
        """Give connections to those who wait, in turn, and make more where that is not enough."""
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
            self._tell(error.failure)
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

    def _tell(self, failure: Failure) -> None:
        """Those whom the connection would have served are told why there is none."""
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
        wire = Wire(stream, settings.read_size)
        codec = connection(agreed, Role.CLIENT, settings.limits, scheme)
        return HttpClientConnection(self._upstream, wire, codec, settings, self._serve, assumed)
