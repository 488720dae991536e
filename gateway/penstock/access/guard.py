"""A back as the clients of one listener may use it: what their access tokens do not allow is refused before the back is
asked, listings have only what their scopes have, and names are prefixed where their tokens say so.

Clients without a token of ours pass: the listener has decided that they may.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from penstock.access.grants import Grant
from penstock.access.operations import OPS, ops_of_append
from penstock.access.scopes import common_prefix
from penstock.access.vigil import Vigil, Watched
from penstock.backs.base import AppendSession, Back, Following, ReadSession
from penstock.backs.passing import S2SPassage, s2s_passage
from penstock.identity import CLIENT
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition, StreamRef
from penstock_codecs.operations import (
    Append,
    Appended,
    Capability,
    ListBasins,
    ListStreams,
    Operation,
    Page,
    Provisioned,
    Read,
)
from penstock_codecs.s2.access_tokens import Op, ResourceSet
from penstock_codecs.streams import BasinInfo, StreamConfig, StreamInfo

__all__ = ["Guarded"]

R = TypeVar("R")


class Guarded:
    """See the module, and `Back`. `vigil` ends sessions whose tokens have lapsed."""

    def __init__(self, inner: Back, vigil: Vigil) -> None:
        self._inner = inner
        self._vigil = vigil

    @property
    def inner(self) -> Back:
        """What is behind it."""
        return self._inner

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        return self._inner.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        grant = CLIENT.get().grant
        if grant is None:
            return await self._inner.perform(operation)
        self._vigil.check(grant)
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
        result: Any = await self._inner.perform(operation if stream is asked else replace(operation, stream=stream))
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
        found = _within(page, grant.streams)
        return Page([_shown(grant, item) for item in found.items], found.has_more) if before else found

    # ---- sessions ------------------------------------------------------------------------------------------------

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
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
        """See `Back.read_session`."""
        grant = CLIENT.get().grant
        return self._inner.read_session(read) if grant is None else self._read_session(grant, read)

    @asynccontextmanager
    async def _read_session(self, grant: Grant, read: Read) -> AsyncIterator[ReadSession]:
        stream = grant.place(read.stream)
        grant.check((Op.READ,), stream.basin, stream.stream)
        with self._vigil.watch(grant) as watched:
            async with self._inner.read_session(replace(read, stream=stream)) as inner:
                yield _Reads(inner, watched)

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """See `penstock.backs.passing.PassesS2S`. What is passed through is not looked into, so that sessions of
        clients with tokens are not."""
        return None if CLIENT.get().grant is not None else s2s_passage(self._inner, stream)


class _Appends:
    """See `AppendSession`. A batch that is not allowed ends the session as a failed one does."""

    def __init__(self, inner: AppendSession, grant: Grant, watched: Watched) -> None:
        self._inner = inner
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

    def close(self) -> None:
        self._inner.close()

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
        """What was taken before is acknowledged all the same."""
        acknowledged = await self._inner.receive()
        if not acknowledged and self._refused is not None:
            raise OperationFailed(self._refused)
        return acknowledged


class _Reads:
    """See `ReadSession`."""

    def __init__(self, inner: ReadSession, watched: Watched) -> None:
        self._inner = inner
        self._watched = watched

    async def next(self) -> RecordBatch | Following | None:
        event: RecordBatch | Following | None = None
        with self._watched.waiting() as scope:
            event = await self._inner.next()
        if scope.cancelled_caught and self._watched.failure is not None:
            raise OperationFailed(self._watched.failure)
        return event

    def behind(self) -> bool:
        return self._inner.behind()

    def tail(self) -> StreamPosition:
        return self._inner.tail()


def _shown(grant: Grant, info: StreamInfo) -> StreamInfo:
    return msgspec.structs.replace(info, name=grant.shown(info.name)) if grant.prefix else info


T = TypeVar("T", StreamInfo, BasinInfo)


def _within(page: Page[T], names: ResourceSet) -> Page[T]:
    """Of one exact name only that one is shown, which comes first of all that begin with it."""
    if names.prefix is not None:
        return page
    return Page([item for item in page.items if names.has(item.name)], has_more=False)
