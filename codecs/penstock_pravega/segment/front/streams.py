"""Lookup of the streams of clients' segments.

If a controller numbers them, the first segment of a stream has another number each time that the stream is recreated
(`penstock_pravega.controller.controller.numbers`). A client with the old number must not reach the new stream: it is
told that there is no such segment. The numbers from the controller's table are cached here, and looked up again if they
do not match.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from penstock.core.back import Back
from penstock.model.byte_operations import ByteStreamInfo, GetByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.tables.struct_table import StructTable
from penstock_pravega.controller.controller.names import is_internal
from penstock_pravega.controller.controller.numbers import FirstSegment, FirstSegments
from penstock_pravega.segment.names import SegmentName, SegmentNames, has_number

__all__ = ["FrontStreams", "SegmentPlace"]

MOST_REMEMBERED: Final = 10_000
"""Streams whose first segment is remembered; about 300 bytes each."""


class SegmentPlace(NamedTuple):
    """Stream of a segment. `first` is the known first segment of the stream if this is it."""

    stream: StreamRef
    first: FirstSegment | None

    def fits(self, incarnation: str) -> bool:
        """Return whether a stream of this `ByteStreamInfo.incarnation` is the segment's."""
        return self.first is None or self.first.fits(incarnation)


class FrontStreams:
    """Streams of one front's clients. `numbered`: whether a controller numbers their segments."""

    def __init__(self, back: Back, names: SegmentNames, *, numbered: bool) -> None:
        self._back = back
        self._names = names
        self._numbers = FirstSegments(StructTable(back, "controller")) if numbered else None
        self._known: OrderedDict[tuple[str, str], FirstSegment] = OrderedDict()

    async def find(self, segment: str) -> StreamRef:
        """Return a segment's stream.

        Raises NOT_REPRESENTABLE for invalid names. If segments are numbered, also raises what `GetByteStreamInfo` does,
        and STREAM_NOT_FOUND if the stream of that name is another one by now.
        """
        if self._numbers is None:
            return self._names.to_stream(segment)
        return (await self.info(segment))[0]

    async def info(self, segment: str) -> tuple[StreamRef, ByteStreamInfo]:
        """Return a segment's stream and state. Raises as `find` and `GetByteStreamInfo`."""
        if self._numbers is None:
            stream = self._names.to_stream(segment)
            return stream, await self._back.perform(GetByteStreamInfo(stream))
        segment_info = await self._info(segment, await self._place(segment))
        if segment_info is None:
            segment_info = await self._info(segment, await self._place(segment, refresh=True))
        if segment_info is None:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"there is no segment {segment}")
        return segment_info

    async def place(self, segment: str) -> SegmentPlace:
        """Return a segment's stream as far as it is known; the stream may turn out to be another (see
        `SegmentPlace.fits`).

        Raises NOT_REPRESENTABLE, STREAM_NOT_FOUND.
        """
        place = await self._place(segment)
        if place is None:
            stream = await self.find(segment)
            place = await self._place(segment) or SegmentPlace(stream, None)
        return place

    async def to_create(self, segment: str) -> StreamRef:
        """Return the stream for a segment that is to be created."""
        if self._numbers is None:
            return self._names.to_stream(segment)
        place = await self._place(segment, refresh=True)
        return self._names.to_stream(segment) if place is None else place.stream

    async def created(self, segment: str, stream: StreamRef) -> None:
        """Note that a client, not the controller, has created a segment.

        If its stream was known, the segment is now its first one.
        """
        name = SegmentName.parse(segment, self._names.basin)
        if self._numbers is None or name.suffix or await self._numbers.get(name.scope, name.stream) is None:
            return
        if stream == self._names.to_stream(SegmentName(name.scope, name.stream)):
            info = await self._back.perform(GetByteStreamInfo(stream))
            await self._numbers.set(name.scope, name.stream, FirstSegment(name.id, info.incarnation))
            self._known.pop((name.scope, name.stream), None)

    async def _info(self, segment: str, place: SegmentPlace | None) -> tuple[StreamRef, ByteStreamInfo] | None:
        """Return the segment's stream and state; None if the stream at this place is not its own."""
        if place is None:
            return None
        try:
            info = await self._back.perform(GetByteStreamInfo(place.stream))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            return None
        if not place.fits(info.incarnation):
            return None
        if place.first is not None and not place.first.incarnation:
            name = SegmentName.parse(segment, self._names.basin)
            self._keep(name, FirstSegment(place.first.segment, info.incarnation))
        return place.stream, info

    async def _place(self, segment: str, *, refresh: bool = False) -> SegmentPlace | None:
        """Return the segment's place; None if the stream's first segment has another number by now."""
        name = SegmentName.parse(segment, self._names.basin)
        if self._numbers is None or is_internal(name.stream):  # those get a new name each time
            return SegmentPlace(self._names.to_stream(name), None)
        first = None if refresh else self._known.get((name.scope, name.stream))
        if first is None:
            first = self._keep(name, await self._numbers.get(name.scope, name.stream) or FirstSegment(0))
        if name.id == first.segment or not has_number(segment):
            stored = SegmentName(name.scope, name.stream, suffix=name.suffix)
            return SegmentPlace(self._names.to_stream(stored), None if name.suffix else first)
        return None if name.id == 0 else SegmentPlace(self._names.to_stream(name), None)

    def _keep(self, name: SegmentName, first: FirstSegment) -> FirstSegment:
        key = (name.scope, name.stream)
        self._known[key] = first
        self._known.move_to_end(key)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return first
