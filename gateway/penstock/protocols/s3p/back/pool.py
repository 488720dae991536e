"""Pool of connections to one S3P server; idle ones are kept for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from penstock.net.upstream import Upstream, unreachable
from penstock.protocols.s3p.back.connection import S3PConnection
from penstock.protocols.s3p.back.settings import S3PBackSettings

__all__ = ["S3PPool"]


class S3PPool:
    """Pool of at most `max_connections` connections."""

    def __init__(self, upstream: Upstream, settings: S3PBackSettings) -> None:
        self.upstream = upstream
        self._settings = settings
        self._idle: deque[S3PConnection] = deque()  # the most recently used at the end
        self._limiter = trio.Semaphore(upstream.settings.max_connections)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[S3PConnection]:
        """Use a connection exclusively while the block runs. Raises HOT_SERVER if none is available."""
        await self._enter()
        try:
            connection = await self._connection()
            try:
                yield connection
            finally:
                await self._put_back(connection)
        finally:
            self._limiter.release()

    async def _enter(self) -> None:
        seconds = self.upstream.settings.connect_seconds
        with trio.move_on_after(seconds):
            await self._limiter.acquire()
            return
        raise unreachable(self.upstream.settings, f"no connection was free in {seconds:g} s")

    async def _put_back(self, connection: S3PConnection) -> None:
        if connection.broken:
            await connection.close()
            return
        connection.idle_since = trio.current_time()
        self._idle.append(connection)
        oldest = trio.current_time() - self.upstream.settings.idle_seconds
        while self._idle[0].idle_since < oldest:
            await self._idle.popleft().close()

    async def _connection(self) -> S3PConnection:
        oldest = trio.current_time() - self.upstream.settings.idle_seconds
        while self._idle:
            connection = self._idle.pop()
            good = False
            try:
                good = connection.idle_since >= oldest and await connection.is_open()
            finally:
                if not good:
                    await connection.close()
            if good:
                return connection
        stream = await self.upstream.connect()
        return S3PConnection(stream, self.upstream, self._settings.limits, self._settings.max_reply_bytes)

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().close()
