"""Retention by size, by time and by consumption: the controller truncates streams at cuts that it recorded.

At each turn of its duty the controller records the tail of every stream with a retention policy. A policy has a
minimum that is always kept and a maximum, and of the recorded cuts two count: the newest that keeps the minimum, and
the oldest that keeps at most the maximum. Subscribers are reader groups that acknowledge the cuts that they have
read; their *bound* is the least position among these. A stream is truncated

* without subscribers at the newest cut that keeps the minimum;
* with subscribers at their bound, if that keeps the minimum and at most the maximum; if it keeps less, at a recorded
  cut before it, and if more, at the oldest cut that keeps at most the maximum.

Without subscribers retention by time is left to the streams themselves, which is exact (`StreamRecord.age_seconds`),
unless their back has no retention by age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from penstock.core.clock import Clock
from penstock.core.permissions import READ
from penstock.model.byte_operations import ByteStreamInfo
from penstock.model.failures import OperationFailed
from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Conflict, Prefix
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream, acknowledged_of, cuts_in
from penstock_pravega.controller.controller.groups import Groups
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import (
    AcknowledgedCut,
    Configuration,
    RecordedCut,
    RecordedCuts,
    RetentionType,
    StreamRecord,
    StreamStatus,
)
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.streams import StreamOperations
from penstock_pravega.controller.controller.topology import CutOrder, Segments, between, compare, least

__all__ = ["StreamRetention"]

MOST_CUTS: Final = 500
"""Most cuts recorded of a stream; beyond that, every second one is forgotten."""
MOST_OFFSETS: Final = 10_000
"""Most offsets in all recorded cuts of a stream: its record is at most 1 MiB."""

log = structlog.get_logger()

Cut = Mapping[int, int]
"""A stream cut: offsets by segments' ids."""
_Kept = tuple[int, Cut]
"""A recorded cut, and how much is kept if the stream is truncated there: ms or bytes."""


class StreamRetention:
    """Acknowledgements of subscribers, and the duty that truncates streams."""

    def __init__(self, catalog: Catalog, streams: StreamOperations, groups: Groups, clock: Clock) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._streams = streams
        self._groups = groups
        self._clock = clock

    async def acknowledge(
        self, subscriber: str, group_id: str, generation: int, scope: str, stream: str, cut: Cut
    ) -> None:
        """Record the cut up to which a subscriber has read a stream.

        Raises STREAM_NOT_FOUND, GROUP_NOT_FOUND, GENERATION_MISMATCH, INVALID_CUT, PERMISSION_DENIED.
        """
        self._catalog.segments.require(scope, stream, READ)
        catalog_stream = await self._catalog.find(scope, stream)
        await self._groups.require_subscriber(subscriber, group_id, generation, scope, stream)
        if not catalog_stream.is_cut(cut):
            raise ControllerRefusal(ControllerProblem.INVALID_CUT, f"of {catalog_stream}")
        key = acknowledged_of(scope, stream).key(subscriber)
        while True:
            entry = await self._table.get(key)
            with suppress(Conflict):
                value = AcknowledgedCut(group_id, dict(cut))
                await self._table.put(key, value, NOT_EXISTS if entry is None else entry.version)
                break
        if not catalog_stream.record.consumed and catalog_stream.record.config.retention_type is RetentionType.TIME:
            async with self._catalog.turn(scope, stream):
                await self._note_consumption(await self._catalog.find(scope, stream), consumed=True)

    async def enforce(self) -> None:
        """Record the tails of all streams with a retention policy, and truncate them. Failures are logged; the next
        turn tries again."""
        held = [
            path
            async for path, record in self._table.each(Prefix("stream/", StreamRecord))
            if record.state in (StreamStatus.OPEN, StreamStatus.SEALED)
            and record.config.retention_type is not RetentionType.NONE
        ]
        for path in held:
            scope, name = path.split("/")
            try:
                await self._enforce(scope, name)
            except OperationFailed as error:
                log.warning("retention_failed", stream=path, error=str(error))

    async def _enforce(self, scope: str, name: str) -> None:
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.look_up(scope, name)
            if stream is None or not stream.recorded:  # deleted, or recreated by clients of another protocol
                return
            read = await self._acknowledged(stream)
            if stream.record.config.retention_type is RetentionType.TIME:
                stream = await self._note_consumption(stream, consumed=bool(read))
                age = await self._catalog.segments.kept_for(stream.name_of(stream.current[0]))
                if not read and age == stream.record.age_seconds:
                    return
            infos = await self._infos(stream)
            lengths = {segment: info.length for segment, info in infos.items()}
            first = stream.record.first()
            head = {segment: infos[segment].start_offset if segment in infos else 0 for segment in first}
            cuts = await self._record_tail(stream, head, lengths)
            bound = least(stream.record.segments, read)
            if read and not stream.is_cut(bound):  # the subscribers are at positions that no cut separates
                return
            target = _target(stream, cuts, bound, self._clock(), lengths)
        if target is None or compare(stream.record.segments, head, target) is CutOrder.AFTER:
            return
        with suppress(ControllerRefusal):  # the stream was deleted, or truncated further, in the meantime
            await self._streams.truncate(scope, name, target)
            log.info("stream_retained", stream=f"{scope}/{name}", cut=dict(target))

    async def _acknowledged(self, stream: CatalogStream) -> list[Cut]:
        """Return the cuts that subscribers have acknowledged, and forget those of groups that are none any more, and
        those of a deleted stream of this name."""
        prefix = acknowledged_of(stream.scope, stream.name)
        subscribers = await self._groups.ids_of_subscribers(stream.scope, stream.name)
        cuts: list[Cut] = []
        gone: list[str] = []
        async for subscriber, acknowledged in self._table.each(prefix):
            if subscribers.get(subscriber) == acknowledged.group_id and stream.is_cut(acknowledged.cut):
                cuts.append(acknowledged.cut)
            else:
                gone.append(subscriber)
        for subscriber in gone:
            await self._table.discard(prefix.key(subscriber))
        return cuts

    async def _note_consumption(self, stream: CatalogStream, *, consumed: bool) -> CatalogStream:
        """Let the segments keep their events for as long as subscribers allow. The caller has the stream's turn."""
        if not stream.recorded or stream.record.consumed == consumed:
            return stream
        segments, age = self._catalog.segments, msgspec.structs.replace(stream.record, consumed=consumed).age_seconds
        await at_once(lambda name: segments.keep_for(stream.name_of(name), age), stream.record.segments)
        return await self._catalog.save(stream, consumed=consumed)  # last, so that an interrupted change is repeated

    async def _infos(self, stream: CatalogStream) -> dict[int, ByteStreamInfo]:
        """Return the offsets of the segments that exist, by their ids."""
        infos: dict[int, ByteStreamInfo] = {}

        async def measure(segment_id: int) -> None:
            info = await self._catalog.segments.info(stream.name_of(stream.segment(segment_id)))
            if info is not None:
                infos[segment_id] = info

        record = stream.record
        tail = [segment.id for segment in stream.current]
        await at_once(measure, [segment.id for segment in between(record.segments, record.first(), tail)])
        return infos

    async def _record_tail(self, stream: CatalogStream, head: Cut, lengths: Mapping[int, int]) -> list[RecordedCut]:
        """Add the stream's tail to its recorded cuts, unless it is the newest of them, and forget what is before the
        head. Returns the cuts, oldest first."""
        key = cuts_in(stream.scope).key(stream.name)
        entry = await self._table.get(key)
        record = stream.record
        known = () if entry is None else entry.value.cuts
        tail = {segment.id: lengths.get(segment.id, 0) for segment in stream.current}
        cuts = [
            stream_cut
            for stream_cut in known
            if stream.is_cut(stream_cut.cut) and compare(record.segments, stream_cut.cut, head) is CutOrder.AFTER
        ]
        if not cuts or cuts[-1].cut != tail:
            cuts.append(RecordedCut(self._clock(), tail))
        while len(cuts) > MOST_CUTS or sum(len(cut.cut) for cut in cuts) > max(MOST_OFFSETS, len(tail)):
            cuts = cuts[::-2][::-1]  # the newest stays
        if tuple(cuts) != known:
            await self._table.put(key, RecordedCuts(tuple(cuts)), NOT_EXISTS if entry is None else entry.version)
        return cuts


def _target(
    stream: CatalogStream,
    cuts: Sequence[RecordedCut],
    bound: Cut,
    now: int,
    lengths: Mapping[int, int],
) -> Cut | None:
    """Return the cut to truncate the stream at, or None. `cuts`: oldest first; `bound`: of the subscribers, empty if
    there are none; `now`: ms since the Unix epoch."""
    segments, config = stream.record.segments, stream.record.config
    tail = [segment.id for segment in stream.current]

    def bytes_after(cut: Cut) -> int:
        rest = sum(lengths.get(segment.id, 0) for segment in between(segments, [*cut], tail))
        return rest - sum(max(offset, 0) for offset in cut.values())

    by_time = config.retention_type is RetentionType.TIME
    kept = [(now - stream_cut.at if by_time else bytes_after(stream_cut.cut), stream_cut.cut) for stream_cut in cuts]
    enough = [candidate for candidate in kept if candidate[0] >= config.retention]
    newest = enough[-1][1] if enough else None
    if not bound:
        return newest
    if by_time:
        return None if newest is None else _by_time(segments, config, kept, newest, bound)
    behind = bytes_after(bound)
    if behind < config.retention:
        return None if newest is None else _before(segments, kept, newest, bound)
    oldest = next(
        (candidate for candidate in enough if candidate[0] <= config.most_kept), enough[-1] if enough else None
    )
    return bound if behind < config.most_kept or oldest is None or oldest[0] >= behind else oldest[1]


def _by_time(segments: Segments, config: Configuration, kept: Sequence[_Kept], newest: Cut, bound: Cut) -> Cut | None:
    if compare(segments, newest, bound) is not CutOrder.AFTER:
        return _before(segments, kept, newest, bound)
    over = next((cut for age, cut in reversed(kept) if age >= config.most_kept), None)
    if over is None:
        return bound
    oldest = next((cut for age, cut in kept if config.retention <= age <= config.most_kept), newest)
    return {CutOrder.AFTER: bound, CutOrder.BEFORE: oldest, CutOrder.OVERLAPS: over}[compare(segments, bound, over)]


def _before(segments: Segments, kept: Sequence[_Kept], newest: Cut, bound: Cut) -> Cut | None:
    """Return the newest cut that is before the bound: `newest`, or else an earlier one."""
    if compare(segments, newest, bound) is CutOrder.BEFORE:
        return newest
    return next((cut for _, cut in reversed(kept) if compare(segments, cut, bound) is CutOrder.BEFORE), None)
