"""Creating, configuring, truncating, sealing and deleting streams.

Operations of several steps record their intent in the stream's record first, so that a repeated request, or the next
start (`recovery`), finishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import structlog

from penstock.core.permissions import MANAGE
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.table_operations import NOT_EXISTS
from penstock_pravega.controller.controller.catalog import (
    Catalog,
    CatalogStream,
    acknowledged_of,
    cuts_in,
    watermarks_in,
    writers_of,
)
from penstock_pravega.controller.controller.names import is_stream
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import (
    Configuration,
    ScaleType,
    StreamRecord,
    StreamStatus,
)
from penstock_pravega.controller.controller.scaling import Scaling
from penstock_pravega.controller.controller.scopes import Scopes
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.settings import SegmentsMode
from penstock_pravega.controller.controller.topology import Segment, before, equal_ranges, initial
from penstock_pravega.controller.controller.transactions import Transactions
from penstock_pravega.segment.names import MARK_PREFIX, SegmentName

__all__ = ["MAX_NEW_SEGMENTS", "StreamOperations"]

MAX_NEW_SEGMENTS: Final = 1000
"""Most segments that a stream may be created with."""

_NEVER: Final = frozenset({FailureCode.NOT_REPRESENTABLE, FailureCode.NOT_IMPLEMENTED, FailureCode.INVALID})
"""Failures of a creation that would occur again, since the server cannot have such a stream."""

log = structlog.get_logger()


class StreamOperations:
    """The operations on whole streams, except listing (`listing`) and scaling (`scaling`)."""

    def __init__(
        self, catalog: Catalog, scopes: Scopes, scaling: Scaling, transactions: Transactions, mode: SegmentsMode
    ) -> None:
        self._catalog = catalog
        self._scopes = scopes
        self._scaling = scaling
        self._transactions = transactions
        self._mode = mode

    async def create(self, scope: str, name: str, config: Configuration) -> None:
        """Create a stream.

        Raises INVALID_NAME, INVALID_CONFIG, SCOPE_NOT_FOUND, STREAM_EXISTS, and NOT_REPRESENTABLE if its segments'
        names would be too long.
        """
        if not is_stream(name.removeprefix("_")):
            raise ControllerRefusal(ControllerProblem.INVALID_NAME, repr(name))
        self._catalog.segments.require(scope, name, MANAGE)
        catalog, count = self._catalog, self._count(config)
        async with catalog.turn(scope):
            await self._scopes.require(scope)
            async with catalog.turn(scope, name):
                if await catalog.look_up(scope, name) is not None:
                    raise ControllerRefusal(ControllerProblem.STREAM_EXISTS, f"{scope}/{name}")
                left = await self._what_is_left(scope, name)
                if left is not None and left.record.state is StreamStatus.CREATING:
                    segments = initial(count, left.record.segments[0].number)
                else:
                    segments = initial(
                        count, await catalog.numbers.following(scope, name, left.record if left else None)
                    )
                catalog.segments.check(SegmentName(scope, name, one.number) for one in segments)
                record = StreamRecord(StreamStatus.CREATING, config, segments, began={0: catalog.clock()})
                version = NOT_EXISTS if left is None else left.version
                entry = await catalog.table.put(catalog.key(scope, name), record, version)
                stream = CatalogStream(scope, name, *entry)
                if left is not None:
                    extra = [one for one in left.record.segments[1:] if one not in segments]
                    await at_once(lambda segment: catalog.segments.delete(stream.name_of(segment)), extra)
                try:
                    await self.finish_creation(stream)
                except OperationFailed as error:
                    if error.failure.code in _NEVER:
                        await self._undo_creation(stream)
                    raise
        _warn_of_what_is_not_done(stream, self._mode)

    async def finish_creation(self, stream: CatalogStream) -> None:
        """Create the segments in the stream's record. The caller has the stream's turn."""
        segments, age = self._catalog.segments, stream.record.age_seconds
        await at_once(lambda segment: segments.create(stream.name_of(segment), age), stream.record.segments)
        await self._catalog.begin(stream)
        await self._catalog.save(stream, state=StreamStatus.OPEN)

    async def _undo_creation(self, stream: CatalogStream) -> None:
        """Delete the segments and the record of a stream that its server cannot have, unless events are in it: then
        clients of another protocol have created it."""

        async def undo(segment: Segment) -> None:
            info = await self._catalog.segments.info(name := stream.name_of(segment))
            if info is not None and not info.length:
                await self._catalog.segments.delete(name)

        with suppress(OperationFailed):  # of segments that can have no name
            await at_once(undo, stream.record.segments)
        await self._catalog.table.remove(self._catalog.key(stream.scope, stream.name), stream.version)

    async def _what_is_left(self, scope: str, name: str) -> CatalogStream | None:
        """Return the record of a stream that does not exist: it is being created, or clients of another protocol
        deleted it."""
        entry = await self._catalog.table.get(self._catalog.key(scope, name))
        if entry is None or entry.value.state is not StreamStatus.DELETING:
            return None if entry is None else CatalogStream(scope, name, *entry)
        await self.finish_deletion(CatalogStream(scope, name, *entry))
        return None

    async def update(self, scope: str, name: str, config: Configuration) -> None:
        """Change a stream's configuration, and scale it to a number of segments that is fixed, or more than it has.

        Raises INVALID_CONFIG, STREAM_NOT_FOUND, STREAM_SEALED.
        """
        count = self._count(config)
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self._scaling.finish(await self._catalog.find(scope, name))
            if not stream.record.open:
                raise ControllerRefusal(ControllerProblem.STREAM_SEALED, str(stream))
            stream = await self._catalog.save(stream, config=config)
            segments, age = self._catalog.segments, stream.record.age_seconds
            await at_once(lambda one: segments.keep_for(stream.name_of(one), age), stream.record.segments)
            fewer = config.scale_type is ScaleType.FIXED and config.segments < len(stream.current)
            if fewer or count > len(stream.current):
                everything = [segment.id for segment in stream.current]
                await self._scaling.replace(stream, everything, equal_ranges(count))
        _warn_of_what_is_not_done(stream, self._mode)

    async def truncate(self, scope: str, name: str, cut: Mapping[int, int]) -> None:
        """Remove the events before a cut, given as offsets by segments' ids. Raises STREAM_NOT_FOUND, INVALID_CUT."""
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.find(scope, name)
            await self._check_cut(stream, cut)
            if stream.record.plain:
                [(_, offset)] = cut.items()
                await self._catalog.segments.truncate(stream.name_of(stream.current[0]), offset)
                return
            old = stream.record.head or {}
            if any(segment.id in cut for segment in before(stream.record.segments, old)):
                raise ControllerRefusal(ControllerProblem.INVALID_CUT, f"{stream} is truncated beyond it already")
            head = {segment: max(offset, old.get(segment, offset)) for segment, offset in cut.items()}
            await self.finish_truncation(await self._catalog.save(stream, head=head, truncating=True))

    async def finish_truncation(self, stream: CatalogStream) -> CatalogStream:
        """Remove the events before the stream's head. The caller has the stream's turn."""
        head, segments = stream.record.head or {}, self._catalog.segments
        kept = sorted((segment, offset) for segment, offset in head.items() if offset >= 0)
        await at_once(lambda one: segments.truncate(stream.name_of(stream.segment(one[0])), one[1]), kept)
        gone = before(stream.record.segments, head)
        await at_once(lambda segment: segments.delete_sealed(stream.name_of(segment)), gone)
        return await self._catalog.save(stream, truncating=False)

    async def seal(self, scope: str, name: str) -> None:
        """Seal a stream and abort its open transactions. Raises STREAM_NOT_FOUND."""
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.find(scope, name)
            if not stream.record.sealed:
                await self.finish_sealing(stream)

    async def finish_sealing(self, stream: CatalogStream) -> None:
        """Seal a stream, or finish sealing it. The caller has the stream's turn."""
        stream = await self._scaling.finish(stream)
        if not stream.record.plain and stream.record.state is not StreamStatus.SEALING:
            stream = await self._catalog.save(stream, state=StreamStatus.SEALING)
        stream = await self._transactions.end_all(stream)
        segments = self._catalog.segments
        await at_once(lambda segment: segments.seal(stream.name_of(segment)), stream.current)
        if not stream.record.plain:
            await self._catalog.save(stream, state=StreamStatus.SEALED)

    async def delete(self, scope: str, name: str) -> None:
        """Delete a sealed stream. Raises STREAM_NOT_FOUND, STREAM_NOT_SEALED."""
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is not None and entry.value.state is StreamStatus.DELETING:
                stream = CatalogStream(scope, name, *entry)
            else:
                stream = await self._catalog.find(scope, name)
                if not stream.record.sealed:
                    raise ControllerRefusal(ControllerProblem.STREAM_NOT_SEALED, str(stream))
                stream = await self._catalog.save(stream, state=StreamStatus.DELETING)
            await self.finish_deletion(stream)
            await self._catalog.end_turns(scope, name)

    async def finish_deletion(self, stream: CatalogStream) -> None:
        """Delete all segments and records of a sealed stream. The caller has the stream's turn."""
        await self._transactions.forget(stream)
        segments = self._catalog.segments
        await at_once(lambda segment: segments.delete_sealed(stream.name_of(segment)), stream.record.segments)
        if is_stream(stream.name):
            numbers, mark = self._catalog.numbers, MARK_PREFIX + stream.name
            await segments.delete(await numbers.first_segment(stream.scope, mark))
            if await numbers.get(stream.scope, mark) is not None:
                await numbers.retire(stream.scope, mark)
        await self._catalog.table.discard_all(acknowledged_of(stream.scope, stream.name))
        await self._catalog.table.discard(cuts_in(stream.scope).key(stream.name))
        await self._catalog.table.discard_all(writers_of(stream.scope, stream.name))
        await self._catalog.table.discard(watermarks_in(stream.scope).key(stream.name))
        await self._catalog.numbers.retire(stream.scope, stream.name, stream.record)
        await self._catalog.table.remove(self._catalog.key(stream.scope, stream.name), stream.version)

    async def _check_cut(self, stream: CatalogStream, cut: Mapping[int, int]) -> None:
        if not stream.is_cut(cut):
            raise ControllerRefusal(
                ControllerProblem.INVALID_CUT, f"segments {sorted(cut)} do not share all keys of {stream}"
            )
        for segment, offset in cut.items():
            info = await self._catalog.segments.info(stream.name_of(stream.segment(segment)))
            if info is not None and offset > info.length:
                reason = f"segment {segment} of {stream} has {info.length} bytes, so not offset {offset}"
                raise ControllerRefusal(ControllerProblem.INVALID_CUT, reason)

    def _count(self, config: Configuration) -> int:
        """Return the number of segments that a stream gets. Raises INVALID_CONFIG."""
        if not 1 <= config.segments <= MAX_NEW_SEGMENTS:
            raise ControllerRefusal(
                ControllerProblem.INVALID_CONFIG, f"minNumSegments is 1 to {MAX_NEW_SEGMENTS}, not {config.segments}"
            )
        if config.segments > 1 and self._mode is SegmentsMode.REFUSE:
            raise ControllerRefusal(ControllerProblem.INVALID_CONFIG, "this gateway's streams have one segment each")
        return 1 if self._mode is SegmentsMode.SINGLE else config.segments


def _warn_of_what_is_not_done(stream: CatalogStream, mode: SegmentsMode) -> None:
    """Log policies that are stored but not enforced, so that operators do not rely on them."""
    if stream.record.config.scale_type is not ScaleType.FIXED and mode is not SegmentsMode.SEPARATE:
        log.warning("not_enforced", stream=str(stream), policies=["automatic scaling"])
