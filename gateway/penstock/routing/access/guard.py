"""Enforcement of access tokens on a back, for the clients of one listener.

Operations that a client's token does not allow are refused before they reach the back, listings are limited to the
names in the token's scope, and names get a prefix if the token says so. `OPS` maps operations on a back to the
operations of access tokens.

Clients without a token of the gateway's own pass: the listener has admitted them already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from penstock.core.back import (
    AppendSession,
    AppendSessionWrapper,
    Back,
    BackWrapper,
    Destination,
    Following,
    ReadSession,
    ReadSessionWrapper,
)
from penstock.core.grants import Grant
from penstock.core.identity import CLIENT
from penstock.core.passthrough import Passthrough
from penstock.core.permissions import APPEND, MANAGE, READ, Permission
from penstock.core.scopes import common_prefix
from penstock.model.access_tokens import Op, ResourceSet
from penstock.model.byte_operations import AppendBytes, GetAttribute, GetByteStreamInfo, Seal, UpdateAttribute
from penstock.model.failures import Failure, OperationFailed
from penstock.model.operations import (
    Append,
    Appended,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Locate,
    Operation,
    Page,
    Provisioned,
    Read,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import RecordBatch, StreamRef
from penstock.model.streams import BasinInfo, StreamConfig, StreamInfo
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins
from penstock.routing.access.revocation import RevocationMonitor, Watched

__all__ = ["OPS", "GuardedBack", "ops_of_append"]

OPS: Final[dict[type, tuple[Op, ...]]] = {
    Append: (Op.APPEND,),
    CheckTail: (Op.CHECK_TAIL,),
    CreateBasin: (Op.CREATE_BASIN,),
    EnsureBasin: (Op.CREATE_BASIN, Op.RECONFIGURE_BASIN),
    GetBasinConfig: (Op.GET_BASIN_CONFIG,),
    ReconfigureBasin: (Op.RECONFIGURE_BASIN,),
    DeleteBasin: (Op.DELETE_BASIN,),
    CreateStream: (Op.CREATE_STREAM,),
    EnsureStream: (Op.CREATE_STREAM, Op.RECONFIGURE_STREAM),
    GetStreamConfig: (Op.GET_STREAM_CONFIG,),
    ReconfigureStream: (Op.RECONFIGURE_STREAM,),
    DeleteStream: (Op.DELETE_STREAM,),
    Trim: (Op.TRIM,),
    Locate: (Op.READ,),
    GetByteStreamInfo: (Op.CHECK_TAIL,),
    AppendBytes: (Op.APPEND,),
    GetAttribute: (Op.APPEND,),
    UpdateAttribute: (Op.APPEND,),
    Seal: (Op.APPEND,),
}
"""Operations of access tokens that each class of operation needs. With `append` alone a client may also create a
stream if the basin creates streams on append, as its owner configured it. Reading creates one only with
`create-stream`, since a read must not change anything. No operation of tokens ends a stream: its writers do."""
_OPS_OF: Final = {READ: (Op.READ,), APPEND: (Op.APPEND,)}
_COMMANDS: Final = {b"trim": Op.TRIM, b"fence": Op.FENCE}
R = TypeVar("R")
T = TypeVar("T", StreamInfo, BasinInfo)


def ops_of_append(append: Any) -> tuple[Op, ...]:
    """Return the operations that a batch needs: command records are operations of their own (S2 fact sheet, 5.3)."""
    headers = getattr(append, "headers", None)
    if not headers:
        return (Op.APPEND,)
    commands = {pairs[0].value for pairs in headers.values() if len(pairs) == 1 and not pairs[0].name}
    return (Op.APPEND, *(op for command, op in _COMMANDS.items() if command in commands))


class GuardedBack(BackWrapper):
    """A `Back` that enforces the client's access token. `vigil` ends sessions whose tokens were revoked or have
    expired."""

    def __init__(self, inner: Back, vigil: RevocationMonitor) -> None:
        super().__init__(inner)
        self._vigil = vigil

    async def perform(self, operation: Operation[R]) -> R:
        grant = CLIENT.get().grant
        if grant is None:
            return await self._inner.perform(operation)
        self._vigil.check(grant)
        if isinstance(operation, GetUsage | GetStorage | ListActiveBasins):
            return cast(R, await self._inner.perform(operation))  # the front has checked operation and names
        if isinstance(operation, ListBasins):
            return cast(R, await self._list_basins(grant, operation))
        if isinstance(operation, ListStreams):
            return cast(R, await self._list_streams(grant, operation))
        return cast(R, await self._perform(grant, operation))

    async def _perform(self, grant: Grant, operation: Any) -> Any:
        ops = ops_of_append(operation) if isinstance(operation, Append) else OPS.get(type(operation))
        if ops is None:
            raise grant.denied(f"{type(operation).__name__} is not allowed")
        asked = getattr(operation, "stream", None)
        if asked is None:
            grant.check(ops, operation.basin)
            return await self._inner.perform(operation)
        stream = grant.place(asked)
        grant.check(ops, stream.basin, stream.stream)
        changes: dict[str, Any] = {} if stream is asked else {"stream": stream}
        if isinstance(operation, CheckTail) and not grant.creates_by_reading:
            changes["create_if_missing"] = False
        result: Any = await self._inner.perform(replace(operation, **changes) if changes else operation)
        if isinstance(result, Provisioned) and isinstance(result.info, StreamInfo):
            return replace(result, info=_shown(grant, result.info))
        return result

    # ---- listings ------------------------------------------------------------------------------------------------

    async def _list_basins(self, grant: Grant, operation: ListBasins) -> Page[BasinInfo]:
        grant.check((Op.LIST_BASINS,))
        prefix = common_prefix(grant.basins, operation.prefix)
        if prefix is None:
            return Page([], has_more=False)
        page = await self._inner.perform(replace(operation, prefix=prefix))
        return _within(page, grant.basins)

    async def _list_streams(self, grant: Grant, operation: ListStreams) -> Page[StreamInfo]:
        grant.check((Op.LIST_STREAMS,), operation.basin)
        before = grant.prefix
        prefix = common_prefix(grant.streams, before + operation.prefix)
        if prefix is None:
            return Page([], has_more=False)
        start_after = before + operation.start_after if operation.start_after else ""
        page = await self._inner.perform(replace(operation, prefix=prefix, start_after=start_after))
        visible = _within(page, grant.streams)
        return replace(visible, items=[_shown(grant, item) for item in visible.items]) if before else visible

    # ---- sessions ------------------------------------------------------------------------------------------------

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        grant = CLIENT.get().grant
        if grant is None:
            return self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        return self._append_session(grant, grant.place(stream), create_config, create_if_missing)

    @asynccontextmanager
    async def _append_session(
        self, grant: Grant, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[AppendSession]:
        grant.check((Op.APPEND,), stream.basin, stream.stream)
        session = self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        with self._vigil.watch(grant) as watched:
            async with session as inner:
                yield _Appends(inner, grant, watched)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        grant = CLIENT.get().grant
        return self._inner.read_session(read) if grant is None else self._read_session(grant, read)

    @asynccontextmanager
    async def _read_session(self, grant: Grant, read: Read) -> AsyncIterator[ReadSession]:
        stream = grant.place(read.stream)
        grant.check((Op.READ,), stream.basin, stream.stream)
        create = read.create_if_missing and grant.creates_by_reading
        with self._vigil.watch(grant) as watched:
            async with self._inner.read_session(replace(read, stream=stream, create_if_missing=create)) as inner:
                yield _Reads(inner, watched)

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        """Return None for clients with tokens: their batches must be checked."""
        return None if CLIENT.get().grant is not None else self._inner.passthrough(protocol, stream)

    # ---- permissions of routes -----------------------------------------------------------------------------------

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """Refuse clients whose token does not permit it. No token permits to manage in several steps."""
        grant = CLIENT.get().grant
        if grant is not None:
            stream = grant.place(stream)
            grant.check(_ops_for(grant, needs), stream.basin, stream.stream)
        self._inner.require(stream, needs)

    def require_some(self, basin: str, prefix: str, needs: frozenset[Permission]) -> None:
        grant = CLIENT.get().grant
        if grant is not None:
            grant.check(_ops_for(grant, needs), basin)
        self._inner.require_some(basin, prefix, needs)

    def require_all(self, basin: str, prefix: str, needs: frozenset[Permission] = MANAGE) -> None:
        grant = CLIENT.get().grant
        if grant is not None:
            grant.check(_ops_for(grant, needs), basin)
            prefix = grant.prefix + prefix
            if grant.streams.prefix is None or not prefix.startswith(grant.streams.prefix):
                raise grant.denied(f"not all streams of basin {basin} that begin with {prefix!r} are in its scope")
        self._inner.require_all(basin, prefix, needs)

    def destination(self, stream: StreamRef) -> Destination:
        return self._inner.destination(CLIENT.get().place(stream))


def _ops_for(grant: Grant, needs: frozenset[Permission]) -> tuple[Op, ...]:
    """Return the operations of a token that stand for one of these permissions."""
    if needs not in _OPS_OF:
        raise _denied(grant)
    return _OPS_OF[needs]


def _denied(grant: Grant) -> OperationFailed:
    return grant.denied("it does not permit operations of several steps")


class _Appends(AppendSessionWrapper):
    """An `AppendSession` that checks each batch. One that the token does not allow ends it, as a failed batch does."""

    def __init__(self, inner: AppendSession, grant: Grant, watched: Watched) -> None:
        super().__init__(inner)
        self._grant = grant
        self._watched = watched
        self._refused: Failure | None = None

    async def send(self, append: Append | AppendBytes) -> None:
        if self._refused is not None or self._watched.failure is not None:
            return
        stream = self._grant.place(append.stream)
        try:
            self._grant.check(ops_of_append(append))
        except OperationFailed as error:
            self._refused = error.failure
            self._inner.close()
            return
        await self._inner.send(append if stream is append.stream else replace(append, stream=stream))

    async def receive(self) -> list[Appended]:
        if self._refused is None:
            acknowledged: list[Appended] = []
            with self._watched.waiting() as scope:
                acknowledged = await self._received()
            if not scope.cancelled_caught:
                return acknowledged
            self._refused = self._watched.failure
            self._inner.close()
        return await self._received()

    async def _received(self) -> list[Appended]:
        """Return the next acknowledgements. Batches sent before a refusal are acknowledged before it is raised."""
        acknowledged = await self._inner.receive()
        if not acknowledged and self._refused is not None:
            raise OperationFailed(self._refused)
        return acknowledged


class _Reads(ReadSessionWrapper):
    """A `ReadSession` that ends when the token is revoked or expires."""

    def __init__(self, inner: ReadSession, watched: Watched) -> None:
        super().__init__(inner)
        self._watched = watched

    async def next(self) -> RecordBatch | Following | None:
        event: RecordBatch | Following | None = None
        with self._watched.waiting() as scope:
            event = await self._inner.next()
        if scope.cancelled_caught and self._watched.failure is not None:
            raise OperationFailed(self._watched.failure)
        return event

    def ready(self) -> RecordBatch | None:
        return self._inner.ready() if self._watched.failure is None else None


def _shown(grant: Grant, info: StreamInfo) -> StreamInfo:
    return replace(info, name=grant.shown(info.name)) if grant.prefix else info


def _within(page: Page[T], names: ResourceSet) -> Page[T]:
    """Limit a page to the names of a scope. An exact name sorts before all others that begin with it, so it is on the
    first page if it exists at all."""
    if names.prefix is not None:
        return page
    return replace(page, items=[item for item in page.items if names.has(item.name)], has_more=False)
