"""Pool of connections to one segment store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final, NamedTuple

import trio

from penstock.model.failures import Failure, OperationFailed
from penstock.net.upstream import Upstream, unreachable
from penstock_pravega.codec import Dialect
from penstock_pravega.segment.back.connection import StoreConnection, open_connection
from penstock_pravega.segment.back.settings import SegmentBackSettings

__all__ = ["ConnectionPool", "ConnectionUse"]


class ConnectionUse(Enum):
    """Use of a connection. Each use has its own connections, so that none waits behind the bytes of another."""

    CALLS = "calls"
    PARKED = "parked reads"
    APPENDS = "appends"


class _Share(NamedTuple):
    """Bounds on the connections for one use.

    Another connection is opened once each has `easy` users, up to `most` connections; those then share all further
    users.
    """

    easy: int
    most: int


_SHARES: Final = {
    ConnectionUse.CALLS: _Share(1, 4),
    ConnectionUse.PARKED: _Share(200, 32),
    ConnectionUse.APPENDS: _Share(4, 8),
}
_KINDS: Final = len(_SHARES)


class _Opening:
    """Connection that is being opened, which all who need one wait for."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.failure: Failure | None = None


class ConnectionPool:
    """Pool of connections to one store, which run in `nursery`."""

    def __init__(self, upstream: Upstream, settings: SegmentBackSettings, nursery: trio.Nursery) -> None:
        self.upstream = upstream
        self._settings = settings
        self._nursery = nursery
        self._exclusive = settings.dialect is Dialect.DRAFT
        self._connections: dict[ConnectionUse, list[StoreConnection]] = {kind: [] for kind in ConnectionUse}
        self._opening: dict[ConnectionUse, _Opening] = {}
        self._freed = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def use(self, kind: ConnectionUse) -> AsyncIterator[StoreConnection]:
        """Use a connection while the block runs. Raises OperationFailed(HOT_SERVER) if none is available."""
        connection = await self.take(kind)
        try:
            yield connection
        finally:
            self.leave(connection)

    async def take(self, kind: ConnectionUse) -> StoreConnection:
        """Take a connection, until `leave`. Raises OperationFailed(HOT_SERVER) if none is available."""
        kind = ConnectionUse.CALLS if self._exclusive else kind
        seconds = self.upstream.settings.connect_seconds
        deadline = trio.current_time() + seconds
        while True:
            connection = self._best(kind)
            if connection is not None:
                connection.users += 1
                return connection
            if self._may_open(kind):
                await self._open(kind)
                continue
            with trio.move_on_at(deadline) as waiting:
                await self._freed.park()
            if waiting.cancelled_caught:
                raise unreachable(self.upstream.settings, f"all connections were in use for {seconds:g} s")

    def leave(self, connection: StoreConnection) -> None:
        """Return a connection that was taken."""
        connection.users -= 1
        if connection.worn and not connection.users:
            connection.give_up("it set up many writers")
        self._freed.unpark_all()

    def _most(self, kind: ConnectionUse) -> int:
        most = self.upstream.settings.max_connections
        return most if self._exclusive else min(_SHARES[kind].most, max(1, most // _KINDS))

    def _may_open(self, kind: ConnectionUse) -> bool:
        return self._usable(kind) < self._most(kind)

    def _usable(self, kind: ConnectionUse) -> int:
        return sum(not connection.worn for connection in self._connections[kind])

    def _best(self, kind: ConnectionUse) -> StoreConnection | None:
        """Return the connection with the fewest users; None if another must be opened, or waited for."""
        usable = [
            connection for connection in self._connections[kind] if connection.failure is None and not connection.worn
        ]
        if not usable:
            return None
        best = min(usable, key=lambda connection: connection.users)
        if self._exclusive:
            return None if best.users else best
        return best if best.users < _SHARES[kind].easy or not self._may_open(kind) else None

    async def _open(self, kind: ConnectionUse) -> None:
        """Open a connection, or wait for the one that is being opened. `take` counts its users."""
        opening = self._opening.get(kind)
        if opening is None:
            opening = self._opening[kind] = _Opening()
            self._nursery.start_soon(self._run_line, kind, opening)
        await opening.over.wait()
        if opening.failure is not None:
            raise OperationFailed(opening.failure)

    async def _run_line(self, kind: ConnectionUse, opening: _Opening) -> None:
        try:
            connection = await open_connection(self.upstream, self._settings)
        except OperationFailed as error:
            opening.failure = error.failure
            return
        finally:
            del self._opening[kind]
            opening.over.set()
        self._connections[kind].append(connection)
        try:
            await connection.run()
        finally:
            self._connections[kind].remove(connection)
            self._freed.unpark_all()
