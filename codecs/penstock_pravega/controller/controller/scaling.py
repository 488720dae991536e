"""Replacing segments of a stream with others, step by step, so that an interruption at any step can be repaired.

1. The next epoch is recorded: the segments that leave, and those that replace them.
2. The new segments are created. Clients still see the old epoch.
3. The old segments are sealed. A writer that meets a sealed segment asks for its successors, and gets them.
4. The next epoch becomes the stream's epoch.

So the events of a key are in its old segment before any are in the new one, whichever client writes them. Whichever
step was the last, all of them can be repeated: `finish` does so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from penstock.core.permissions import MANAGE
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.settings import SegmentsMode
from penstock_pravega.controller.controller.topology import KeyRange, Segment, replaced

__all__ = ["MAX_SEGMENTS", "Scaling"]

MAX_SEGMENTS: Final = 10_000
"""Most segments that a stream may have had in its life; its record holds them all, and is at most 1 MiB."""


class Scaling:
    """Scaling of streams. `mode`: whether they may have several segments."""

    def __init__(self, catalog: Catalog, mode: SegmentsMode) -> None:
        self._catalog = catalog
        self._mode = mode

    async def scale(
        self, scope: str, name: str, old: Sequence[int], new: Sequence[KeyRange]
    ) -> tuple[int, list[Segment]]:
        """Replace the segments with the ids `old` by segments for the ranges `new`.

        Returns the epoch that ended, and the new segments. Repeating a request that was interrupted finishes it. Raises
        STREAM_NOT_FOUND, STREAM_SEALED, NOT_CURRENT (also if it is done already), SCALE_REFUSED.
        """
        self._catalog.segments.require(scope, name, MANAGE)
        if max(len(old), len(new)) > MAX_SEGMENTS:
            raise ControllerRefusal(
                ControllerProblem.SCALE_REFUSED, f"a stream has {MAX_SEGMENTS} segments at most, not {len(new)}"
            )
        async with self._catalog.turn(scope, name):
            before = await self._catalog.find(scope, name)
            stream = await self.finish(before)
            if not (before.record.scaling and _is_newest(stream, old, new)):
                self._check(stream, old, new)
                stream = await self.replace(stream, old, new)
            epoch = stream.record.epoch
            return epoch - 1, [segment for segment in stream.record.segments if segment.epoch == epoch]

    async def is_done(self, scope: str, name: str, epoch: int) -> bool:
        """Return whether the stream is past that epoch. Raises STREAM_NOT_FOUND, and SCALE_REFUSED for an epoch yet to
        come."""
        async with self._catalog.turn(scope, name):
            stream = await self.finish(await self._catalog.find(scope, name))
        if not 0 <= epoch <= stream.record.epoch:
            raise ControllerRefusal(
                ControllerProblem.SCALE_REFUSED, f"{stream} is in epoch {stream.record.epoch}, not yet in {epoch}"
            )
        return epoch < stream.record.epoch

    async def replace(self, stream: CatalogStream, old: Collection[int], new: Sequence[KeyRange]) -> CatalogStream:
        """Replace segments, whatever the mode. The caller has the stream's turn.

        Raises SCALE_REFUSED, and NOT_REPRESENTABLE if the new segments' names would be too long.
        """
        if len(stream.record.segments) + len(new) > MAX_SEGMENTS:
            raise ControllerRefusal(
                ControllerProblem.SCALE_REFUSED, f"{stream} would have had more than {MAX_SEGMENTS} segments"
            )
        segments = replaced(stream.record.segments, stream.record.epoch, old, new)
        if segments is None:
            raise ControllerRefusal(
                ControllerProblem.SCALE_REFUSED, "the new ranges must be those of the replaced segments"
            )
        coming = (segment for segment in segments if segment.epoch > stream.record.epoch)
        self._catalog.segments.check(map(stream.name_of, coming))  # once recorded, the epoch cannot be undone
        return await self.finish(await self._catalog.save(stream, segments=segments))

    async def finish(self, stream: CatalogStream) -> CatalogStream:
        """Finish a scale that was begun, if there is one. The caller has the stream's turn."""
        if not stream.record.scaling:
            return stream
        following, age = stream.record.epoch + 1, stream.record.age_seconds
        segments = self._catalog.segments
        coming = [segment for segment in stream.record.segments if segment.epoch == following]
        await at_once(lambda segment: segments.create(stream.name_of(segment), age), coming)
        going = [segment for segment in stream.record.segments if segment.until == following]
        await at_once(lambda segment: segments.seal(stream.name_of(segment)), going)
        return await self._catalog.save(stream, epoch=following)

    def _check(self, stream: CatalogStream, old: Sequence[int], new: Sequence[KeyRange]) -> None:
        if not stream.record.open:
            raise ControllerRefusal(ControllerProblem.STREAM_SEALED, str(stream))
        if not set(old) <= {segment.id for segment in stream.current}:
            raise ControllerRefusal(ControllerProblem.NOT_CURRENT, f"{sorted(old)!s:.200} of {stream}")
        if self._mode is not SegmentsMode.SEPARATE and len(stream.current) - len(old) + len(new) > 1:
            raise ControllerRefusal(ControllerProblem.SCALE_REFUSED, "this gateway's streams have one segment each")


def _is_newest(stream: CatalogStream, old: Sequence[int], new: Sequence[KeyRange]) -> bool:
    """Return whether exactly this scale began the stream's current epoch."""
    gone = [segment.id for segment in stream.record.segments if segment.until == stream.record.epoch]
    come = [segment.keys for segment in stream.current if segment.epoch == stream.record.epoch]
    return sorted(gone) == sorted(old) and come == sorted(new)
