"""Back for a server that speaks S2.

S2S sessions can pass through to this server unchanged (`penstock.core.passthrough`).

A trim on an S2 server is an appended command record (S2 fact sheet, 5.3), which takes a sequence number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import trio

from penstock.backends.trim_points import TrimPoints
from penstock.core.back import Back
from penstock.core.clock import Clock, wall_clock
from penstock.core.passthrough import HeaderList, Passthrough
from penstock.model.commands import TRIM
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
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
    FromTimestamp,
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
from penstock.model.records import Header, StreamPosition, StreamRef, metered_size
from penstock.model.streams import StreamConfig
from penstock.net.http.client.client import HttpClient
from penstock.net.http.client.connection import HttpStream
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.upstream import Upstream
from penstock.store.admission import ByteBudget
from penstock.wire.http import ResponseHead
from penstock_s2.back.appending import S2Appends, S2AppendSession
from penstock_s2.back.batch_counts import AckCounter, ReadBatchCounter
from penstock_s2.back.calls import JSON, S2S, S2Requests
from penstock_s2.back.configs import Configs
from penstock_s2.back.control import ControlPlane
from penstock_s2.back.identifying import Identifier
from penstock_s2.back.locating import Locating
from penstock_s2.back.places import PlaceCache
from penstock_s2.back.reading import RemoteReadSession, open_read
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.shared import Shared
from penstock_s2.back.sources import S2SSource
from penstock_s2.back.unary import ServerStart, UnaryRequests, records_path, tail_in_failure
from penstock_s2.codec.s2s import PLUGIN

__all__ = ["S2Back", "S2SPassthrough", "Trimming", "open_s2"]

_LOOKS: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait before each check whether the records are gone; s2-lite needed up to 0.3 s."""
R = TypeVar("R")
_CAPABILITIES: Final = frozenset(Capability) - {Capability.BYTES, Capability.TABLES, Capability.LARGE_BATCHES}


class _Session:
    """A `RawSession`: the HTTP stream itself, but for the check of the head and the count of batches."""

    def __init__(self, calls: S2Requests, stream: HttpStream, counter: AckCounter | ReadBatchCounter) -> None:
        self._calls = calls
        self._stream = stream
        self.send, self.finish, self.receive_pieces = stream.send, stream.finish, stream.receive_pieces
        self.count_batches = counter.count

    async def receive_head(self) -> ResponseHead:
        """Receive the head. Raises OperationFailed for an answer that is neither a session nor an error in JSON."""
        head = await self._stream.receive_head()
        if head.status == 200:
            self._calls.check_media(head, S2S)
        elif head.status < 400 or not any(name == "content-type" and JSON in value for name, value in head.headers):
            raise OperationFailed(await self._calls.refusal(self._stream, head))
        return head


@dataclass(frozen=True, slots=True)
class S2SPassthrough(Passthrough):
    """The S2S sessions of one stream, undecoded."""

    calls: S2Requests
    stream: StreamRef

    @asynccontextmanager
    async def open(self, method: str, query: str, headers: HeaderList) -> AsyncIterator[_Session]:
        path = records_path(self.stream)
        async with self.calls.open(method, path, self.stream.basin, headers, query) as stream:
            yield _Session(self.calls, stream, AckCounter() if method == "POST" else ReadBatchCounter())


class Trimming:
    """Trims streams of one server."""

    def __init__(self, shared: Shared, appending: S2Appends) -> None:
        self._shared = shared
        self._appending = appending

    async def trim(self, operation: Trim) -> StreamPosition:
        """Perform a trim; see `Trim`. The server removes the records asynchronously, so wait for it for at most 1.6 s.

        If there is nothing to remove nothing is appended. A trim up to the tail keeps the command record.
        """
        stream = operation.stream
        config = await self._shared.configs.get(stream)  # requesting a position might create it
        seq_num = await self._seq_num(stream, operation.start)
        tail = await self._shared.unary.tail(stream)
        seq_num = min(seq_num, tail.seq_num)
        first = await self._shared.unary.spot(stream, FromSeqNum(0))
        if seq_num <= first.position.seq_num:
            return first.position
        headers = {0: (Header(b"", TRIM),)}
        bodies = [seq_num.to_bytes(8, "big")]
        command = Append(stream, bodies, metered_size(bodies, headers), headers=headers)
        await self._appending.append(self._appending.stamped(command, config))
        for seconds in _LOOKS:
            await trio.sleep(seconds)
            first = await self._shared.unary.spot(stream, FromSeqNum(0))
            if first.position.seq_num >= seq_num:
                return first.position
        return (await self._shared.unary.spot(stream, FromSeqNum(seq_num))).position

    async def _seq_num(self, stream: StreamRef, start: FromSeqNum | FromRecordId | FromTimestamp) -> int:
        if isinstance(start, FromSeqNum):
            return start.seq_num
        if isinstance(start, FromTimestamp):
            return (await self._shared.unary.spot(stream, start)).position.seq_num
        return (await self._shared.locating.spot(stream, start.record_id)).position.seq_num


class S2Back(Back):
    """`Back` of a server that speaks S2. Made by `open_s2`.

    The server assigns sequence numbers and timestamps. Appends to a stream with one token are applied in the order in
    which they were handed over.
    """

    def __init__(self, shared: Shared, appending: S2Appends) -> None:
        self._shared = shared
        self._appending = appending
        control = ControlPlane(shared.calls, shared.configs)
        self._control = control
        self._handlers: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: appending.append,
            CheckTail: self._check_tail,
            Trim: Trimming(shared, appending).trim,
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
        handler = self._handlers.get(type(operation))
        if handler is None:
            where = self._shared.calls.where
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: S2 servers cannot {type(operation).__name__}")
        result: R = await handler(operation)
        return result

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[S2AppendSession]:
        return self._appending.session(stream, create_config, create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[RemoteReadSession]:
        """Begin a read; its batches carry the identifiers of their records if it begins at one."""
        return self._reading(read)

    def access_token(self) -> str | None:
        return self._shared.calls.token()

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        return S2SPassthrough(self._shared.calls, stream) if protocol == PLUGIN.name else None

    @asynccontextmanager
    async def _reading(self, read: Read) -> AsyncIterator[RemoteReadSession]:
        shared = self._shared
        if not read.create_if_missing:
            await shared.configs.get(read.stream)
        identifier = None
        start: ServerStart
        match read.start:
            case FromByteOffset():
                raise fail(FailureCode.NOT_IMPLEMENTED, f"{shared.calls.where}: S2 servers have no byte offsets")
            case FromRecordId(record_id):
                seq_num, future = await shared.locating.start(read.stream, record_id)
                start = FromSeqNum(seq_num)
                least = record_id if future else None
                identifier = Identifier(read.stream, shared.locating, shared.places, least)
            case _:
                start = read.start
        source = S2SSource(shared.settings.compression)
        try:
            async with open_read(shared.calls, shared.settings, read, start, source, identifier) as session:
                yield session
        except OperationFailed as error:
            tail = tail_in_failure(error)
            if isinstance(start, FromSeqNum) and tail is not None and tail.seq_num < start.seq_num:
                shared.places.forget(read.stream)  # the stream was recreated since that was learned
            raise

    async def _check_tail(self, operation: CheckTail) -> StreamPosition:
        if not operation.create_if_missing:
            await self._shared.configs.get(operation.stream)
        return await self._shared.unary.tail(operation.stream)

    async def _locate(self, operation: Locate) -> Located:
        await self._shared.configs.get(operation.stream)  # requesting a position might create the stream
        return await self._shared.locating.locate(operation.stream, operation.start)

    async def _delete_stream(self, operation: DeleteStream) -> None:
        await self._control.delete_stream(operation)
        await self._shared.cuts.forget(operation.stream)
        self._shared.places.forget(operation.stream)


@asynccontextmanager
async def open_s2(
    settings: S2BackSettings, upstream: Upstream, clock: Clock = wall_clock, cuts: TrimPoints | None = None
) -> AsyncIterator[S2Back]:
    """Open the server as a back until the block ends; no connection is made before one is needed.

    `clock` gives the time of day in ms. `cuts` stores trims; None stores nothing. Sessions must have ended when the
    block does.
    """
    cuts = cuts or TrimPoints()
    async with HttpClient(upstream, HttpClientSettings(version=settings.http)) as http, trio.open_nursery() as nursery:
        calls = S2Requests(http, settings)
        unary = UnaryRequests(calls)
        places = PlaceCache(settings.cached_streams)
        shared = Shared(
            calls=calls,
            unary=unary,
            configs=Configs(calls, settings.config_cache_seconds),
            places=places,
            cuts=cuts,
            locating=Locating(unary, places, cuts),
            settings=settings,
            admission=ByteBudget(settings.append_inflight_bytes),
            nursery=nursery,
        )
        appending = S2Appends(shared, clock)
        yield S2Back(shared, appending)
        await appending.finish()
        nursery.cancel_scope.cancel()
