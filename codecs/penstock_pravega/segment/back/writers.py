"""Writers of a back: the gateway's own, one for each segment, and its clients'."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final
from uuid import UUID

from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.back.writer import StoreWriter

__all__ = ["StoreWriters"]

MOST_IDLE: Final = 5000
"""Idle writers that are kept, so that they need not be set up again; about 2 KiB each."""


class StoreWriters:
    """All writers of a back.

    A writer has one segment at a time: a server's connection knows writers by their id alone.
    """

    def __init__(self, stores: SegmentStores) -> None:
        self._stores = stores
        self._writers: OrderedDict[str | UUID, StoreWriter] = OrderedDict()
        """The gateway's own by their segments, clients' by their identifiers; most recently used last."""

    def own(self, segment: str) -> StoreWriter:
        """Return the gateway's own writer of a segment."""
        return self._used(segment) or self._keep(segment, StoreWriter(self._stores, segment))

    async def of(self, segment: str, writer_id: UUID) -> StoreWriter:
        """Return a client's writer. Waits while it appends to another segment."""
        while (writer := self._writers.get(writer_id)) is not None and writer.segment != segment:
            if not writer.busy:
                self._drop(writer_id)
                break
            await writer.settled()
        return self._used(writer_id) or self._keep(writer_id, StoreWriter(self._stores, segment, writer_id))

    async def over_so_far(self, *segments: str) -> None:
        """Wait until the appends handed over so far for these segments are settled."""
        for writer in [writer for writer in self._writers.values() if writer.busy and writer.segment in segments]:
            await writer.over_so_far()

    def forget(self, segment: str) -> None:
        """Drop the gateway's own writer of a deleted segment."""
        if segment in self._writers:
            self._drop(segment)

    def known(self, segment: str, writer_id: UUID) -> StoreWriter | None:
        """Return a client's writer if it has appended to this segment."""
        writer = self._writers.get(writer_id)
        return writer if writer is not None and writer.segment == segment else None

    def _used(self, key: str | UUID) -> StoreWriter | None:
        if key in self._writers:
            self._writers.move_to_end(key)
        return self._writers.get(key)

    def _keep(self, key: str | UUID, writer: StoreWriter) -> StoreWriter:
        self._writers[key] = writer
        excess = max(0, len(self._writers) - MOST_IDLE)
        for some, found in list(islice(self._writers.items(), excess)):
            if not found.busy:
                self._drop(some)
        return writer

    def _drop(self, key: str | UUID) -> None:
        self._writers.pop(key).forget()
