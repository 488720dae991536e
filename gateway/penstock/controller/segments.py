"""What the controller does to segments, each of which is a stream of the back.

Everything here may be done again: what is there is not created, what is gone is not deleted. So whatever was
interrupted is finished by doing it once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import trio

from penstock.backs.base import Back
from penstock.controller.problems import Problem, Refused
from penstock.routing.permissions import Permission, require, require_all
from penstock.routing.segments import INTERNAL_BASIN, SegmentName, SegmentNames
from penstock_codecs.byte_operations import GetSegmentInfo, Merge, Seal, SegmentInfo, Truncate
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import (
    CreateBasin,
    CreateStream,
    DeleteStream,
    GetStreamConfig,
    ListStreams,
    Operation,
    ReconfigureStream,
)
from penstock_codecs.streams import INFINITE, BasinConfig, Retention, StreamConfig, StreamConfigPatch

__all__ = ["SegmentStore", "at_once"]

T = TypeVar("T")
R = TypeVar("R")

FOR_EVER: Final = BasinConfig(default_stream_config=StreamConfig(retention=INFINITE))
"""A basin for Pravega's clients: what they write stays until they say otherwise, and nothing is created by chance."""

_AT_ONCE: Final = 50
"""Operations on the segments of one stream that are under way together: they share the store's commits."""
_MISSING: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND})


async def at_once(what: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
    """Do it for all items, many at a time. Raises the first failure, after the rest was tried."""
    limiter = trio.CapacityLimiter(_AT_ONCE)
    failures: list[OperationFailed] = []

    async def one(item: T) -> None:
        async with limiter:
            try:
                await what(item)
            except OperationFailed as error:
                failures.append(error)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one, item)
    if failures:
        raise failures[0]


class SegmentStore:
    """The segments of all streams, by name."""

    def __init__(self, back: Back, names: SegmentNames) -> None:
        self._back = back
        self._names = names

    def check(self, names: Iterable[SegmentName]) -> None:
        """Raises NOT_REPRESENTABLE where one is longer than a stream's name may be."""
        for name in names:
            self._ref(name)

    def require(self, scope: str, stream: str, needs: frozenset[Permission]) -> None:
        """Raises PERMISSION_DENIED where the current client may do nothing of these with the stream: before anything
        is recorded of what it asked for."""
        try:
            ref = self._ref(SegmentName(scope, stream))
        except OperationFailed:
            return  # there is none of such a name
        require(self._back, ref, needs)

    def require_all(self, scope: str) -> None:
        """The same for managing all streams that may be in a scope, also those that the client does not see."""
        require_all(self._back, *self._names.basin_of(scope))

    async def info(self, name: SegmentName) -> SegmentInfo | None:
        """Its offsets and state; None where it is not there."""
        return await self._if_there(GetSegmentInfo(self._ref(name)))

    async def create(self, name: SegmentName, age_seconds: int | None = None) -> None:
        """Have it, and the basin that several scopes share. Events are kept this long; None: for ever.

        Raises SCOPE_NOT_FOUND where the scope is a basin that is not there.
        """
        ref = self._ref(name)
        operation = CreateStream(ref, StreamConfig(retention=Retention(age_seconds)))
        try:
            await self._have(operation)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            if ref.basin not in (INTERNAL_BASIN, self._names.basin):
                raise Refused(Problem.SCOPE_NOT_FOUND, name.scope) from None
            await self.create_basin(ref.basin)
            await self._have(operation)

    async def create_basin(self, basin: str) -> bool:
        """Have a basin; whether it was not there."""
        return await self._have(CreateBasin(basin, FOR_EVER))

    async def delete_internal(self, scope: str) -> None:
        """Delete all of a scope's that clients of other protocols cannot see: internal streams, transactions."""
        listing = ListStreams(INTERNAL_BASIN, f"{scope}/")
        while (page := await self._if_there(listing)) is not None and page.items:
            await at_once(lambda info: self._if_there(DeleteStream(StreamRef(INTERNAL_BASIN, info.name))), page.items)

    async def seal(self, name: SegmentName) -> None:
        """Nothing is appended to it any more."""
        await self._if_there(Seal(self._ref(name)))

    async def delete(self, name: SegmentName) -> None:
        """It is not there any more."""
        await self._if_there(DeleteStream(self._ref(name)))

    async def delete_sealed(self, name: SegmentName) -> None:
        """It is not there any more; but one that is not sealed is another, which somebody made in its place."""
        info = await self.info(name)
        if info is not None and info.sealed:
            await self.delete(name)

    async def truncate(self, name: SegmentName, offset: int) -> None:
        """Remove the bytes before `offset`. INVALID beyond its length."""
        await self._if_there(Truncate(self._ref(name), offset))

    async def keep_for(self, name: SegmentName, age_seconds: int | None) -> None:
        """From now on its events are kept for this long; None: for ever."""
        await self._if_there(ReconfigureStream(self._ref(name), StreamConfigPatch(retention=Retention(age_seconds))))

    async def kept_for(self, name: SegmentName) -> int | None:
        """How long its events are kept, in seconds; None: for ever."""
        config = await self._if_there(GetStreamConfig(self._ref(name)))
        return None if config is None or config.retention is None else config.retention.age_seconds

    async def merge(self, target: SegmentName, sources: Iterable[SegmentName]) -> None:
        """Append the sources to the target, all or none, and delete them. Fails as `Merge`."""
        await self._back.perform(Merge(self._ref(target), tuple(map(self._ref, sources))))

    def _ref(self, name: SegmentName) -> StreamRef:
        return self._names.to_stream(name)

    async def _if_there(self, operation: Operation[R]) -> R | None:
        """The result; None where there is nothing to do it to."""
        try:
            return await self._back.perform(operation)
        except OperationFailed as error:
            if error.failure.code not in _MISSING:
                raise
            return None

    async def _have(self, operation: Operation[object]) -> bool:
        try:
            await self._back.perform(operation)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True
