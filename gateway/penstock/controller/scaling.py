"""Replacing segments of a stream with others, step by step, so that an interruption at any step can be repaired.

1. The next epoch is recorded: which segments go, and which come in their place.
2. The new segments are made. Nobody is told of them yet: to clients the epoch is the old one.
3. The old segments are sealed. A writer that learns so asks who follows, and is told.
4. The next epoch is the stream's epoch.

So the events of a key are in its old segment before any are in the new one, whoever writes them. Whatever the last
step that was done is, all of them can be done again: `finish` does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from penstock.controller.catalog import Catalog, Stream
from penstock.controller.problems import Problem, Refused
from penstock.controller.segments import at_once
from penstock.controller.settings import SegmentsMode
from penstock.controller.topology import KeyRange, Segment, of_epoch, replaced
from penstock.routing.permissions import MANAGE

__all__ = ["MAX_SEGMENTS", "Scaling"]

MAX_SEGMENTS: Final = 10_000
"""Segments that a stream may have had in its life; its record holds them all, and is at most 1 MiB."""


class Scaling:
    """Scaling streams. `mode`: whether they may have several segments."""

    def __init__(self, catalog: Catalog, mode: SegmentsMode) -> None:
        self._catalog = catalog
        self._mode = mode

    async def scale(
        self, scope: str, name: str, old: Sequence[int], new: Sequence[KeyRange]
    ) -> tuple[int, list[Segment]]:
        """Replace the segments with the ids `old` by segments for the ranges `new`.

        Gives the epoch that was left behind, and the new segments. Asking for the same again once it is done gives
        the same. Raises STREAM_NOT_FOUND, STREAM_SEALED, NOT_CURRENT, SCALE_REFUSED.
        """
        self._catalog.segments.require(scope, name, MANAGE)
        async with self._catalog.turn(scope, name):
            stream = await self.finish(await self._catalog.find(scope, name))
            done = _already(stream, old, new)
            if done is None:
                self._check(stream, old, new)
                done = stream.record.epoch + 1
                stream = await self.replace(stream, old, new)
            return done - 1, [segment for segment in stream.record.segments if segment.epoch == done]

    async def is_done(self, scope: str, name: str, epoch: int) -> bool:
        """Whether the stream has left that epoch behind. Raises STREAM_NOT_FOUND, SCALE_REFUSED for one to come."""
        async with self._catalog.turn(scope, name):
            stream = await self.finish(await self._catalog.find(scope, name))
        if not 0 <= epoch <= stream.record.epoch:
            raise Refused(Problem.SCALE_REFUSED, f"{stream} is in epoch {stream.record.epoch}, not yet in {epoch}")
        return epoch < stream.record.epoch

    async def replace(self, stream: Stream, old: Collection[int], new: Sequence[KeyRange]) -> Stream:
        """Do it, whatever the mode. It is the caller's turn to change the stream.

        Raises SCALE_REFUSED, and NOT_REPRESENTABLE where the new segments' names would be too long.
        """
        if len(stream.record.segments) + len(new) > MAX_SEGMENTS:
            raise Refused(Problem.SCALE_REFUSED, f"{stream} would have had more than {MAX_SEGMENTS} segments")
        segments = replaced(stream.record.segments, stream.record.epoch, old, new)
        if segments is None:
            raise Refused(Problem.SCALE_REFUSED, "the new ranges must be those of the replaced segments")
        coming = (segment for segment in segments if segment.epoch > stream.record.epoch)
        self._catalog.segments.check(map(stream.name_of, coming))  # once recorded, it could not be taken back
        return await self.finish(await self._catalog.save(stream, segments=segments))

    async def finish(self, stream: Stream) -> Stream:
        """Go on with what was begun, if something was. It is the caller's turn to change the stream."""
        if not stream.record.scaling:
            return stream
        following, config = stream.record.epoch + 1, stream.record.config
        segments = self._catalog.segments
        coming = [segment for segment in stream.record.segments if segment.epoch == following]
        await at_once(lambda segment: segments.create(stream.name_of(segment), config.age_seconds), coming)
        going = [segment for segment in stream.record.segments if segment.until == following]
        await at_once(lambda segment: segments.seal(stream.name_of(segment)), going)
        return await self._catalog.save(stream, epoch=following)

    def _check(self, stream: Stream, old: Sequence[int], new: Sequence[KeyRange]) -> None:
        if not stream.record.open:
            raise Refused(Problem.STREAM_SEALED, str(stream))
        if not set(old) <= {segment.id for segment in stream.current}:
            raise Refused(Problem.NOT_CURRENT, f"{sorted(old)} of {stream}")
        if self._mode is not SegmentsMode.SEPARATE and len(stream.current) - len(old) + len(new) > 1:
            raise Refused(Problem.SCALE_REFUSED, "this gateway's streams have one segment each")


def _already(stream: Stream, old: Sequence[int], new: Sequence[KeyRange]) -> int | None:
    """The epoch in which exactly this was done, if one there is."""
    epochs = {segment.until for segment in stream.record.segments if segment.id in old}
    if len(epochs) != 1 or (epoch := epochs.pop()) is None:
        return None
    gone = [segment.id for segment in stream.record.segments if segment.until == epoch]
    come = [segment.keys for segment in of_epoch(stream.record.segments, epoch) if segment.epoch == epoch]
    return epoch if sorted(gone) == sorted(old) and come == sorted(new) else None
