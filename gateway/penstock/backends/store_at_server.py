"""The stand-in for the embedded store if a server keeps the gateway's state: gateways without a disk.

Tables are on that server's log (`logged_tables`), and basins of servers that have none are rows of a table. Internal
streams, such as transactions of Pravega's clients, are streams of that server, in a basin that no client can name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeVar

import msgspec

from penstock.backends.logged_tables import LoggedTables
from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.clock import Clock, wall_clock
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import (
    Capability,
    CreateBasin,
    DeleteBasin,
    EnsureBasin,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    Operation,
    Page,
    Provisioned,
    ProvisionResult,
    Read,
    ReconfigureBasin,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinInfo, StreamConfig, check_stream_config
from penstock.tables.struct_table import Conflict, Prefix, StructTable, VersionedValue

__all__ = ["StoreAtServer"]

R = TypeVar("R")


class _Basin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A basin: created at, in ms, with the request that `CreateBasin` recognises when it is repeated."""

    created_at: int
    config: BasinConfig
    request_token: str | None = None
    requested: BasinConfig | None = None


_BASINS: Final = Prefix("", _Basin)


class StoreAtServer(Back):
    """The back. `streams` returns the one that has the internal streams."""

    def __init__(self, tables: LoggedTables, streams: Callable[[], Back], clock: Clock = wall_clock) -> None:
        self._tables = tables
        self._streams = streams
        self._clock = clock
        self._basins = StructTable(tables, "basins")
        self._handlers: Final[dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]]] = {
            CreateBasin: self._create,
            EnsureBasin: self._ensure,
            GetBasinConfig: self._config,
            ReconfigureBasin: self._reconfigure,
            DeleteBasin: self._delete,
            ListBasins: self._list,
        }

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Tables and basins."""
        return self._tables.capabilities | {Capability.BASINS}

    async def perform(self, operation: Operation[R]) -> R:
        handler = self._handlers.get(type(operation))
        if handler is not None:
            result: R = await handler(operation)
            return result
        about = operation.about
        basin = operation.basin if isinstance(operation, ListStreams) else "" if about is None else about.basin
        return await self._back_of(basin).perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        return self._back_of(stream.basin).append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._back_of(read.stream.basin).read_session(read)

    def _back_of(self, basin: str) -> Back:
        return self._streams() if basin == INTERNAL_BASIN else self._tables

    # ---- basins ------------------------------------------------------------------------------------------------------

    async def _create(self, operation: CreateBasin) -> Provisioned[BasinInfo]:
        name, token, config = operation.basin, operation.request_token, operation.config
        check_stream_config(config.default_stream_config)
        if name == INTERNAL_BASIN:
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, "the internal basin is always there")
        made = _Basin(self._clock(), config, token, None if token is None else config)
        if await self._basins.add(_BASINS.key(name), made):
            return Provisioned(BasinInfo(name=name, created_at=made.created_at), ProvisionResult.CREATED)
        existing = (await self._find(name)).value
        if token is None or (existing.request_token, existing.requested) != (token, config):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"basin {name!r} already exists")
        return Provisioned(BasinInfo(name=name, created_at=existing.created_at), ProvisionResult.NOOP)

    async def _ensure(self, operation: EnsureBasin) -> Provisioned[BasinInfo]:
        name, config = operation.basin, operation.config
        check_stream_config(config.default_stream_config)
        made = _Basin(self._clock(), config)
        if await self._basins.add(_BASINS.key(name), made):
            return Provisioned(BasinInfo(name=name, created_at=made.created_at), ProvisionResult.CREATED)
        before = await self._change(name, lambda _: config)
        result = ProvisionResult.NOOP if before.config == config else ProvisionResult.UPDATED
        return Provisioned(BasinInfo(name=name, created_at=before.created_at), result)

    async def _config(self, operation: GetBasinConfig) -> BasinConfig:
        return (await self._find(operation.basin)).value.config

    async def _reconfigure(self, operation: ReconfigureBasin) -> BasinConfig:
        return operation.patch.apply((await self._change(operation.basin, operation.patch.apply)).config)

    async def _delete(self, operation: DeleteBasin) -> None:
        await self._find(operation.basin)
        await self._basins.discard(_BASINS.key(operation.basin))

    async def _list(self, operation: ListBasins) -> Page[BasinInfo]:
        basins, has_more = await self._basins.page(_BASINS, operation.start_after, operation.limit, operation.prefix)
        return Page([BasinInfo(name=name, created_at=basin.created_at) for name, basin in basins], has_more)

    async def _find(self, name: str) -> VersionedValue[_Basin]:
        """Return a basin. Raises BASIN_NOT_FOUND."""
        entry = await self._basins.get(_BASINS.key(name))
        if entry is None:
            raise fail(FailureCode.BASIN_NOT_FOUND, f"there is no basin {name!r}")
        return entry

    async def _change(self, name: str, how: Callable[[BasinConfig], BasinConfig]) -> _Basin:
        """Change a basin's configuration; return the basin as it was. Raises BASIN_NOT_FOUND, INVALID."""
        while True:
            basin, version = await self._find(name)
            changed = msgspec.structs.replace(basin, config=how(basin.config))
            check_stream_config(changed.config.default_stream_config)
            if changed == basin:
                return basin
            with suppress(Conflict):
                await self._basins.put(_BASINS.key(name), changed, version)
                return basin
