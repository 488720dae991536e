"""Finishing what an interrupted request began: at every start, and before a scope is deleted."""

from __future__ import annotations

import structlog

from penstock.controller.catalog import Catalog, Stream
from penstock.controller.records import StreamRecord, StreamState
from penstock.controller.scaling import Scaling
from penstock.controller.streams import Streams
from penstock.controller.table import Prefix
from penstock_codecs.failures import OperationFailed

__all__ = ["Recovery"]

log = structlog.get_logger()


class Recovery:
    """Goes through the records of streams."""

    def __init__(self, catalog: Catalog, streams: Streams, scaling: Scaling) -> None:
        self._catalog = catalog
        self._streams = streams
        self._scaling = scaling

    async def finish_all(self) -> None:
        """Everywhere. What cannot be finished is logged, and left for whoever asks for it again."""
        async for path, record in self._catalog.table.each(Prefix("stream/", StreamRecord)):
            if record.unfinished:
                scope, name = path.split("/")
                try:
                    async with self._catalog.turn(scope):
                        await self.finish(scope, name)
                except OperationFailed as error:
                    log.warning("stream_not_finished", stream=path, error=str(error))

    async def finish(self, scope: str, name: str) -> None:
        """One stream. It is the caller's turn to change the scope."""
        async with self._catalog.turn(scope, name):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is None or not entry.value.unfinished:
                return
            stream = Stream(scope, name, *entry)
            if entry.value.state is StreamState.CREATING:
                await self._streams.finish_creation(stream)
            elif entry.value.state is StreamState.DELETING:
                await self._streams.finish_deletion(stream)
            else:
                await self._go_on(stream)

    async def _go_on(self, stream: Stream) -> None:
        stream = await self._scaling.finish(stream)
        if stream.record.truncating:
            stream = await self._streams.finish_truncation(stream)
        if stream.record.state is StreamState.SEALING:
            await self._streams.finish_sealing(stream)
