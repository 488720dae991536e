"""The shapes of partitioned streams on a server, which creates streams without knowing of them.

Theory of operation. Before a request that may create a stream goes to the server, the gateway looks whether the stream
exists, and if not, whether its other shape does (`penstock.core.partitions`). That is not atomic: two gateways, another
client of the server, and two creations at the same moment can make both shapes. Streams seen to exist are remembered,
so a stream costs one look-up. Nothing is looked up in basins without partitioned streams. Sessions that pass through
undecoded are not checked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec
import trio

from penstock.core.back import AppendSession, Back, BackWrapper, ReadSession
from penstock.core.partitions import PartitionedNames, shape_conflict
from penstock.core.passthrough import Passthrough
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, CheckTail, CreateStream, DeleteStream, EnsureStream, Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig

__all__ = ["PartitionChecks"]

R = TypeVar("R")

_REMEMBERED: Final = 10_000
_ABSENT: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND, FailureCode.NOT_REPRESENTABLE})


class _Check(msgspec.Struct, eq=False):
    """A look-up in progress. Those that wait for it go on in their order, as appends must."""

    lock: trio.Lock = msgspec.field(default_factory=trio.Lock)
    is_done: bool = False


class PartitionChecks(BackWrapper):
    """A back in front of a server."""

    def __init__(self, inner: Back) -> None:
        super().__init__(inner)
        self._names = PartitionedNames()
        self._existing: OrderedDict[StreamRef, None] = OrderedDict()
        self._checks: dict[StreamRef, _Check] = {}

    def declare_partitioned(self, basin: str, prefix: str = "") -> None:
        self._names.declare(basin, prefix)

    async def perform(self, operation: Operation[R]) -> R:
        if isinstance(operation, CreateStream | EnsureStream):
            await self._check(operation.stream, FailureCode.INVALID)
        elif isinstance(operation, Append | CheckTail) and operation.create_if_missing:
            await self._check(operation.stream, FailureCode.STREAM_NOT_FOUND)
        elif isinstance(operation, DeleteStream):
            self._existing.pop(operation.stream, None)
        return await self._inner.perform(operation)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        if create_if_missing:
            await self._check(stream, FailureCode.STREAM_NOT_FOUND)
        async with self._inner.append_session(stream, create_config, create_if_missing=create_if_missing) as session:
            yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        if read.create_if_missing:
            await self._check(read.stream, FailureCode.STREAM_NOT_FOUND)
        async with self._inner.read_session(read) as session:
            yield session

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        return self._inner.passthrough(protocol, stream)

    async def _check(self, stream: StreamRef, code: FailureCode) -> None:
        """Raise OperationFailed with this code if the stream is missing and its other shape exists."""
        whole = self._names.whole(stream)
        if whole is None and not self._names.may_be_divided(stream):
            return
        if stream in self._existing and stream not in self._checks:
            self._existing.move_to_end(stream)
            return
        check = self._checks.setdefault(stream, _Check())
        try:
            async with check.lock:
                if not check.is_done:
                    await self._look_up(stream, whole or f"{stream.stream}/0", code)
                    check.is_done = True
        finally:
            if not check.lock.locked():
                self._checks.pop(stream, None)

    async def _look_up(self, stream: StreamRef, other: str, code: FailureCode) -> None:
        if await self._exists(stream):
            self._existing[stream] = None
            if len(self._existing) > _REMEMBERED:
                self._existing.popitem(last=False)
        elif await self._exists(StreamRef(stream.basin, other)):
            raise fail(code, shape_conflict(stream, other))

    async def _exists(self, stream: StreamRef) -> bool:
        try:
            await self._inner.perform(CheckTail(stream, create_if_missing=False))
        except OperationFailed as error:
            if error.failure.code not in _ABSENT:
                raise
            return False
        return True
