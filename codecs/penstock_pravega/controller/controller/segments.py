"""The controller's operations on segments, each of which is a stream of the back.

All of them are idempotent: an existing segment is not created, a deleted one is not deleted. So anything that was
interrupted is finished by repeating it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import trio

from penstock.core.back import Back
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.core.permissions import ANY_PERMISSION, Permission
from penstock.model.byte_operations import (
    AppendBytes,
    ByteStreamInfo,
    GetByteStreamInfo,
    Merge,
    ReadBytes,
    Seal,
    Truncate,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    GetStreamConfig,
    ListStreams,
    Operation,
    ReconfigureStream,
)
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE, BasinConfig, Retention, StreamConfig, StreamConfigPatch
from penstock.model.table_operations import CreateTable, DeleteTable, GetTableInfo
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.segment.names import SegmentName, SegmentNames

__all__ = ["SegmentStore", "at_once"]

T = TypeVar("T")
R = TypeVar("R")

FOR_EVER: Final = BasinConfig(default_stream_config=StreamConfig(retention=INFINITE))
"""A basin for Pravega's clients: its events are kept until clients configure otherwise, and streams are never created
automatically."""

_AT_ONCE: Final = 50
"""Most concurrent operations on the segments of one stream: they share the store's commits."""
_PIECE: Final = 1 << 20
"""Most bytes of a segment that are read at once."""
_MISSING: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND})


async def at_once(what: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
    """Call `what` with all items, many at a time. Raises the first failure, after all others have been tried."""
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
        """Raise NOT_REPRESENTABLE if one of the names is too long for a stream."""
        for name in names:
            self._ref(name)

    def require(self, scope: str, stream: str, needs: frozenset[Permission]) -> None:
        """Check, before anything is recorded, that the client has one of these permissions for the stream.

        Raises PERMISSION_DENIED, and STREAM_NOT_FOUND if no route matches the stream.
        """
        try:
            ref = self._ref(SegmentName(scope, stream))
        except OperationFailed:
            return  # no stream can have such a name
        try:
            self._back.require(ref, needs)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            raise ControllerRefusal(ControllerProblem.STREAM_NOT_FOUND, f"{scope}/{stream}") from error

    def routed(self, scope: str, stream: str) -> bool:
        """Return whether any route matches the stream. Raises PERMISSION_DENIED if none of those is for the client."""
        try:
            self.require(scope, stream, ANY_PERMISSION)
        except ControllerRefusal:
            return False
        return True

    def require_some(self, scope: str, needs: frozenset[Permission]) -> None:
        """Check that the client has one of these permissions for some streams that a scope may contain.

        Raises SCOPE_NOT_FOUND if none of its routes matches any, and PERMISSION_DENIED.
        """
        try:
            self._back.require_some(*self._names.basin_of(scope), needs)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            raise ControllerRefusal(ControllerProblem.SCOPE_NOT_FOUND, scope) from error

    def require_all(self, scope: str) -> None:
        """Check that the client may manage all streams that a scope may contain, also those that it does not see."""
        try:
            basin, prefix = self._names.basin_of(scope)
        except OperationFailed:
            return  # no stream can have such a name
        self._back.require_all(basin, prefix)

    async def info(self, name: SegmentName) -> ByteStreamInfo | None:
        """Return the segment's offsets and state, or None if it does not exist."""
        return await self._if_there(GetByteStreamInfo(self._ref(name)))

    async def created_at(self, name: SegmentName) -> int | None:
        """Return when the segment was created, in ms, or None if it does not exist."""
        ref = self._ref(name)
        page = await self._if_there(ListStreams(ref.basin, ref.stream, limit=1))
        info = page.items[0] if page is not None and page.items else None
        return None if info is None or info.name != ref.stream else info.created_at

    async def written(self, name: SegmentName, *, by_records: bool) -> int | None:
        """Return how many bytes, or records, have been written to the segment, or None if it does not exist."""
        if not by_records:
            info = await self.info(name)
            return None if info is None else info.length
        tail = await self._if_there(CheckTail(self._ref(name), create_if_missing=False))
        return None if tail is None else tail.seq_num

    async def create(self, name: SegmentName, age_seconds: int | None = None) -> None:
        """Create the segment if it does not exist, and the basin that scopes share. Events are kept for `age_seconds`;
        None: for ever. A back without retention by age keeps them until they are truncated.

        Raises SCOPE_NOT_FOUND if the scope is a basin that does not exist.
        """
        ref = self._ref(name)
        operation = CreateStream(ref, StreamConfig(retention=Retention(age_seconds)))
        try:
            await self._have(operation)
        except OperationFailed as error:
            if error.failure.code is FailureCode.NOT_IMPLEMENTED and age_seconds is not None:
                await self.create(name)
                return
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            if ref.basin not in (INTERNAL_BASIN, self._names.basin):
                raise ControllerRefusal(ControllerProblem.SCOPE_NOT_FOUND, name.scope) from None
            await self.create_basin(ref.basin)
            await self._have(operation)

    async def create_basin(self, basin: str) -> bool:
        """Create a basin if it does not exist. Returns whether it was created."""
        return await self._have(CreateBasin(basin, FOR_EVER))

    async def delete_internal(self, scope: str) -> None:
        """Delete everything in a scope that clients of other protocols cannot see: internal streams, transactions."""
        after = ""
        while (
            page := await self._if_there(ListStreams(INTERNAL_BASIN, f"{scope}/", after))
        ) is not None and page.items:
            await at_once(lambda info: self._if_there(DeleteStream(StreamRef(INTERNAL_BASIN, info.name))), page.items)
            after = page.items[-1].name

    async def read(self, name: SegmentName, offset: int) -> bytes:
        """Return bytes of the segment from `offset` on; b"" at its tail. Fails as `ReadBytes`."""
        return (await self._back.perform(ReadBytes(self._ref(name), offset, _PIECE))).data

    async def append(self, name: SegmentName, data: bytes) -> None:
        """Append bytes to the segment."""
        await self._back.perform(AppendBytes(self._ref(name), data))

    async def seal(self, name: SegmentName) -> None:
        """Seal the segment if it exists."""
        await self._if_there(Seal(self._ref(name)))

    async def delete(self, name: SegmentName) -> None:
        """Delete the segment if it exists."""
        await self._if_there(DeleteStream(self._ref(name)))

    async def delete_sealed(self, name: SegmentName) -> None:
        """Delete the segment if it is sealed; one that is not sealed was created by another client in its place."""
        info = await self.info(name)
        if info is not None and info.sealed:
            await self.delete(name)

    async def truncate(self, name: SegmentName, offset: int) -> None:
        """Remove the bytes before `offset`. Raises INVALID beyond its length."""
        await self._if_there(Truncate(self._ref(name), offset))

    async def keep_for(self, name: SegmentName, age_seconds: int | None) -> None:
        """Set for how long the segment's events are kept, in seconds; None: for ever. A back without retention by age
        keeps them until they are truncated."""
        patch = StreamConfigPatch(retention=Retention(age_seconds))
        try:
            await self._if_there(ReconfigureStream(self._ref(name), patch))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
                raise

    async def kept_for(self, name: SegmentName) -> int | None:
        """Return for how long the segment's events are kept, in seconds; None: for ever."""
        config = await self._if_there(GetStreamConfig(self._ref(name)))
        return None if config is None or config.retention is None else config.retention.age_seconds

    async def create_table(self, name: SegmentName, key_length: int) -> None:
        """Create a table segment with keys of that many bytes if it does not exist."""
        await self._have(CreateTable(str(name), key_length))

    async def delete_table(self, name: SegmentName) -> None:
        """Delete a table segment with its entries if it exists."""
        await self._if_there(DeleteTable(str(name)))

    async def has_table(self, name: SegmentName) -> bool:
        """Return whether the table segment exists."""
        return await self._if_there(GetTableInfo(str(name))) is not None

    async def merge(self, target: SegmentName, sources: Iterable[SegmentName]) -> None:
        """Append the sources to the target, all or none, and delete them. Fails as `Merge`."""
        await self._back.perform(Merge(self._ref(target), tuple(map(self._ref, sources))))

    def _ref(self, name: SegmentName) -> StreamRef:
        return self._names.to_stream(name)

    async def _if_there(self, operation: Operation[R]) -> R | None:
        """Perform the operation. Returns None if its stream or basin does not exist."""
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
