"""Scopes. A scope whose name is a legal basin name is that basin; the others are in the controller's table.

So each basin is a scope for Pravega's clients, whichever protocol created it, and such a scope that they create is a
basin for all protocols.
"""

from __future__ import annotations

from penstock.core.back import Back
from penstock.core.clock import Clock
from penstock.core.permissions import ANY_PERMISSION, MANAGE
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import GetBasinConfig, ListBasins
from penstock.tables.struct_table import Prefix, StructTable
from penstock_pravega.controller.controller.merging import MergedNames
from penstock_pravega.controller.controller.names import is_scope
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import ScopeRecord
from penstock_pravega.controller.controller.segments import SegmentStore
from penstock_pravega.segment.names import SegmentNames

__all__ = ["Scopes"]

_SCOPES = Prefix("scope/", ScopeRecord)


class Scopes:
    """The operations on scopes, except deletion (`controller.Deletion`)."""

    def __init__(
        self, back: Back, table: StructTable, segments: SegmentStore, names: SegmentNames, clock: Clock
    ) -> None:
        self._back = back
        self._table = table
        self._segments = segments
        self._names = names
        self._clock = clock

    async def create(self, scope: str) -> None:
        """Create a scope. Raises INVALID_NAME, SCOPE_EXISTS, and SCOPE_NOT_FOUND if no route matches streams of it."""
        if not is_scope(scope):
            raise ControllerRefusal(ControllerProblem.INVALID_NAME, repr(scope))
        self._segments.require_some(scope, MANAGE)
        if self.is_basin(scope):
            created = await self._segments.create_basin(scope)
        else:
            created = await self._table.add(_SCOPES.key(scope), ScopeRecord(self._clock()))
        if not created:
            raise ControllerRefusal(ControllerProblem.SCOPE_EXISTS, scope)

    async def exists(self, scope: str) -> bool:
        """Return whether the scope exists and the client may see it."""
        if not (is_scope(scope) and self._is_seen(scope)):
            return False
        if not self.is_basin(scope):
            return await self._table.get(_SCOPES.key(scope)) is not None
        try:
            await self._back.perform(GetBasinConfig(scope))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                raise
            return False
        return True

    async def require(self, scope: str) -> None:
        """Raise SCOPE_NOT_FOUND if the scope does not exist."""
        if not await self.exists(scope):
            raise ControllerRefusal(ControllerProblem.SCOPE_NOT_FOUND, repr(scope))

    async def forget(self, scope: str) -> None:
        """Remove the record of a scope that is not a basin."""
        entry = await self._table.get(_SCOPES.key(scope))
        if entry is not None:
            await self._table.remove(_SCOPES.key(scope), entry.version)

    async def page(self, after: str, limit: int) -> list[str]:
        """Return the first scopes after this name, in name order."""
        merged = MergedNames([self._basins, self._recorded], after)
        names: list[str] = []
        while len(names) < limit and (following := await merged.next()) is not None:
            names.append(following[0])
        return names

    def is_basin(self, scope: str) -> bool:
        """Return whether the name is a legal basin name."""
        return self._names.basin_of(scope)[1] == ""

    async def _basins(self, after: str) -> tuple[list[tuple[str, None]], str | None]:
        page = await self._back.perform(ListBasins(start_after=after))
        names = [info.name for info in page.items]
        return [(name, None) for name in names if is_scope(name)], names[-1] if page.has_more else None

    async def _recorded(self, after: str) -> tuple[list[tuple[str, None]], str | None]:
        named, more = await self._table.page(_SCOPES, after)
        return [(name, None) for name, _ in named if self._is_seen(name)], named[-1][0] if more else None

    def _is_seen(self, scope: str) -> bool:
        """Return whether any route of the current client matches streams of this scope."""
        try:
            self._segments.require_some(scope, ANY_PERMISSION)
        except ControllerRefusal:
            return False
        return True
