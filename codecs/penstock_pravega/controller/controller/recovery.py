"""Finishing the work of interrupted requests: at every start, and before a scope is deleted."""

from __future__ import annotations

import structlog

from penstock.model.failures import OperationFailed
from penstock.tables.struct_table import Prefix
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream
from penstock_pravega.controller.controller.records import StreamRecord, StreamStatus
from penstock_pravega.controller.controller.scaling import Scaling
from penstock_pravega.controller.controller.streams import StreamOperations

__all__ = ["StreamRecovery"]

log = structlog.get_logger()


class StreamRecovery:
    """The part that finishes changes of streams that their records show as begun."""

    def __init__(self, catalog: Catalog, streams: StreamOperations, scaling: Scaling) -> None:
        self._catalog = catalog
        self._streams = streams
        self._scaling = scaling

    async def finish_all(self) -> None:
        """Finish the changes of all streams. Those that fail are logged, and left to the next request for the same."""
        async for path, record in self._catalog.table.each(Prefix("stream/", StreamRecord)):
            if record.unfinished:
                scope, name = path.split("/")
                try:
                    async with self._catalog.turn(scope):
                        await self.finish(scope, name)
                except OperationFailed as error:
                    log.warning("stream_not_finished", stream=path, error=str(error))

    async def finish(self, scope: str, name: str) -> None:
        """Finish the changes of one stream. The caller has the scope's turn."""
        async with self._catalog.turn(scope, name):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is None or not entry.value.unfinished:
                return
            stream = CatalogStream(scope, name, *entry)
            if entry.value.state is StreamStatus.CREATING:
                await self._streams.finish_creation(stream)
            elif entry.value.state is StreamStatus.DELETING:
                await self._streams.finish_deletion(stream)
            else:
                await self._go_on(stream)

    async def _go_on(self, stream: CatalogStream) -> None:
        stream = await self._scaling.finish(stream)
        if stream.record.truncating:
            stream = await self._streams.finish_truncation(stream)
        if stream.record.state is StreamStatus.SEALING:
            await self._streams.finish_sealing(stream)
