"""Finding streams: those the controller has a record of, and those that other protocols made.

A stream of one segment that no client of the controller created is one too: its segment is `0.#epoch.0`. And of a
stream that always had one segment it is the segment that says whether it is there and sealed, not the record. So what
clients of other protocols do to such a stream is seen here at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import trio

from penstock.controller.names import MARK_PREFIX, READER_GROUP_PREFIX, is_stream
from penstock.controller.problems import Problem, Refused
from penstock.controller.records import (
    Configuration,
    ReaderGroup,
    RetentionType,
    StreamRecord,
    StreamState,
)
from penstock.controller.segments import SegmentStore
from penstock.controller.table import ControllerTable, Key, Prefix
from penstock.controller.topology import Segment, initial, is_cut, of_epoch
from penstock.routing.permissions import ANY
from penstock.routing.segments import SegmentName
from penstock_codecs.table_operations import NOT_EXISTS

__all__ = ["Catalog", "Stream", "groups_in", "streams_in"]

_UNRECORDED: Final = StreamRecord(StreamState.OPEN, Configuration(), initial(1))


def streams_in(scope: str) -> Prefix[StreamRecord]:
    """Where the records of a scope's streams are."""
    return Prefix(f"stream/{scope}/", StreamRecord)


def groups_in(scope: str) -> Prefix[ReaderGroup]:
    """Where a scope's reader groups are."""
    return Prefix(f"group/{scope}/", ReaderGroup)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as it was when it was looked up. `version`: of its record; NOT_EXISTS where it has none."""

    scope: str
    name: str
    record: StreamRecord
    version: int

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @property
    def recorded(self) -> bool:
        """Whether the controller has a record of it."""
        return self.version != NOT_EXISTS

    @property
    def current(self) -> list[Segment]:
        """The segments of its epoch, in the order of their keys."""
        return of_epoch(self.record.segments, self.record.epoch)

    def segment(self, segment_id: int) -> Segment:
        """The segment of this id. Raises SEGMENT_NOT_FOUND."""
        found = next((segment for segment in self.record.segments if segment.id == segment_id), None)
        if found is None:
            raise Refused(Problem.SEGMENT_NOT_FOUND, f"{segment_id} of {self}")
        return found

    def is_cut(self, ids: Sequence[int]) -> bool:
        """Whether the segments of these ids part the stream in two."""
        segments = [segment for segment in self.record.segments if segment.id in ids]
        return len(segments) == len(ids) and is_cut(segments)

    def name_of(self, segment: Segment, suffix: str = "") -> SegmentName:
        """The name of one of its segments."""
        return SegmentName(self.scope, self.name, segment.number, segment.epoch, suffix)


class Catalog:
    """The streams, and whose turn it is to change one."""

    def __init__(self, table: ControllerTable, segments: SegmentStore) -> None:
        self.table = table
        self.segments = segments
        self._turns: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def turn(self, scope: str, stream: str = "") -> trio.Lock:
        """Held by who changes this stream, or a scope; a scope's before a stream's."""
        return self._turns.setdefault(f"{scope}/{stream}", trio.Lock())

    def key(self, scope: str, name: str) -> Key[StreamRecord]:
        """Where a stream's record is."""
        return streams_in(scope).key(name)

    async def look_up(self, scope: str, name: str) -> Stream | None:
        """The stream; None where there is none."""
        segment = SegmentName(scope, name)
        self.segments.require(scope, name, ANY)
        entry = await self.table.get(self.key(scope, name))
        if entry is not None and not (entry.value.exists and entry.value.plain):
            return Stream(scope, name, *entry) if entry.value.exists else None
        info = await self.segments.info(segment)
        if info is None:
            if not await self._is_due(scope, name):
                return None
            await self.segments.create(segment)
        record, version = (_UNRECORDED, NOT_EXISTS) if entry is None else entry
        state = StreamState.SEALED if info is not None and info.sealed else StreamState.OPEN
        return Stream(scope, name, msgspec.structs.replace(record, state=state), version)

    async def find(self, scope: str, name: str) -> Stream:
        """The stream. Raises STREAM_NOT_FOUND."""
        stream = await self.look_up(scope, name)
        if stream is None:
            raise Refused(Problem.STREAM_NOT_FOUND, f"{scope}/{name}")
        return stream

    async def configuration(self, stream: Stream) -> Configuration:
        """What is configured; of a stream without a record what its segment does."""
        if stream.recorded:
            return stream.record.config
        age = await self.segments.kept_for(stream.name_of(stream.current[0]))
        return (
            Configuration() if age is None else Configuration(retention_type=RetentionType.TIME, retention=age * 1000)
        )

    async def save(self, stream: Stream, **changes: object) -> Stream:
        """Change the stream's record, which is made where there is none."""
        config = {} if stream.recorded else {"config": await self.configuration(stream)}
        record = msgspec.structs.replace(stream.record, **(config | changes))
        _, version = await self.table.put(self.key(stream.scope, stream.name), record, stream.version)
        return replace(stream, record=record, version=version)

    async def _is_due(self, scope: str, name: str) -> bool:
        """Whether it is an internal stream that belongs to something that is there."""
        if name.startswith(MARK_PREFIX):
            marked = name.removeprefix(MARK_PREFIX)
            return is_stream(marked) and await self.look_up(scope, marked) is not None
        if name.startswith(READER_GROUP_PREFIX):
            group = groups_in(scope).key(name.removeprefix(READER_GROUP_PREFIX))
            return await self.table.get(group) is not None
        return False
