"""Listing the streams of a scope: those that the back has, and those of several segments, from their records.

Left out are streams with names that clients of Pravega cannot use, all segments of a stream but the first, and internal
streams, except those of reader groups on request.
"""

from __future__ import annotations

from typing import Final

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import ListStreams
from penstock_pravega.controller.controller.catalog import Catalog, groups_in, streams_in
from penstock_pravega.controller.controller.merging import MergedNames
from penstock_pravega.controller.controller.names import READER_GROUP_PREFIX, is_stream
from penstock_pravega.controller.controller.records import StreamRecord
from penstock_pravega.controller.controller.scopes import Scopes
from penstock_pravega.segment.names import SegmentNames

__all__ = ["PAGE", "StreamListing"]

PAGE: Final = 500
"""Most names in one answer."""


class StreamListing:
    """Pages of streams. A page without names means the end, so no other page may be empty: some clients stop there."""

    def __init__(self, back: Back, catalog: Catalog, scopes: Scopes, names: SegmentNames) -> None:
        self._back = back
        self._catalog = catalog
        self._scopes = scopes
        self._names = names

    async def streams(
        self, scope: str, after: str, tag: str | None = None, limit: int = PAGE, *, with_groups: bool = False
    ) -> list[str]:
        """Return the first streams after this name, in name order; if a tag is given, only those that have it.

        `with_groups`: include the streams of reader groups, by which the Java client finds the groups. Raises
        SCOPE_NOT_FOUND.
        """
        await self._scopes.require(scope)

        async def stored(after: str) -> tuple[list[tuple[str, StreamRecord | None]], str | None]:
            names, further = await self._stored(scope, after)
            return [(name, None) for name in names if is_stream(name)], further

        async def recorded(after: str) -> tuple[list[tuple[str, StreamRecord | None]], str | None]:
            records, more = await self._catalog.table.page(streams_in(scope), after)
            seen: list[tuple[str, StreamRecord | None]] = [
                (name, record) for name, record in records if is_stream(name) and self._is_seen(scope, name)
            ]
            return seen, records[-1][0] if more else None

        async def internal(after: str) -> tuple[list[tuple[str, StreamRecord | None]], str | None]:
            records, more = await self._groups(scope, after)
            return [(name, None) for name in records if self._is_seen(scope, name)], records[-1] if more else None

        going = MergedNames([stored, recorded, internal] if with_groups else [stored, recorded], after)
        names: list[str] = []
        while len(names) < limit and (following := await going.next()) is not None:
            name, records = following
            if _is_there(records) and (
                tag is None or any(one is not None and tag in one.config.tags for one in records)
            ):
                names.append(name)
        return names

    async def is_empty(self, scope: str) -> bool:
        """Return whether the scope has no streams: neither any in the back, under any name, nor any in the records."""
        names, _ = await self._stored(scope, "", 1)
        return not names and not await self.streams(scope, "", limit=1)

    def _is_seen(self, scope: str, name: str) -> bool:
        """Return whether the current client may know of the stream."""
        try:
            return self._catalog.segments.routed(scope, name)
        except OperationFailed as error:
            if error.failure.code is FailureCode.PERMISSION_DENIED:
                return False
            raise

    async def _groups(self, scope: str, after: str) -> tuple[list[str], bool]:
        """Return streams of reader groups after this name, and whether there are more. All their names begin alike."""
        if after.startswith(READER_GROUP_PREFIX):
            after = after.removeprefix(READER_GROUP_PREFIX)
        elif after > READER_GROUP_PREFIX:
            return [], False
        else:
            after = ""
        rows, more = await self._catalog.table.page(groups_in(scope), after)
        return [READER_GROUP_PREFIX + name for name, _ in rows], more

    async def _stored(self, scope: str, after: str, limit: int = 1000) -> tuple[list[str], str | None]:
        """Return names of the scope's streams in the back, without their prefix, and the name to continue after (None
        at the end)."""
        basin, prefix = self._names.basin_of(scope)
        try:
            page = await self._back.perform(ListStreams(basin, prefix, prefix + after if after else "", limit))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            return [], None
        names = [info.name.removeprefix(prefix) for info in page.items]
        return names, names[-1] if page.has_more else None


def _is_there(records: list[StreamRecord | None]) -> bool:
    """Return whether a name is an existing stream, by its entry in the back (None) and its record: see `catalog`."""
    record = next((one for one in records if one is not None), None)
    return record is None or (record.exists and (None in records or not record.plain))
