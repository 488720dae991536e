"""Finding streams: those with a record of the controller, and those that other protocols created.

A stream of one segment that no client of the controller created counts as well. And for a stream that always had one
segment the segment, not the record, decides whether the stream exists and is sealed. So changes to such a stream by
clients of other protocols are seen here at once; if they deleted and recreated it, it is another stream, whose segment
has another number (`numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.backends.turns import StreamTurns
from penstock.core.clock import Clock
from penstock.model.byte_operations import ByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.model.table_operations import NOT_EXISTS
from penstock.tables.struct_table import Key, Prefix, StructTable
from penstock_pravega.controller.controller.names import READER_GROUP_PREFIX, is_internal, is_stream
from penstock_pravega.controller.controller.numbers import FirstSegment, FirstSegments
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import (
    AcknowledgedCut,
    Configuration,
    ReaderGroup,
    RecordedCuts,
    RetentionType,
    StreamRecord,
    StreamStatus,
    Watermarks,
    WriterMark,
)
from penstock_pravega.controller.controller.segments import SegmentStore
from penstock_pravega.controller.controller.topology import Segment, initial, is_cut, of_epoch, replaced
from penstock_pravega.segment.names import MARK_PREFIX, SegmentName

__all__ = [
    "Catalog",
    "CatalogStream",
    "acknowledged_of",
    "cuts_in",
    "groups_in",
    "streams_in",
    "watermarks_in",
    "writers_of",
]

_NAMES_TRIED: Final = 20
"""Attempts to create an internal stream, at a back that never forgets names."""


def streams_in(scope: str) -> Prefix[StreamRecord]:
    """Return the prefix of the records of a scope's streams."""
    return Prefix(f"stream/{scope}/", StreamRecord)


def groups_in(scope: str) -> Prefix[ReaderGroup]:
    """Return the prefix of a scope's reader groups."""
    return Prefix(f"group/{scope}/", ReaderGroup)


def cuts_in(scope: str) -> Prefix[RecordedCuts]:
    """Return the prefix of the recorded cuts of a scope's streams."""
    return Prefix(f"cuts/{scope}/", RecordedCuts)


def acknowledged_of(scope: str, stream: str) -> Prefix[AcknowledgedCut]:
    """Return the prefix of the cuts that subscribers of a stream have acknowledged."""
    return Prefix(f"acknowledged/{scope}/{stream}/", AcknowledgedCut)


def writers_of(scope: str, stream: str) -> Prefix[WriterMark]:
    """Return the prefix of the times that a stream's writers have noted."""
    return Prefix(f"writer/{scope}/{stream}/", WriterMark)


def watermarks_in(scope: str) -> Prefix[Watermarks]:
    """Return the prefix of the last watermarks of a scope's streams."""
    return Prefix(f"watermark/{scope}/", Watermarks)


class CatalogStream(msgspec.Struct, frozen=True):
    """A stream as it was when it was looked up.

    `version`: of the entry under its name in the controller's table, NOT_EXISTS if there is none. `recorded`: whether
    that entry is a record of this stream.
    """

    scope: str
    name: str
    record: StreamRecord
    version: int
    recorded: bool = True

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @property
    def current(self) -> list[Segment]:
        """The segments of its current epoch, in the order of their keys."""
        return of_epoch(self.record.segments, self.record.epoch)

    def segment(self, segment_id: int) -> Segment:
        """Return the segment with this id. Raises SEGMENT_NOT_FOUND."""
        match = next((segment for segment in self.record.segments if segment.id == segment_id), None)
        if match is None:
            raise ControllerRefusal(ControllerProblem.SEGMENT_NOT_FOUND, f"{segment_id} of {self}")
        return match

    def is_cut(self, cut: Mapping[int, int]) -> bool:
        """Return whether offsets, by segments' ids, divide the stream in two; see `topology.is_cut`."""
        return is_cut(self.record.segments, cut)

    @property
    def first(self) -> int:
        """The id of the segment that has the stream's own name in the back."""
        return self.record.segments[self.record.named].id

    def name_of(self, segment: Segment, suffix: str = "") -> SegmentName:
        """Return the name in the back of one of its segments, or with `suffix` of a transaction's segment beside it."""
        return FirstSegment(self.first).stored(
            SegmentName(self.scope, self.name, segment.number, segment.epoch, suffix)
        )


class Catalog:
    """The streams, and the turns at changing them."""

    def __init__(self, table: StructTable, segments: SegmentStore, turns: StreamTurns, clock: Clock) -> None:
        self.table = table
        self.segments = segments
        self.clock = clock
        self.numbers = FirstSegments(table)
        self._turns = turns

    def turn(self, scope: str, stream: str = "") -> AbstractAsyncContextManager[None]:
        """Return the turn to have while changing this stream, or a scope; take a scope's before a stream's."""
        return self._turns.turn(StreamRef(scope, stream))

    async def end_turns(self, scope: str, stream: str = "") -> None:
        """Keep nothing of the turns at a stream, or a scope, that was deleted. The caller has the last one."""
        await self._turns.forget(StreamRef(scope, stream))

    def key(self, scope: str, name: str) -> Key[StreamRecord]:
        """Return the key of a stream's record."""
        return streams_in(scope).key(name)

    async def look_up(self, scope: str, name: str) -> CatalogStream | None:
        """Return the stream, or None if it does not exist."""
        if not self.segments.routed(scope, name):
            return None
        entry = await self.table.get(self.key(scope, name))
        if entry is not None and not (entry.value.exists and entry.value.plain):
            return await self._with_first(CatalogStream(scope, name, *entry)) if entry.value.exists else None
        info = await self.segments.info(await self.numbers.first_segment(scope, name))
        if info is None:
            if not await self._is_due(scope, name):
                return None
            info = await self._make(scope, name)
        number = await self.numbers.of(scope, name, info.incarnation if info else "", entry.value if entry else None)
        state = StreamStatus.SEALED if info is not None and info.sealed else StreamStatus.OPEN
        if entry is not None and entry.value.segments[0].id == number:
            return CatalogStream(scope, name, msgspec.structs.replace(entry.value, state=state), entry.version)
        record = StreamRecord(state, Configuration(), initial(1, number))
        return CatalogStream(scope, name, record, NOT_EXISTS if entry is None else entry.version, recorded=False)

    async def _make(self, scope: str, name: str) -> ByteStreamInfo | None:
        """Create an internal stream whose owner exists. If it existed before, the new one is another stream.

        A real segment store never forgets the name of a segment that was deleted.
        """
        for _ in range(_NAMES_TRIED):
            await self.numbers.advance(scope, name)
            try:
                await self.segments.create(segment := await self.numbers.first_segment(scope, name))
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STREAM_DELETION_PENDING:
                    raise
                await self.numbers.retire(scope, name)
            else:
                return await self.segments.info(segment)
        raise fail(FailureCode.STREAM_DELETION_PENDING, f"{scope}/{name} was deleted too often")

    async def _with_first(self, stream: CatalogStream) -> CatalogStream:
        """Return a stream of several segments, repaired if clients of another protocol deleted and recreated its first
        segment: then a new segment with the same keys follows it, and reading begins there."""
        record = stream.record
        segment = record.segments[record.named]
        if segment.until is not None or not record.open or record.scaling or is_internal(stream.name):
            return stream
        info = await self.segments.info(SegmentName(stream.scope, stream.name))
        if info is None or not info.incarnation:
            return stream
        first = await self.numbers.get(stream.scope, stream.name)
        if first is not None and first.segment == segment.id and not first.fits(info.incarnation):
            segments = replaced(record.segments, record.epoch, [segment.id], [segment.keys])
            assert segments is not None, "it has its own keys"
            head = dict(record.head or dict.fromkeys(record.first(), 0))
            head.pop(segment.id)
            segment = segments[-1]
            changes = {"segments": segments, "named": len(segments) - 1, "epoch": segment.epoch}
            stream = await self.save(stream, **changes, head={**head, segment.id: 0})
        current = FirstSegment(segment.id, info.incarnation)
        if first != current:
            await self.numbers.set(stream.scope, stream.name, current)
        return stream

    async def begin(self, stream: CatalogStream) -> None:
        """Remember which stream of the back is the first segment of a new stream."""
        info = await self.segments.info(stream.name_of(stream.record.segments[0]))
        await self.numbers.set(stream.scope, stream.name, FirstSegment(stream.first, info.incarnation if info else ""))

    async def find(self, scope: str, name: str) -> CatalogStream:
        """Return the stream. Raises STREAM_NOT_FOUND."""
        stream = await self.look_up(scope, name)
        if stream is None:
            raise ControllerRefusal(ControllerProblem.STREAM_NOT_FOUND, f"{scope}/{name}")
        return stream

    async def configuration(self, stream: CatalogStream) -> Configuration:
        """Return the stream's configuration; for a stream without a record, that of its segment."""
        if stream.recorded:
            return stream.record.config
        age = await self.segments.kept_for(stream.name_of(stream.current[0]))
        return (
            Configuration() if age is None else Configuration(retention_type=RetentionType.TIME, retention=age * 1000)
        )

    async def begun(self, stream: CatalogStream) -> list[int]:
        """Return when each epoch of the stream began, in ms. For an epoch without a record of that, such as the first
        one of a stream that a client of another protocol created, it is when one of its segments was created; 0 if that
        is unknown too."""
        times: list[int] = []
        for epoch in range(stream.record.epoch + 1):
            at = stream.record.began.get(epoch)
            if at is None:
                first = next(segment for segment in stream.record.segments if segment.epoch == epoch)
                at = await self.segments.created_at(stream.name_of(first)) or (times[-1] if times else 0)
            times.append(at)
        return times

    async def save(self, stream: CatalogStream, **changes: object) -> CatalogStream:
        """Change the stream's record, or create it if there is none. Segments of another epoch begin now."""
        config = {} if stream.recorded else {"config": await self.configuration(stream)}
        record = msgspec.structs.replace(stream.record, **(config | changes))
        if (newest := record.segments[-1].epoch) > stream.record.segments[-1].epoch:
            record = msgspec.structs.replace(record, began={**record.began, newest: self.clock()})
        _, version = await self.table.put(self.key(stream.scope, stream.name), record, stream.version)
        return replace(stream, record=record, version=version, recorded=True)

    async def _is_due(self, scope: str, name: str) -> bool:
        """Return whether it is an internal stream whose owner, a stream or a reader group, exists."""
        if name.startswith(MARK_PREFIX):
            marked = name.removeprefix(MARK_PREFIX)
            return is_stream(marked) and await self.look_up(scope, marked) is not None
        if name.startswith(READER_GROUP_PREFIX):
            group = groups_in(scope).key(name.removeprefix(READER_GROUP_PREFIX))
            return await self.table.get(group) is not None
        return False
