"""Read-only back for an S2 server, over server-sent events and checks of the tail.

If a read must not create its stream, the server is also asked whether the stream exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import trio

from penstock.core.back import AppendSession, Back, Following
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Capability,
    CheckTail,
    FromByteOffset,
    FromRecordId,
    Locate,
    Located,
    Operation,
    Read,
)
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.http.client.client import HttpClient
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.upstream import Upstream
from penstock_s2.back.calls import S2Requests
from penstock_s2.back.configs import Configs
from penstock_s2.back.reading import RemoteReadSession, open_read
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sources import SseSource
from penstock_s2.back.unary import UnaryRequests
from penstock_s2.codec.sse.dialects import DIALECTS

__all__ = ["S2SseBack", "open_s2_sse"]

R = TypeVar("R")

_CAPABILITIES: Final = frozenset(
    {
        Capability.HEADERS,
        Capability.EMPTY_BODIES,
        Capability.TIMESTAMPS,
        Capability.STORED_TIMESTAMPS,
        Capability.FOLLOW,
    }
)


_MISSING: Final = frozenset(
    {
        FailureCode.STREAM_NOT_FOUND,
        FailureCode.BASIN_NOT_FOUND,
        FailureCode.STREAM_DELETION_PENDING,
        FailureCode.BASIN_DELETION_PENDING,
    }
)


class S2SseBack(Back):
    """Read-only `Back` over server-sent events. Made by `open_s2_sse`."""

    def __init__(self, calls: S2Requests, settings: S2BackSettings) -> None:
        self._calls = calls
        self._unary = UnaryRequests(calls)
        self._configs = Configs(calls, settings.config_cache_seconds)
        self._settings = settings

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Headers, empty bodies and timestamps can be read, and reads can follow the tail."""
        return _CAPABILITIES

    def access_token(self) -> str | None:
        return self._calls.token()

    async def perform(self, operation: Operation[R]) -> R:
        """Perform CheckTail or Locate; raise NOT_IMPLEMENTED for all other operations."""
        result: R
        if isinstance(operation, Locate):
            result = await self._locate(operation)  # type: ignore[assignment]  # Locate's result
            return result
        if not isinstance(operation, CheckTail):
            raise self._cannot(type(operation).__name__)
        if not operation.create_if_missing:
            await self._check_exists(operation.stream)
        result = await self._unary.tail(operation.stream)  # type: ignore[assignment]  # CheckTail's result
        return result

    def append_session(
        self,
        stream: StreamRef,
        create_config: StreamConfig | None = None,  # noqa: ARG002 - the interface has them
        *,
        create_if_missing: bool = True,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Return a session that raises NOT_IMPLEMENTED on entering."""
        return _Refused(self._cannot(f"append to {stream}"))

    def read_session(self, read: Read) -> AbstractAsyncContextManager[RemoteReadSession]:
        """Begin a read. Entering raises NOT_IMPLEMENTED for starts at identifiers or byte offsets."""
        return self._reading(read)

    @asynccontextmanager
    async def _reading(self, read: Read) -> AsyncIterator[RemoteReadSession]:
        if isinstance(read.start, FromRecordId | FromByteOffset):
            raise self._cannot(f"begin at {type(read.start).__name__}")
        if not read.create_if_missing:
            await self._check_exists(read.stream)
        source = SseSource(DIALECTS[self._settings.sse_dialect])
        async with open_read(self._calls, self._settings, read, read.start, source) as session:
            yield session

    async def _locate(self, operation: Locate) -> Located:
        """Locate a record by reading it. It is given no identifier, because reads here cannot begin at one."""
        read = Read(operation.stream, operation.start, count=1, wait=0.0, create_if_missing=False)
        try:
            async with self._reading(read) as session:
                while isinstance(batch := await session.next(), Following):
                    pass
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            batch = None
        if batch is None:
            tail = await self._unary.tail(operation.stream)
            return Located(tail.seq_num, tail.timestamp, None, at_tail=True)
        return Located(batch.first_seq_num, batch.columns.timestamps[0], None, at_tail=False)

    async def _check_exists(self, stream: StreamRef) -> None:
        """Raise OperationFailed if the server itself says that the stream does not exist.

        An error from a proxy that allows nothing but reads is ignored: then the read creates the stream if its basin
        does so.
        """
        try:
            await self._configs.get(stream)
        except OperationFailed as error:
            if error.failure.code in _MISSING and "status" not in error.failure.details:  # the server's own error
                raise

    def _cannot(self, what: str) -> OperationFailed:
        return fail(FailureCode.NOT_IMPLEMENTED, f"{self._calls.where}: a source of server-sent events cannot {what}")


class _Refused(AbstractAsyncContextManager[AppendSession]):
    """Append session that raises on entering."""

    def __init__(self, error: OperationFailed) -> None:
        self._error = error

    async def __aenter__(self) -> AppendSession:
        await trio.lowlevel.checkpoint()
        raise self._error

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: never called."""


@asynccontextmanager
async def open_s2_sse(settings: S2BackSettings, upstream: Upstream) -> AsyncIterator[S2SseBack]:
    """Open the server as a read-only back until the block ends; no connection is made before one is needed."""
    async with HttpClient(upstream, HttpClientSettings(version=settings.http)) as http:
        yield S2SseBack(S2Requests(http, settings), settings)
