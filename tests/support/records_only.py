"""A back that knows records and nothing else, and that loses acknowledgements when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec.structs import replace
from support.backs import DecodedBack

from penstock.core.back import AppendSessionWrapper, Back, BackWrapper
from penstock.model import byte_operations, table_operations
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, Capability, Located, Read

_MORE = frozenset({Capability.BYTES, Capability.TABLES})


class RecordsOnly(DecodedBack):
    """A back that offers only the record operations of another one, never byte offsets.

    Faults, all off by default:

    `before`: this many appends of sessions are taken, then the server is lost before it has the next. `after`: this
    many are acknowledged, then the server is lost after it has the next. `lost`: the server cannot be reached. `dies`:
    it stays lost after one of the losses above. `fails`: operations of this class fail with `fails_with`.
    `before_sending`: appends of another client, each made just before the next append of a session, the last one first
    (None: no append). `takes`: this many appends of sessions are taken; the others (`swallowed`) are never answered.
    `mute`: acknowledgements wait for it.
    """

    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, back: Back, without: frozenset[Capability] = frozenset()) -> None:
        super().__init__(back)
        self.capabilities = back.capabilities - _MORE - without
        self.before: int | None = None
        self.after: int | None = None
        self.lost = False
        self.dies = False
        self.fails: type | None = None
        self.fails_with = FailureCode.UNAVAILABLE
        self.before_sending: list[Append | None] = []
        self.takes: int | None = None
        self.swallowed: list[Append] = []
        self.mute = trio.Event()
        self.mute.set()
        self.sent: list[Append] = []
        self.sessions = 0
        self.reads: list[Read] = []

    async def perform(self, operation: Any) -> Any:
        assert type(operation).__module__ not in (byte_operations.__name__, table_operations.__name__)
        self.check()
        if type(operation) is self.fails:
            raise fail(self.fails_with, "back lite: the connection was lost")
        result = await self._inner.perform(operation)
        if isinstance(result, Located):
            return replace(result, offset=None)
        return _plain(result) if isinstance(result, Appended) else result

    @asynccontextmanager
    async def append_session(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.check()
        self.sessions += 1
        async with self._inner.append_session(*args, **options) as session:
            yield _Session(self, session)

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[Any]:
        self.check()
        self.reads.append(read)
        async with self._inner.read_session(read) as session:
            yield session

    def die(self) -> OperationFailed:
        """Lose the server and return the error for the operation that was in flight."""
        self.after = self.before = None
        self.lost = self.dies
        return fail(FailureCode.UNAVAILABLE, "back lite: the connection was lost")

    def check(self) -> None:
        """Raise what a client of a lost server does."""
        if self.lost:
            raise fail(FailureCode.HOT_SERVER, "back lite: could not connect")


class _Session(AppendSessionWrapper):
    def __init__(self, server: RecordsOnly, session: Any) -> None:
        super().__init__(session)
        self._server = server
        self._lost = False
        self._deaf = False

    async def send(self, append: Append) -> None:
        assert isinstance(append, Append)
        server = self._server
        self._lost = self._lost or server.lost
        if server.before is not None:
            server.before -= 1
            self._lost = self._lost or server.before < 0
        if self._lost:
            self._inner.close()
            return
        if server.takes is not None:
            server.takes -= 1
            if server.takes < 0:
                server.swallowed.append(append)
                return
        server.sent.append(append)
        if server.before_sending and (before := server.before_sending.pop()) is not None:
            await server._inner.perform(before)
        await self._inner.send(append)

    async def receive(self) -> list[Appended]:
        server = self._server
        acknowledged = [] if self._deaf else [_plain(appended) for appended in await self._inner.receive()]
        await server.mute.wait()
        if not acknowledged and (self._lost or self._deaf):
            raise server.die()
        if server.after is not None:
            kept = acknowledged[: server.after]
            self._deaf = len(kept) < len(acknowledged)
            server.after -= len(kept)
            if self._deaf:
                self._lost = True
                await self._settle()
                if not kept:
                    raise server.die()
            return kept
        return acknowledged

    async def _settle(self) -> None:
        """Wait until all appends that were taken are applied."""
        self._inner.close()
        while await self._inner.receive():
            pass


class WithTables(BackWrapper):
    """Two backs as one, as a router combines them: one for tables, and another for the rest."""

    def __init__(self, back: Back, tables: Back) -> None:
        super().__init__(back)
        self._tables = tables

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._inner.capabilities | {Capability.TABLES}

    async def perform(self, operation: Any) -> Any:
        ours = type(operation).__module__ != table_operations.__name__
        return await (self._inner if ours else self._tables).perform(operation)


def _plain(appended: Appended) -> Appended:
    return Appended(appended.start, appended.end, appended.tail, appended.last_id)
