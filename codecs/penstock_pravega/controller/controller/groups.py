"""Reader groups of the Java client: their configurations, and the internal stream that holds their readers' state.

Clients decide which streams a group reads, and from which positions; the controller only stores that. It reads the
internal stream only to tell which readers are online.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.core.permissions import ANY_PERMISSION, APPEND, MANAGE, Permission
from penstock.model.failures import FailureCode, OperationFailed
from penstock.tables.struct_table import Prefix
from penstock_pravega.controller.controller.catalog import Catalog, groups_in
from penstock_pravega.controller.controller.names import READER_GROUP_PREFIX, is_stream
from penstock_pravega.controller.controller.online import OnlineReaders
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import ReaderGroup
from penstock_pravega.controller.controller.scopes import Scopes

__all__ = ["Groups"]

_ALL: Final = Prefix("group/", ReaderGroup)


class Groups:
    """The operations on reader groups."""

    def __init__(self, catalog: Catalog, scopes: Scopes) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._scopes = scopes

    async def create(self, scope: str, name: str, config: ReaderGroup) -> ReaderGroup:
        """Create a group if it does not exist. Returns its configuration, which differs from `config` if it existed.

        Raises INVALID_NAME, SCOPE_NOT_FOUND.
        """
        if not is_stream(name):
            raise ControllerRefusal(ControllerProblem.INVALID_NAME, repr(name))
        self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, ANY_PERMISSION)
        async with self._catalog.turn(scope):
            await self._scopes.require(scope)
            async with self._catalog.turn(scope, READER_GROUP_PREFIX + name):
                stored = await self._table.get(groups_in(scope).key(name))
                if stored is not None:
                    return stored.value
                state = await self._catalog.numbers.first_segment(scope, READER_GROUP_PREFIX + name)
                await self._catalog.segments.delete(state)  # left over from an earlier group of this name
                await self._catalog.segments.create(state)
                return (await self._table.put(groups_in(scope).key(name), config)).value

    async def get(self, scope: str, name: str) -> ReaderGroup:
        """Return a group's configuration. Raises GROUP_NOT_FOUND."""
        self._require(scope, name, ANY_PERMISSION)
        stored = await self._table.get(groups_in(scope).key(name))
        if stored is None:
            raise ControllerRefusal(ControllerProblem.GROUP_NOT_FOUND, f"{scope}/{name}")
        return stored.value

    async def online(self, scope: str, name: str) -> list[str]:
        """Return the names of the readers that are online, in order, by the group's internal stream. Raises
        GROUP_NOT_FOUND, and STORAGE if clients have written something else into it."""
        self._require(scope, name, ANY_PERMISSION)
        segments, readers = self._catalog.segments, OnlineReaders()
        first = await self._catalog.numbers.first_segment(scope, READER_GROUP_PREFIX + name)
        if (info := await segments.info(first)) is None:
            return []
        at = info.start_offset
        try:
            while at < info.length and (data := await segments.read(first, at)):
                readers.receive(data)
                at += len(data)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise
            return await self.online(scope, name)  # a reader has compacted the state in the meantime
        return sorted(readers.names)

    async def update(self, scope: str, name: str, config: ReaderGroup) -> int:
        """Change a group's configuration. Returns its new generation.

        Raises GROUP_NOT_FOUND, and INVALID_CONFIG unless `config` has the group's id and generation.
        """
        self._require(scope, name, APPEND | MANAGE)

        def updated(old: ReaderGroup) -> ReaderGroup:
            if (config.id, config.generation) != (old.id, old.generation):
                raise ControllerRefusal(
                    ControllerProblem.INVALID_CONFIG, f"the group is {old.id}, generation {old.generation}"
                )
            return msgspec.structs.replace(config, generation=old.generation + 1)

        changed = await self._table.change(groups_in(scope).key(name), updated)
        if changed is None:
            raise ControllerRefusal(ControllerProblem.GROUP_NOT_FOUND, f"{scope}/{name}")
        return changed.generation

    async def delete(self, scope: str, name: str, group_id: str) -> None:
        """Delete a group; `group_id` "" matches any id. Raises GROUP_NOT_FOUND."""
        self._require(scope, name, APPEND | MANAGE)
        async with self._catalog.turn(scope, READER_GROUP_PREFIX + name):
            stored = await self._table.get(groups_in(scope).key(name))
            if stored is None or group_id not in ("", stored.value.id):
                raise ControllerRefusal(ControllerProblem.GROUP_NOT_FOUND, f"{scope}/{name} {group_id}")
            state = await self._catalog.numbers.first_segment(scope, READER_GROUP_PREFIX + name)
            await self._catalog.segments.delete(state)
            await self._catalog.numbers.retire(scope, READER_GROUP_PREFIX + name)
            await self._table.remove(groups_in(scope).key(name), stored.version)
            await self._catalog.end_turns(scope, READER_GROUP_PREFIX + name)

    def _require(self, scope: str, name: str, needs: frozenset[Permission]) -> None:
        """Check the client's permissions for the group's stream. Raises GROUP_NOT_FOUND if no route matches it,
        PERMISSION_DENIED."""
        try:
            self._catalog.segments.require(scope, READER_GROUP_PREFIX + name, needs)
        except ControllerRefusal:
            raise ControllerRefusal(ControllerProblem.GROUP_NOT_FOUND, f"{scope}/{name}") from None

    async def names(self, scope: str) -> list[str]:
        """Return the names of all groups of a scope."""
        return [name async for name, _ in self._table.each(groups_in(scope))]

    async def subscribers(self, scope: str, stream: str) -> list[str]:
        """Return the groups, as `scope/group`, that report what they have read of a stream. Raises STREAM_NOT_FOUND."""
        await self._catalog.find(scope, stream)
        return [*await self.ids_of_subscribers(scope, stream)]

    async def ids_of_subscribers(self, scope: str, stream: str) -> dict[str, str]:
        """Return the ids of the subscribers of a stream by their names, `scope/group`."""
        return {name: group.id async for name, group in self._table.each(_ALL) if _reads(group, scope, stream)}

    async def require_subscriber(
        self, subscriber: str, group_id: str, generation: int, scope: str, stream: str
    ) -> None:
        """Check that a group, `scope/group`, is a subscriber of a stream, and that the client may change it.

        Raises GROUP_NOT_FOUND, GENERATION_MISMATCH, PERMISSION_DENIED.
        """
        self._require(*_parts(subscriber), APPEND | MANAGE)
        entry = await self._table.get(_ALL.key(subscriber))
        if entry is None or not entry.value.retention_type or group_id != entry.value.id:
            raise ControllerRefusal(
                ControllerProblem.GROUP_NOT_FOUND, f"{subscriber!r} is not a subscriber of {scope}/{stream}"
            )
        if generation != entry.value.generation:
            raise ControllerRefusal(
                ControllerProblem.GENERATION_MISMATCH, f"{subscriber} has {entry.value.generation}, not {generation}"
            )


def _reads(group: ReaderGroup, scope: str, stream: str) -> bool:
    return bool(group.retention_type) and any((cut.scope, cut.stream) == (scope, stream) for cut in group.start)


def _parts(subscriber: str) -> tuple[str, str]:
    scope, _, name = subscriber.partition("/")
    return scope, name
