"""Reader groups of the Java client: their configurations, and the internal stream that holds their readers' state.

Which streams a group reads, and from where, is the clients' business; the controller keeps it for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.controller.catalog import Catalog, groups_in
from penstock.controller.names import READER_GROUP_PREFIX, is_stream
from penstock.controller.problems import Problem, Refused
from penstock.controller.records import ReaderGroup
from penstock.controller.scopes import Scopes
from penstock.controller.table import Prefix
from penstock.routing.permissions import ANY
from penstock.routing.segments import SegmentName

__all__ = ["Groups"]

_ALL: Final = Prefix("group/", ReaderGroup)


class Groups:
    """The operations on reader groups."""

    def __init__(self, catalog: Catalog, scopes: Scopes) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._scopes = scopes

    async def create(self, scope: str, name: str, config: ReaderGroup) -> ReaderGroup:
        """Have a group; the configuration that it has, which is another where the group was there.

        Raises INVALID_NAME, SCOPE_NOT_FOUND.
        """
        if not is_stream(name):
            raise Refused(Problem.INVALID_NAME, repr(name))
        self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, ANY)
        async with self._catalog.turn(scope):
            await self._scopes.require(scope)
            async with self._catalog.turn(scope, READER_GROUP_PREFIX + name):
                found = await self._table.get(groups_in(scope).key(name))
                if found is not None:
                    return found.value
                state = _state_of(scope, name)
                await self._catalog.segments.delete(state)  # what is left of a group that was there before
                await self._catalog.segments.create(state)
                return (await self._table.put(groups_in(scope).key(name), config)).value

    async def get(self, scope: str, name: str) -> ReaderGroup:
        """A group's configuration. Raises GROUP_NOT_FOUND."""
        self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, ANY)
        found = await self._table.get(groups_in(scope).key(name))
        if found is None:
            raise Refused(Problem.GROUP_NOT_FOUND, f"{scope}/{name}")
        return found.value

    async def update(self, scope: str, name: str, config: ReaderGroup) -> int:
        """Configure a group anew; its generation from then on.

        Raises GROUP_NOT_FOUND, and INVALID_CONFIG unless `config` has the group's id and generation.
        """
        self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, ANY)

        def updated(old: ReaderGroup) -> ReaderGroup:
            if (config.id, config.generation) != (old.id, old.generation):
                raise Refused(Problem.INVALID_CONFIG, f"the group is {old.id}, generation {old.generation}")
            return msgspec.structs.replace(config, generation=old.generation + 1)

        changed = await self._table.change(groups_in(scope).key(name), updated)
        if changed is None:
            raise Refused(Problem.GROUP_NOT_FOUND, f"{scope}/{name}")
        return changed.generation

    async def delete(self, scope: str, name: str, group_id: str) -> None:
        """Delete a group; "" stands for whatever id it has. Raises GROUP_NOT_FOUND."""
        self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, ANY)
        async with self._catalog.turn(scope, READER_GROUP_PREFIX + name):
            found = await self._table.get(groups_in(scope).key(name))
            if found is None or group_id not in ("", found.value.id):
                raise Refused(Problem.GROUP_NOT_FOUND, f"{scope}/{name} {group_id}")
            await self._catalog.segments.delete(_state_of(scope, name))
            await self._table.remove(groups_in(scope).key(name), found.version)

    async def names(self, scope: str) -> list[str]:
        """All groups of a scope."""
        return [name async for name, _ in self._table.each(groups_in(scope))]

    async def subscribers(self, scope: str, stream: str) -> list[str]:
        """The groups, as `scope/group`, that say what they have read of a stream. Raises STREAM_NOT_FOUND."""
        await self._catalog.find(scope, stream)
        return [
            name
            async for name, group in self._table.each(_ALL)
            if group.retention_type and any((cut.scope, cut.stream) == (scope, stream) for cut in group.start)
        ]

    async def acknowledge(
        self, subscriber: str, group_id: str, generation: int, scope: str, stream: str, cut: Mapping[int, int]
    ) -> None:
        """A subscriber has read a stream up to this cut. It is checked and not kept, since nothing depends on it.

        Raises STREAM_NOT_FOUND, GROUP_NOT_FOUND, GENERATION_MISMATCH, INVALID_CUT.
        """
        found = await self._catalog.find(scope, stream)
        entry = await self._table.get(_ALL.key(subscriber))
        if entry is None or not entry.value.retention_type or group_id != entry.value.id:
            raise Refused(Problem.GROUP_NOT_FOUND, f"{subscriber!r} is no subscriber of {found}")
        if generation != entry.value.generation:
            raise Refused(Problem.GENERATION_MISMATCH, f"{subscriber} has {entry.value.generation}, not {generation}")
        if not found.is_cut(list(cut)):
            raise Refused(Problem.INVALID_CUT, f"of {found}")


def _state_of(scope: str, name: str) -> SegmentName:
    return SegmentName(scope, READER_GROUP_PREFIX + name)
