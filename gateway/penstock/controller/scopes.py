"""Scopes. One whose name is a basin's is that basin; the others are in the controller's table.

So each basin is a scope of Pravega's clients, whoever created it, and what they create is a basin for everybody.
"""

from __future__ import annotations

from penstock.backs.base import Back
from penstock.clock import Clock
from penstock.controller.merging import Merged
from penstock.controller.names import is_scope
from penstock.controller.problems import Problem, Refused
from penstock.controller.records import ScopeRecord
from penstock.controller.segments import SegmentStore
from penstock.controller.table import ControllerTable, Prefix
from penstock.routing.segments import SegmentNames
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.operations import GetBasinConfig, ListBasins

__all__ = ["Scopes"]

_SCOPES = Prefix("scope/", ScopeRecord)


class Scopes:
    """The operations on scopes, except deletion (`deletion`)."""

    def __init__(
        self, back: Back, table: ControllerTable, segments: SegmentStore, names: SegmentNames, clock: Clock
    ) -> None:
        self._back = back
        self._table = table
        self._segments = segments
        self._names = names
        self._clock = clock

    async def create(self, scope: str) -> None:
        """Create a scope. Raises INVALID_NAME, SCOPE_EXISTS."""
        if not is_scope(scope):
            raise Refused(Problem.INVALID_NAME, repr(scope))
        if self.is_basin(scope):
            created = await self._segments.create_basin(scope)
        else:
            created = await self._table.add(_SCOPES.key(scope), ScopeRecord(self._clock()))
        if not created:
            raise Refused(Problem.SCOPE_EXISTS, scope)

    async def exists(self, scope: str) -> bool:
        """Whether there is such a scope."""
        if not is_scope(scope):
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
        """Raises SCOPE_NOT_FOUND where there is no such scope."""
        if not await self.exists(scope):
            raise Refused(Problem.SCOPE_NOT_FOUND, repr(scope))

    async def forget(self, scope: str) -> None:
        """A scope that is no basin is not there any more."""
        entry = await self._table.get(_SCOPES.key(scope))
        if entry is not None:
            await self._table.remove(_SCOPES.key(scope), entry.version)

    async def page(self, after: str, limit: int) -> list[str]:
        """The first scopes after this name, in name order."""
        found = Merged([self._basins, self._recorded], after)
        names: list[str] = []
        while len(names) < limit and (following := await found.next()) is not None:
            names.append(following[0])
        return names

    def is_basin(self, scope: str) -> bool:
        """Whether it is a basin's name."""
        return self._names.basin_of(scope)[1] == ""

    async def _basins(self, after: str) -> tuple[list[tuple[str, None]], str | None]:
        page = await self._back.perform(ListBasins(start_after=after))
        names = [info.name for info in page.items]
        return [(name, None) for name in names if is_scope(name)], names[-1] if page.has_more else None

    async def _recorded(self, after: str) -> tuple[list[tuple[str, None]], str | None]:
        named, more = await self._table.page(_SCOPES, after)
        return [(name, None) for name, _ in named], named[-1][0] if more else None
