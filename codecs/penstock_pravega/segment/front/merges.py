"""Merges, and repeated requests for them.

A client that did not get the reply to a merge cannot know whether its segment was merged, and repeats the request.
Pravega then replies that it was merged. So does this front, for the latest merges, which it remembers in memory.
"""

from __future__ import annotations

from typing import Final

import trio

from penstock.core.back import Back
from penstock.model.byte_operations import GetByteStreamInfo, Merge
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import StreamRef

__all__ = ["Merges"]

MOST_REMEMBERED: Final = 10_000
"""Sources that are remembered; about 500 bytes each."""


class Merges:
    """Merges of all connections of a front."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._targets: dict[StreamRef, StreamRef] = {}  # of merged sources, the latest last
        self._under_way: set[StreamRef] = set()
        self._over = trio.lowlevel.ParkingLot()

    async def merge(self, back: Back, merge: Merge) -> tuple[int, ...]:
        """Merge the sources and return the length of the target after each. Fails as `Merge`.

        Sources that were merged into this target before and no longer exist are skipped. A request with updates of
        attributes has only one source, so nothing of it is left then.
        """
        while not self._under_way.isdisjoint(merge.sources):  # wait for merges of the same sources
            await self._over.park()
        self._under_way.update(merge.sources)
        try:
            return await self._merge(back, merge)
        finally:
            self._under_way.difference_update(merge.sources)
            self._over.unpark_all()

    def forget(self, source: StreamRef) -> None:
        """Forget the merge of a stream of this name, because a new one was created."""
        self._targets.pop(source, None)

    async def _merge(self, back: Back, merge: Merge) -> tuple[int, ...]:
        try:
            offsets = (await back.perform(merge)).offsets
        except OperationFailed as error:
            left = tuple(source for source in merge.sources if self._targets.get(source) != merge.target)
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND or len(left) == len(merge.sources):
                raise
            return await self._merge_rest(back, merge, left)
        self._remember(merge)
        return offsets

    async def _merge_rest(self, back: Back, merge: Merge, left: tuple[StreamRef, ...]) -> tuple[int, ...]:
        length = (await back.perform(GetByteStreamInfo(merge.target))).length
        rest = Merge(merge.target, left)
        lengths = dict(zip(left, (await back.perform(rest)).offsets, strict=True)) if left else {}
        self._remember(rest)
        offsets = []
        for source in merge.sources:
            length = lengths.get(source, length)
            offsets.append(length)
        return tuple(offsets)

    def _remember(self, merge: Merge) -> None:
        for source in merge.sources:
            self._targets.pop(source, None)
            self._targets[source] = merge.target
        while len(self._targets) > self._most:
            del self._targets[next(iter(self._targets))]
