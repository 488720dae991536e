"""Deleting scopes."""

from __future__ import annotations

from penstock.backs.base import Back
from penstock.controller.catalog import Catalog, streams_in
from penstock.controller.groups import Groups
from penstock.controller.listing import Listing
from penstock.controller.problems import Problem, Refused
from penstock.controller.recovery import Recovery
from penstock.controller.scopes import Scopes
from penstock.controller.streams import Streams
from penstock_codecs.operations import DeleteBasin

__all__ = ["Deletion"]


class Deletion:
    """Deletes scopes that have nothing in them, or all that is in them too.

    A scope that is a basin is empty only if nobody has a stream there, under whatever name. A stream that a client of
    another protocol creates in it between that look and the deletion goes with the basin.
    """

    def __init__(
        self,
        back: Back,
        catalog: Catalog,
        scopes: Scopes,
        streams: Streams,
        groups: Groups,
        listing: Listing,
        recovery: Recovery,
    ) -> None:
        self._back = back
        self._catalog = catalog
        self._scopes = scopes
        self._streams = streams
        self._groups = groups
        self._listing = listing
        self._recovery = recovery

    async def delete(self, scope: str) -> None:
        """Delete an empty scope. Raises SCOPE_NOT_FOUND, SCOPE_NOT_EMPTY."""
        async with self._catalog.turn(scope):
            await self._scopes.require(scope)
            self._catalog.segments.require_all(scope)
            async for name, _ in self._catalog.table.each(streams_in(scope)):
                await self._recovery.finish(scope, name)
            if not await self._listing.is_empty(scope) or await self._groups.names(scope):
                raise Refused(Problem.SCOPE_NOT_EMPTY, scope)
            await self._forget(scope)
            if self._scopes.is_basin(scope):
                await self._back.perform(DeleteBasin(scope))
            else:
                await self._scopes.forget(scope)

    async def delete_all(self, scope: str) -> None:
        """Delete a scope with its streams and reader groups. Raises as `delete`."""
        await self._scopes.require(scope)
        self._catalog.segments.require_all(scope)
        for group in await self._groups.names(scope):
            await self._groups.delete(scope, group, "")
        while names := await self._listing.streams(scope, ""):
            for name in names:
                await self._delete(scope, name)
        await self.delete(scope)

    async def _delete(self, scope: str, name: str) -> None:
        try:
            await self._streams.seal(scope, name)
            await self._streams.delete(scope, name)
        except Refused as refused:
            if refused.problem is not Problem.STREAM_NOT_FOUND:  # else somebody was quicker
                raise

    async def _forget(self, scope: str) -> None:
        """Remove what no client sees: records of streams that are gone, and internal streams."""
        async for name, _ in self._catalog.table.each(streams_in(scope)):
            entry = await self._catalog.table.get(self._catalog.key(scope, name))
            if entry is not None:
                await self._catalog.table.remove(self._catalog.key(scope, name), entry.version)
        await self._catalog.segments.delete_internal(scope)
