"""Watermarks: the times that writers note, put together for the readers of a stream.

A writer notes a time and its position: all events that it writes from there on are not older. At each turn the
controller writes a watermark into the stream `_MARK<stream>`, from which readers derive the time window of their own
position: the lowest and the highest time that writers noted, and a cut that is at or after all their positions. It does
so when every active writer has noted a time above the last watermark's. A writer is active if its time is above that of
the *window*, the watermark two before the last, or if it noted it within the stream's aggregation timeout. In a turn
without a new watermark the window moves on, so a writer that falls silent holds the others up for a few turns, and is
then forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from penstock.core.clock import Clock
from penstock.core.permissions import APPEND
from penstock.model.failures import OperationFailed
from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Conflict, Prefix, VersionedValue
from penstock_pravega.codec import join_events
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream, watermarks_in, writers_of
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import WINDOW, Watermarks, WriterMark
from penstock_pravega.controller.controller.topology import CutOrder, Segment, compare, greatest
from penstock_pravega.segment.names import MARK_PREFIX

__all__ = ["WriterTimes"]

MOST_WRITERS: Final = 10_000
"""Most writers of a stream whose times are remembered at once."""
_VERSION: Final = bytes((0, 0, 1, 0))
"""The head of a structure in the format of Pravega's clients: format 0, one revision, revision 0. A length follows."""
_LENGTH: Final = struct.Struct(">i")
_TIMES: Final = struct.Struct(">qq")
_SEGMENT: Final = struct.Struct(">qdd")
_OFFSET: Final = struct.Struct(">q")

log = structlog.get_logger()


class WriterTimes:
    """The times that writers note, and the duty that makes watermarks of them."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._clock = clock

    async def note(self, scope: str, name: str, writer: str, time: int, cut: Mapping[int, int]) -> None:
        """Remember a writer's time, and its position as offsets by segments' ids.

        Raises STREAM_NOT_FOUND, INVALID_TIME and INVALID_CUT for a time or a position before the writer's last one,
        INVALID_CUT also for segments that the stream never had, TOO_MANY_WRITERS.
        """
        self._catalog.segments.require(scope, name, APPEND)
        stream = await self._catalog.find(scope, name)
        segments = stream.record.segments
        if not cut or not {segment.id for segment in segments} >= cut.keys():
            raise ControllerRefusal(ControllerProblem.INVALID_CUT, f"of {stream}: {sorted(cut)}")
        key = writers_of(scope, name).key(writer)
        while True:
            entry = await self._table.get(key)
            if entry is None:
                await self._require_room(stream)
            if entry is not None and time < entry.value.time:
                raise ControllerRefusal(ControllerProblem.INVALID_TIME, f"{time}, after {entry.value.time}")
            if entry is not None and compare(segments, cut, entry.value.cut) is not CutOrder.AFTER:
                raise ControllerRefusal(ControllerProblem.INVALID_CUT, f"of {stream}: before the last of {writer!r}")
            with suppress(Conflict):
                mark = WriterMark(time, dict(cut), self._clock())
                await self._table.put(key, mark, NOT_EXISTS if entry is None else entry.version)
                return

    async def _require_room(self, stream: CatalogStream) -> None:
        """Raise TOO_MANY_WRITERS if no further writer can be remembered."""
        writers, more = await self._table.page(writers_of(stream.scope, stream.name), count=MOST_WRITERS)
        if more or len(writers) == MOST_WRITERS:
            raise ControllerRefusal(ControllerProblem.TOO_MANY_WRITERS, f"{MOST_WRITERS} of {stream}")

    async def remove(self, scope: str, name: str, writer: str) -> None:
        """Wait no longer for a writer; its last time still counts. Raises STREAM_NOT_FOUND, WRITER_NOT_FOUND."""
        self._catalog.segments.require(scope, name, APPEND)
        stream = await self._catalog.find(scope, name)
        key = writers_of(scope, name).key(writer)
        if await self._table.change(key, lambda mark: msgspec.structs.replace(mark, closed=True)) is None:
            raise ControllerRefusal(ControllerProblem.WRITER_NOT_FOUND, f"{writer!r} of {stream}")

    async def enforce(self) -> None:
        """Take one turn for all streams whose writers note times. Failures are logged; the next turn tries again."""
        paths = dict.fromkeys(
            [path.rpartition("/")[0] async for path, _ in self._table.each(Prefix("writer/", WriterMark))]
        )
        for path in paths:
            scope, name = path.split("/")
            try:
                await self._turn(scope, name)
            except OperationFailed as error:
                log.warning("watermark_failed", stream=path, error=str(error))

    async def _turn(self, scope: str, name: str) -> None:
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.look_up(scope, name)
            if stream is None:
                await self._table.discard_all(writers_of(scope, name))
                await self._table.discard(watermarks_in(scope).key(name))
                return
            entry = await self._table.get(watermarks_in(scope).key(name))
            last = Watermarks() if entry is None else entry.value
            active: list[WriterMark] = []
            async for writer, mark in self._table.each(writers_of(scope, name)):
                if self._is_active(stream, last, mark):
                    active.append(mark)
                else:
                    await self._table.discard(writers_of(scope, name).key(writer))
            await self._finish(stream, entry, last, active)

    def _is_active(self, stream: CatalogStream, last: Watermarks, mark: WriterMark) -> bool:
        if not {segment.id for segment in stream.record.segments} >= mark.cut.keys():
            return False  # of a deleted stream of this name
        if mark.closed:
            return mark.time > last.newest
        patience = stream.record.config.timestamp_aggregation_timeout
        return last.window is None or mark.time > last.window or self._clock() - mark.noted_at < patience

    async def _finish(
        self,
        stream: CatalogStream,
        entry: VersionedValue[Watermarks] | None,
        last: Watermarks,
        active: list[WriterMark],
    ) -> None:
        """Write a watermark if all active writers are beyond the last one, and move the window."""
        if active and all(mark.time > last.newest for mark in active):
            known = {segment.id for segment in stream.record.segments}
            before = [last.cut] if known >= last.cut.keys() and last.cut else []
            cut = greatest(stream.record.segments, [*(mark.cut for mark in active), *before])
            lowest, highest = min(mark.time for mark in active), max(mark.time for mark in active)
            data = _spell(lowest, highest, [(stream.segment(segment_id), offset) for segment_id, offset in cut.items()])
            marks = await self._catalog.find(stream.scope, MARK_PREFIX + stream.name)
            await self._catalog.segments.append(marks.name_of(marks.current[0]), join_events([data]))
            now = Watermarks((*last.times, lowest)[-WINDOW - 1 :], cut, last.narrowed)
        else:
            now = last.without_news()
        if now != last:
            key = watermarks_in(stream.scope).key(stream.name)
            await self._table.put(key, now, NOT_EXISTS if entry is None else entry.version)


def _spell(lowest: int, highest: int, cut: Sequence[tuple[Segment, int]]) -> bytes:
    """Return a watermark in the format of Pravega's clients."""
    offsets = (
        _structure(_SEGMENT.pack(segment.id, segment.low, segment.high)) + _OFFSET.pack(offset)
        for segment, offset in cut
    )
    return _structure(_TIMES.pack(lowest, highest) + _compact(len(cut)) + b"".join(offsets))


def _structure(content: bytes) -> bytes:
    return _VERSION + _LENGTH.pack(len(content)) + content


def _compact(count: int) -> bytes:
    """Return a number in 1, 2 or 4 bytes, of which the first bits tell how many."""
    if count < 1 << 7:
        return count.to_bytes(1, "big")
    return (count | 0x8000).to_bytes(2, "big") if count < 1 << 14 else (count | 0xC000_0000).to_bytes(4, "big")
