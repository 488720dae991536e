"""What is asked about segments: which there are, which follow which, and from which offsets they can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.controller.catalog import Catalog, Stream
from penstock.controller.problems import Problem, Refused
from penstock.controller.records import Configuration
from penstock.controller.topology import Segment, before, between, followers, of_epoch

__all__ = ["Queries"]


class Queries:
    """Questions about one stream. All but `exists` raise STREAM_NOT_FOUND."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def exists(self, scope: str, name: str) -> bool:
        """Whether there is such a stream."""
        return await self._catalog.look_up(scope, name) is not None

    async def configuration(self, scope: str, name: str) -> Configuration:
        """What is configured."""
        return await self._catalog.configuration(await self._catalog.find(scope, name))

    async def current(self, scope: str, name: str) -> list[Segment]:
        """The segments that can be written to, in the order of their keys; none of a sealed stream."""
        stream = await self._catalog.find(scope, name)
        return [] if stream.record.sealed else stream.current

    async def of_epoch(self, scope: str, name: str, epoch: int) -> list[Segment]:
        """The segments of an epoch, in the order of their keys. SEGMENT_NOT_FOUND for one that there was not yet."""
        stream = await self._catalog.find(scope, name)
        if not 0 <= epoch <= stream.record.epoch:
            raise Refused(Problem.SEGMENT_NOT_FOUND, f"{stream} is in epoch {stream.record.epoch}, not in {epoch}")
        return of_epoch(stream.record.segments, epoch)

    async def at_head(self, scope: str, name: str) -> list[tuple[Segment, int]]:
        """The first segments that have not been truncated, each with the first offset that is kept."""
        stream = await self._catalog.find(scope, name)
        return [(segment, await self._start(stream, segment)) for segment in map(stream.segment, stream.record.first())]

    async def following(self, scope: str, name: str, segment_id: int) -> list[tuple[Segment, list[Segment]]]:
        """The segments that took over the keys of a sealed one, each with all those that it follows.

        None: the stream ends there. That is also the answer for a segment that the stream never had: a client that
        knows one has it from another stream of this name, which was deleted.
        """
        segments = (await self._catalog.find(scope, name)).record.segments
        return [found for segment in segments if segment.id == segment_id for found in followers(segments, segment)]

    async def between(self, scope: str, name: str, start: Sequence[int], end: Sequence[int]) -> list[Segment]:
        """The segments between two cuts; an empty one stands for the head, or the tail. INVALID_CUT."""
        stream = await self._catalog.find(scope, name)
        first = start or stream.record.first()
        last = end or [segment.id for segment in stream.current]
        for cut in (first, last):
            if not stream.is_cut(cut):
                raise Refused(Problem.INVALID_CUT, f"{list(cut)} of {stream}")
        gone = before(stream.record.segments, stream.record.first())
        return [segment for segment in between(stream.record.segments, first, last) if segment not in gone]

    async def is_open(self, scope: str, name: str, segment_id: int) -> bool:
        """Whether a segment can be written to."""
        return any(segment.id == segment_id for segment in await self.current(scope, name))

    async def is_cut(self, scope: str, name: str, cut: Mapping[int, int]) -> bool:
        """Whether this, offsets by segments' ids, parts the stream in two."""
        return (await self._catalog.find(scope, name)).is_cut(list(cut))

    async def _start(self, stream: Stream, segment: Segment) -> int:
        info = await self._catalog.segments.info(stream.name_of(segment))
        cut = (stream.record.head or {}).get(segment.id, 0)
        return cut if info is None else max(cut, info.start_offset)
