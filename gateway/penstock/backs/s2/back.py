"""A server that speaks S2, as a back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from penstock.backs.http.client import HttpClient
from penstock.backs.http.settings import HttpClientSettings
from penstock.backs.s2.appending import Appending, S2AppendSession
from penstock.backs.s2.calls import Calls
from penstock.backs.s2.configs import Configs
from penstock.backs.s2.control import Control
from penstock.backs.s2.cuts import Cuts
from penstock.backs.s2.identifying import Identifier
from penstock.backs.s2.locating import Locating
from penstock.backs.s2.passage import Passage
from penstock.backs.s2.places import Places
from penstock.backs.s2.reading import RemoteReadSession, reading
from penstock.backs.s2.settings import S2BackSettings
from penstock.backs.s2.shared import Shared
from penstock.backs.s2.sources import S2SSource
from penstock.backs.s2.trimming import Trimming
from penstock.backs.s2.unary import ServerStart, Unary, tail_of
from penstock.backs.upstream import Upstream
from penstock.clock import Clock, wall_clock
from penstock.store.admission import Admission
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamPosition, StreamRef
from penstock_codecs.operations import (
    Append,
    Capability,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    FromByteOffset,
    FromRecordId,
    FromSeqNum,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Locate,
    Located,
    Operation,
    Read,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock_codecs.streams import StreamConfig

__all__ = ["S2Back", "open_s2"]

R = TypeVar("R")

_CAPABILITIES: Final = frozenset(Capability) - {Capability.BYTES, Capability.TABLES}


class S2Back:
    """See `Back`. Made by `open_s2`.

    Sequence numbers and timestamps are the server's. Appends to a stream are applied in the order in which they were
    handed over, as long as they are made in the name of one token.
    """

    def __init__(self, shared: Shared, clock: Clock) -> None:
        self._shared = shared
        self._appending = Appending(shared, clock)
        control = Control(shared.calls, shared.configs)
        self._control = control
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: self._appending.append,
            CheckTail: self._check_tail,
            Trim: Trimming(shared, self._appending).trim,
            Locate: self._locate,
            CreateBasin: control.create_basin,
            EnsureBasin: control.ensure_basin,
            GetBasinConfig: control.get_basin_config,
            ReconfigureBasin: control.reconfigure_basin,
            DeleteBasin: control.delete_basin,
            ListBasins: control.list_basins,
            CreateStream: control.create_stream,
            EnsureStream: control.ensure_stream,
            GetStreamConfig: control.get_stream_config,
            ReconfigureStream: control.reconfigure_stream,
            DeleteStream: self._delete_stream,
            ListStreams: control.list_streams,
        }

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All but bytes and tables."""
        return _CAPABILITIES

    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation; see `Back.perform`."""
        handler = self._handlers.get(type(operation))
        if handler is None:
            where = self._shared.calls.where
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: S2 servers cannot {type(operation).__name__}")
        result: R = await handler(operation)
        return result

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[S2AppendSession]:
        """See `Back.append_session`."""
        return self._appending.session(stream, create_config, create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[RemoteReadSession]:
        """See `Back.read_session`. Batches know the identifiers of their records where the read begins at one."""
        return self._reading(read)

    def token_shown(self) -> str | None:
        """See `penstock.backs.credentials.ShowsTokens`."""
        return self._shared.calls.token()

    def s2s_passage(self, stream: StreamRef) -> Passage:
        """See `penstock.backs.passing.PassesS2S`."""
        return Passage(self._shared.calls, stream)

    @asynccontextmanager
    async def _reading(self, read: Read) -> AsyncIterator[RemoteReadSession]:
        shared = self._shared
        if not read.create_if_missing:
            await shared.configs.get(read.stream)
        identifier = None
        start: ServerStart
        match read.start:
            case FromByteOffset():
                raise fail(FailureCode.NOT_IMPLEMENTED, f"{shared.calls.where}: S2 servers know no byte offsets")
            case FromRecordId(record_id):
                seq_num, future = await shared.locating.start(read.stream, record_id)
                start = FromSeqNum(seq_num)
                least = record_id if future else None
                identifier = Identifier(read.stream, shared.locating, shared.places, least)
            case _:
                start = read.start
        source = S2SSource(shared.settings.compression)
        try:
            async with reading(shared.calls, shared.settings, read, start, source, identifier) as session:
                yield session
        except OperationFailed as error:
            tail = tail_of(error)
            if isinstance(start, FromSeqNum) and tail is not None and tail.seq_num < start.seq_num:
                shared.places.forget(read.stream)  # it is another stream now than it was when that was learned
            raise

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        if not operation.create_if_missing:
            await self._shared.configs.get(operation.stream)
        return await self._shared.unary.tail(operation.stream)

    async def _locate(self, operation: Locate) -> Located:
        await self._shared.configs.get(operation.stream)  # asking for a position might create the stream
        return await self._shared.locating.locate(operation.stream, operation.start)

    async def _delete_stream(self, operation: DeleteStream) -> None:
        await self._control.delete_stream(operation)
        await self._shared.cuts.forget(operation.stream)
        self._shared.places.forget(operation.stream)


@asynccontextmanager
async def open_s2(
    settings: S2BackSettings, upstream: Upstream, clock: Clock = wall_clock, cuts: Cuts | None = None
) -> AsyncIterator[S2Back]:
    """The server as a back, until the block ends; no connection is made before one is needed.

    `clock` gives the time of day in ms. `cuts`: what is kept of trims; None: nothing is. Sessions must have ended when
    the block does.
    """
    cuts = cuts or Cuts()
    async with HttpClient(upstream, HttpClientSettings(version=settings.http)) as http, trio.open_nursery() as nursery:
        calls = Calls(http, settings)
        unary = Unary(calls)
        places = Places(settings.cached_streams)
        shared = Shared(
            calls=calls,
            unary=unary,
            configs=Configs(calls, settings.config_cache_seconds),
            places=places,
            cuts=cuts,
            locating=Locating(unary, places, cuts),
            settings=settings,
            admission=Admission(settings.append_inflight_bytes),
            nursery=nursery,
        )
        yield S2Back(shared, clock)
        nursery.cancel_scope.cancel()
