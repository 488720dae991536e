"""Creating, configuring, truncating, sealing and deleting streams.

Whatever takes several steps says so in the stream's record first, so that asking for the same again, or the next start
(`recovery`), finishes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from penstock.controller.catalog import Catalog, Stream
from penstock.controller.names import MARK_PREFIX, is_stream
from penstock.controller.problems import Problem, Refused
from penstock.controller.records import Configuration, RetentionType, ScaleType, StreamRecord, StreamState
from penstock.controller.scaling import Scaling
from penstock.controller.scopes import Scopes
from penstock.controller.segments import at_once
from penstock.controller.settings import SegmentsMode
from penstock.controller.topology import before, equal_ranges, initial
from penstock.controller.transactions import Transactions
from penstock.routing.permissions import MANAGE
from penstock.routing.segments import SegmentName
from penstock_codecs.table_operations import NOT_EXISTS

__all__ = ["MAX_NEW_SEGMENTS", "Streams"]

MAX_NEW_SEGMENTS: Final = 1000
"""Segments that a stream may be created with."""

log = structlog.get_logger()


class Streams:
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

        Raises INVALID_NAME, INVALID_CONFIG, SCOPE_NOT_FOUND, STREAM_EXISTS, and NOT_REPRESENTABLE where its segments'
        names would be too long.
        """
        if not is_stream(name.removeprefix("_")):
            raise Refused(Problem.INVALID_NAME, repr(name))
        self._catalog.segments.require(scope, name, MANAGE)
        catalog, segments = self._catalog, initial(self._count(config))
        async with catalog.turn(scope):
            await self._scopes.require(scope)
            async with catalog.turn(scope, name):
                if await catalog.look_up(scope, name) is not None:
                    raise Refused(Problem.STREAM_EXISTS, f"{scope}/{name}")
                catalog.segments.check(SegmentName(scope, name, one.number) for one in segments)
                left = await self._what_is_left(scope, name)
                record = StreamRecord(StreamState.CREATING, config, segments)
                version = NOT_EXISTS if left is None else left.version
                entry = await catalog.table.put(catalog.key(scope, name), record, version)
                stream = Stream(scope, name, *entry)
                if left is not None:
                    extra = left.record.segments[len(segments) :]
                    await at_once(lambda segment: catalog.segments.delete(stream.name_of(segment)), extra)
                await self.finish_creation(stream)
        _warn_of_what_is_not_done(stream)

    async def finish_creation(self, stream: Stream) -> None:
        """Make what the record says. It is the caller's turn to change the stream."""
        segments, age = self._catalog.segments, stream.record.config.age_seconds
        await at_once(lambda segment: segments.create(stream.name_of(segment), age), stream.record.segments)
        await self._catalog.save(stream, state=StreamState.OPEN)

    async def _what_is_left(self, scope: str, name: str) -> Stream | None:
        """The record of a stream that is not there: being created, or deleted by clients of another protocol."""
        entry = await self._catalog.table.get(self._catalog.key(scope, name))
        if entry is None or entry.value.state is not StreamState.DELETING:
            return None if entry is None else Stream(scope, name, *entry)
        await self.finish_deletion(Stream(scope, name, *entry))
        return None

    async def update(self, scope: str, name: str, config: Configuration) -> None:
        """Configure a stream anew. Raises INVALID_CONFIG, STREAM_NOT_FOUND, STREAM_SEALED."""
        count = self._count(config)
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self._scaling.finish(await self._catalog.find(scope, name))
            if not stream.record.open:
                raise Refused(Problem.STREAM_SEALED, str(stream))
            stream = await self._catalog.save(stream, config=config)
            segments, age = self._catalog.segments, config.age_seconds
            await at_once(lambda one: segments.keep_for(stream.name_of(one), age), stream.record.segments)
            if count > len(stream.current):
                everything = [segment.id for segment in stream.current]
                await self._scaling.replace(stream, everything, equal_ranges(count))
        _warn_of_what_is_not_done(stream)

    async def truncate(self, scope: str, name: str, cut: Mapping[int, int]) -> None:
        """Remove what lies before a cut, given as offsets by segments' ids. Raises STREAM_NOT_FOUND, INVALID_CUT."""
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
                raise Refused(Problem.INVALID_CUT, f"{stream} is truncated beyond it already")
            head = {segment: max(offset, old.get(segment, 0)) for segment, offset in cut.items()}
            await self.finish_truncation(await self._catalog.save(stream, head=head, truncating=True))

    async def finish_truncation(self, stream: Stream) -> Stream:
        """Remove what lies before the stream's head. It is the caller's turn to change the stream."""
        head, segments = stream.record.head or {}, self._catalog.segments
        await at_once(
            lambda one: segments.truncate(stream.name_of(stream.segment(one[0])), one[1]), sorted(head.items())
        )
        gone = before(stream.record.segments, head)
        await at_once(lambda segment: segments.delete_sealed(stream.name_of(segment)), gone)
        return await self._catalog.save(stream, truncating=False)

    async def seal(self, scope: str, name: str) -> None:
        """Nothing can be appended any more; open transactions are aborted. Raises STREAM_NOT_FOUND."""
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.find(scope, name)
            if not stream.record.sealed:
                await self.finish_sealing(stream)

    async def finish_sealing(self, stream: Stream) -> None:
        """Seal a stream, or go on with it. It is the caller's turn to change the stream."""
        stream = await self._scaling.finish(stream)
        if not stream.record.plain and stream.record.state is not StreamState.SEALING:
            stream = await self._catalog.save(stream, state=StreamState.SEALING)
        stream = await self._transactions.end_all(stream)
        segments = self._catalog.segments
        await at_once(lambda segment: segments.seal(stream.name_of(segment)), stream.current)
        if not stream.record.plain:
            await self._catalog.save(stream, state=StreamState.SEALED)

    async def delete(self, scope: str, name: str) -> None:
        """Delete a sealed stream. Raises STREAM_NOT_FOUND, STREAM_NOT_SEALED."""
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is not None and entry.value.state is StreamState.DELETING:
                await self.finish_deletion(Stream(scope, name, *entry))
                return
            stream = await self._catalog.find(scope, name)
            if not stream.record.sealed:
                raise Refused(Problem.STREAM_NOT_SEALED, str(stream))
            await self.finish_deletion(await self._catalog.save(stream, state=StreamState.DELETING))

    async def finish_deletion(self, stream: Stream) -> None:
        """Delete all that a sealed stream is. It is the caller's turn to change the stream."""
        await self._transactions.forget(stream)
        segments = self._catalog.segments
        await at_once(lambda segment: segments.delete_sealed(stream.name_of(segment)), stream.record.segments)
        if is_stream(stream.name):
            await segments.delete(SegmentName(stream.scope, MARK_PREFIX + stream.name))
        await self._catalog.table.remove(self._catalog.key(stream.scope, stream.name), stream.version)

    async def _check_cut(self, stream: Stream, cut: Mapping[int, int]) -> None:
        if not stream.is_cut(list(cut)):
            raise Refused(Problem.INVALID_CUT, f"segments {sorted(cut)} do not share all keys of {stream}")
        for segment, offset in cut.items():
            info = await self._catalog.segments.info(stream.name_of(stream.segment(segment)))
            if info is not None and not 0 <= offset <= info.length:
                why = f"segment {segment} of {stream} has {info.length} bytes, so not offset {offset}"
                raise Refused(Problem.INVALID_CUT, why)

    def _count(self, config: Configuration) -> int:
        """How many segments a stream is to have. Raises INVALID_CONFIG."""
        if not 1 <= config.segments <= MAX_NEW_SEGMENTS:
            raise Refused(Problem.INVALID_CONFIG, f"minNumSegments is 1 to {MAX_NEW_SEGMENTS}, not {config.segments}")
        if config.segments > 1 and self._mode is SegmentsMode.REFUSE:
            raise Refused(Problem.INVALID_CONFIG, "this gateway's streams have one segment each")
        return 1 if self._mode is SegmentsMode.SINGLE else config.segments


def _warn_of_what_is_not_done(stream: Stream) -> None:
    """One line, so that nobody believes that something is enforced which is only remembered."""
    config = stream.record.config
    ignored = []
    if config.retention_type is RetentionType.SIZE:
        ignored.append("retention by size")
    if config.scale_type is not ScaleType.FIXED:
        ignored.append("automatic scaling")
    if ignored:
        log.warning("not_enforced", stream=str(stream), policies=ignored)
