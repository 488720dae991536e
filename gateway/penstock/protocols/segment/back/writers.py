"""Writers of a back: the gateway's own, one for each segment, and its clients'."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final
from uuid import UUID, uuid4

from penstock.protocols.segment.back.stores import SegmentStores
from penstock.protocols.segment.back.writer import StoreWriter

__all__ = ["StoreWriters"]

MOST_IDLE: Final = 5000
"""Idle writers that are kept, so that they need not be set up again; about 2 KiB each."""


class StoreWriters:
    """All writers of a back.

    A writer has one segment at a time: a server's connection knows writers by their id alone.
    """

    def __init__(self, stores: SegmentStores) -> None:
        self._stores = stores
        self._writers: OrderedDict[UUID, StoreWriter] = OrderedDict()  # most recently used last
        self._own: dict[str, UUID] = {}

    def own(self, segment: str) -> StoreWriter:
        """Return the gateway's own writer of a segment."""
        known = self._own.get(segment)
        writer = None if known is None else self._writers.get(known)
        if writer is None or writer.spoiled:
            writer_id = self._own[segment] = uuid4()
            writer = self._keep(StoreWriter(self._stores, segment, writer_id, knows_ends=True))
        self._writers.move_to_end(writer.id)
        return writer

    async def of(self, segment: str, writer_id: UUID) -> StoreWriter:
        """Return a client's writer. Waits while it appends to another segment."""
        while (writer := self._writers.get(writer_id)) is not None and writer.segment != segment:
            if not writer.busy:
                writer.forget()
                del self._writers[writer_id]
                break
            await writer.settled()
        writer = self._writers.get(writer_id) or self._keep(StoreWriter(self._stores, segment, writer_id))
        self._writers.move_to_end(writer_id)
        return writer

    async def over_so_far(self, *segments: str) -> None:
        """Wait until the appends handed over so far for these segments are settled."""
        for writer in [writer for writer in self._writers.values() if writer.busy and writer.segment in segments]:
            await writer.over_so_far()

    def forget(self, segment: str) -> None:
        """Drop the gateway's own writer of a deleted segment."""
        writer_id = self._own.pop(segment, None)
        if writer_id is not None and (writer := self._writers.pop(writer_id, None)) is not None:
            writer.forget()

    def known(self, segment: str, writer_id: UUID) -> StoreWriter | None:
        """Return a client's writer if it has appended to this segment."""
        writer = self._writers.get(writer_id)
        return writer if writer is not None and writer.segment == segment else None

    def _keep(self, writer: StoreWriter) -> StoreWriter:
        self._writers[writer.id] = writer
        excess = max(0, len(self._writers) - MOST_IDLE)
        for found in list(islice(self._writers.values(), excess)):
            if not found.busy:
                self._drop(found)
        return writer

    def _drop(self, writer: StoreWriter) -> None:
        writer.forget()
        del self._writers[writer.id]
        if self._own.get(writer.segment) == writer.id:
            del self._own[writer.segment]
