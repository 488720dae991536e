"""Creating, configuring and deleting basins and streams (S2 fact sheet, 1.3).

Every method decides in memory, hands its change to the committer, and waits until all decisions that the answer depends
on are durable. Failures wait too: a name is not taken if the creation that took it never becomes durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from penstock.core.partitions import PartitionedNames, shape_conflict
from penstock.model.byte_operations import Seal
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    Provisioned,
    ProvisionResult,
    ReconfigureBasin,
    ReconfigureStream,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, BasinInfo, StreamConfig, StreamInfo, check_stream_config
from penstock.store.changes import HeadChange, head_statement
from penstock.store.committer import Committer, Statement, Ticket
from penstock.store.heads import Creation, StoredBasin, StoredStream
from penstock.store.registry import Registry, unknown_basin, unknown_stream
from penstock.store.settings import Clock

__all__ = ["StoreCatalog", "stream_info"]

T = TypeVar("T")

_INSERT_BASIN = """
INSERT INTO basins (id, name, config, created_at, request_token, requested_config) VALUES (?, ?, ?, ?, ?, ?)
"""
_INSERT_STREAM = """
INSERT INTO streams
  (id, basin, name, config, created_at, request_token, requested_config, modified_at, emptied_at, cipher)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class StoreCatalog:
    """The operations on basins and streams, except listing (`listings`)."""

    def __init__(self, registry: Registry, committer: Committer, clock: Clock, on_delete: Callable[[], None]) -> None:
        self._registry = registry
        self._committer = committer
        self._clock = clock
        self._on_delete = on_delete
        self._partitioned = PartitionedNames()

    # ---- basins ----

    async def create_basin(self, operation: CreateBasin) -> Provisioned[BasinInfo]:
        """Carry out `CreateBasin`."""
        check_stream_config(operation.config.default_stream_config)
        existing = self._registry.basin(operation.basin)
        requested = _to_json(operation.config)
        if existing is not None:
            repeated = _is_repeated(existing.creation, operation.request_token, requested)
            return await self._settle(_noop_or_exists(repeated, _basin_info(existing), f"basin {existing.name!r}"))
        return await self._insert_basin(operation.basin, operation.config, operation.request_token)

    async def ensure_basin(self, operation: EnsureBasin) -> Provisioned[BasinInfo]:
        """Carry out `EnsureBasin`."""
        check_stream_config(operation.config.default_stream_config)
        existing = self._registry.basin(operation.basin)
        if existing is None:
            return await self._insert_basin(operation.basin, operation.config, None)
        if existing.head.config == operation.config:
            return await self._settle(Provisioned(_basin_info(existing), ProvisionResult.NOOP))
        return await self._configure_basin(
            existing, operation.config, Provisioned(_basin_info(existing), ProvisionResult.UPDATED)
        )

    async def get_basin_config(self, operation: GetBasinConfig) -> BasinConfig:
        """Carry out `GetBasinConfig`."""
        basin = self._registry.basin(operation.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.basin))
        return await self._settle(basin.head.config)

    async def reconfigure_basin(self, operation: ReconfigureBasin) -> BasinConfig:
        """Carry out `ReconfigureBasin`."""
        basin = self._registry.basin(operation.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.basin))
        config = operation.patch.apply(basin.head.config)
        check_stream_config(config.default_stream_config)
        return await self._configure_basin(basin, config, config)

    async def delete_basin(self, operation: DeleteBasin) -> None:
        """Carry out `DeleteBasin`. Its streams' rows are purged in the background."""
        basin = self._registry.basin(operation.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.basin))
        basin.head = basin.head._replace(alive=False)
        deleted = ("UPDATE basins SET deleted_at = ? WHERE id = ?", (self._clock(), basin.id))
        await self._add(basin, [deleted], None, partial(self._deleted, basin)).ticket.wait()

    async def _insert_basin(self, name: str, config: BasinConfig, token: str | None) -> Provisioned[BasinInfo]:
        encoded = _to_json(config)
        creation = Creation(self._clock(), token, encoded)
        basin = self._registry.new_basin(name, creation, config)
        statement = (_INSERT_BASIN, (basin.id, name, encoded, creation.created_at, token, encoded))
        return await self._commit(basin, [statement], Provisioned(_basin_info(basin), ProvisionResult.CREATED))

    async def _configure_basin(self, basin: StoredBasin, config: BasinConfig, result: T) -> T:
        basin.head = basin.head._replace(config=config)
        encoded = _to_json(config)
        return await self._commit(basin, [("UPDATE basins SET config = ? WHERE id = ?", (encoded, basin.id))], result)

    # ---- streams ----

    async def create_stream(self, operation: CreateStream) -> Provisioned[StreamInfo]:
        """Carry out `CreateStream`."""
        check_stream_config(operation.config)
        basin = self._registry.basin(operation.stream.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.stream.basin))
        existing = self._registry.stream_in(basin, operation.stream.stream)
        if existing is not None:
            requested = _to_json(operation.config)
            repeated = _is_repeated(existing.creation, operation.request_token, requested)
            return await self._settle(
                _noop_or_exists(repeated, stream_info(existing), f"stream {existing.ref.stream!r}")
            )
        if (conflict := self._shape_conflict(basin, operation.stream)) is not None:
            return await self._settle(Failure(FailureCode.INVALID, conflict))
        change = self._insert_stream(basin, operation.stream.stream, operation.config, operation.request_token)
        return await change.ticket.wait()

    async def ensure_stream(self, operation: EnsureStream) -> Provisioned[StreamInfo]:
        """Carry out `EnsureStream`."""
        check_stream_config(operation.config)
        basin = self._registry.basin(operation.stream.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.stream.basin))
        existing = self._registry.stream_in(basin, operation.stream.stream)
        if existing is None:
            if (conflict := self._shape_conflict(basin, operation.stream)) is not None:
                return await self._settle(Failure(FailureCode.INVALID, conflict))
            change = self._insert_stream(basin, operation.stream.stream, operation.config, None)
            return await change.ticket.wait()
        config = operation.config.resolve(basin.head.config.default_stream_config)
        if existing.head.config == config:
            return await self._settle(Provisioned(stream_info(existing), ProvisionResult.NOOP))
        return await self._configure_stream(
            existing, config, Provisioned(stream_info(existing), ProvisionResult.UPDATED)
        )

    async def get_stream_config(self, operation: GetStreamConfig) -> StreamConfig:
        """Carry out `GetStreamConfig`. In an unknown basin, the error is that the stream is unknown (1.3)."""
        stream = self._registry.stream(operation.stream)
        if stream is None:
            raise await self._refused(unknown_stream(operation.stream))
        return await self._settle(stream.config)

    async def reconfigure_stream(self, operation: ReconfigureStream) -> StreamConfig:
        """Carry out `ReconfigureStream`."""
        basin = self._registry.basin(operation.stream.basin)
        if basin is None:
            raise await self._refused(unknown_basin(operation.stream.basin))
        stream = self._registry.stream_in(basin, operation.stream.stream)
        if stream is None:
            raise await self._refused(unknown_stream(operation.stream))
        config = operation.patch.apply(stream.head.config).resolve(basin.head.config.default_stream_config)
        check_stream_config(config)
        return await self._configure_stream(stream, config, config)

    async def delete_stream(self, operation: DeleteStream) -> None:
        """Carry out `DeleteStream`. Its rows are purged in the background."""
        stream = self._registry.stream(operation.stream)
        if stream is None:
            raise await self._refused(unknown_stream(operation.stream))
        await self.delete(stream).ticket.wait()

    def delete(self, stream: StoredStream) -> HeadChange[None]:
        """Decide to delete an existing stream, and return the change."""
        change = self.deletion(stream)
        self._committer.add(change)
        return change

    def deletion(self, stream: StoredStream) -> HeadChange[None]:
        """Decide to delete an existing stream; the caller hands the change to the committer."""
        stream.head = stream.head._replace(alive=False)
        deleted = ("UPDATE streams SET deleted_at = ? WHERE id = ?", (self._clock(), stream.id))
        return HeadChange(self._registry, stream, [deleted], None, partial(self._deleted, stream))

    async def seal(self, operation: Seal) -> int:
        """Carry out `Seal` and return the length. Wakes the followers."""
        stream = self._registry.stream(operation.stream)
        if stream is None:
            raise await self._refused(unknown_stream(operation.stream))
        self.decide_seal(stream)
        return await self._settle(stream.head.next_offset)

    def decide_seal(self, stream: StoredStream) -> None:
        """Decide to seal an existing stream, unless it is sealed already."""
        if stream.head.sealed:
            return
        now = self._clock()
        stream.head = stream.head._replace(sealed=True, last_modified=now)
        self._add(stream, [head_statement(stream, stream.head, now)], None, partial(self._sealed, stream))

    def _sealed(self, stream: StoredStream) -> None:
        stream.followers.unpark_all()

    def _deleted(self, entity: StoredBasin | StoredStream) -> None:
        """Wake the followers of a deleted stream, or of a deleted basin's streams."""
        for stream in [entity] if isinstance(entity, StoredStream) else self._registry.cached_streams(entity):
            stream.followers.unpark_all()
        self._on_delete()

    def find(self, ref: StreamRef) -> StoredStream:
        """Return the stream, in its decided state. Raises OperationFailed at once: STREAM_NOT_FOUND."""
        stream = self._registry.stream(ref)
        if stream is None:
            raise unknown_stream(ref)
        return stream

    def find_or_create(
        self, ref: StreamRef, may_create: bool, flag: str, config: StreamConfig | None
    ) -> tuple[StoredStream, Ticket[Provisioned[StreamInfo]] | None]:
        """Return the stream, or create it if the basin's configuration `flag` says so.

        A new stream gets `config` as its layer of configuration, and is returned with a ticket for its creation. Raises
        OperationFailed at once: INVALID, BASIN_NOT_FOUND, STREAM_NOT_FOUND.
        """
        basin = self._registry.basin(ref.basin)
        if basin is None:
            raise unknown_basin(ref.basin)
        stream = self._registry.stream_in(basin, ref.stream)
        if stream is not None:
            return stream, None
        if not (may_create and getattr(basin.head.config, flag)):
            raise unknown_stream(ref)
        if (conflict := self._shape_conflict(basin, ref)) is not None:
            raise fail(FailureCode.STREAM_NOT_FOUND, conflict)
        layer = config or StreamConfig()
        check_stream_config(layer)
        change = self._insert_stream(basin, ref.stream, layer, None)
        stream = self._registry.stream_in(basin, ref.stream)
        assert stream is not None
        return stream, change.ticket

    def declare_partitioned(self, basin: str, prefix: str) -> None:
        """See `Back.declare_partitioned`."""
        self._partitioned.declare(basin, prefix)

    def _shape_conflict(self, basin: StoredBasin, ref: StreamRef) -> str | None:
        """Return the reason that a missing stream cannot be created beside its other shape, None if it can."""
        whole = self._partitioned.whole(ref)
        existing = None
        if whole is not None:
            existing = None if self._registry.stream_in(basin, whole) is None else whole
        elif self._partitioned.may_be_divided(ref):
            existing = self._registry.partition_of(basin, ref.stream)
        return None if existing is None else shape_conflict(ref, existing)

    def _insert_stream(
        self, basin: StoredBasin, name: str, config: StreamConfig, token: str | None
    ) -> HeadChange[Provisioned[StreamInfo]]:
        requested = _to_json(config)
        config = config.resolve(basin.head.config.default_stream_config)
        now = self._clock()
        stream = self._registry.new_stream(basin, name, Creation(now, token, requested), config)
        cipher = stream.head.cipher and stream.head.cipher.value
        values = (stream.id, basin.id, name, _to_json(config), now, token, requested, now, now, cipher)
        return self._add(stream, [(_INSERT_STREAM, values)], Provisioned(stream_info(stream), ProvisionResult.CREATED))

    async def _configure_stream(self, stream: StoredStream, config: StreamConfig, result: T) -> T:
        stream.head = stream.head._replace(config=config)
        encoded = _to_json(config)
        return await self._commit(
            stream, [("UPDATE streams SET config = ? WHERE id = ?", (encoded, stream.id))], result
        )

    # ---- both ----

    def _add(
        self,
        entity: StoredBasin | StoredStream,
        statements: Sequence[Statement],
        result: T,
        then: Callable[[], None] | None = None,
    ) -> HeadChange[T]:
        change = HeadChange(self._registry, entity, statements, result, then)
        self._committer.add(change)
        return change

    async def _commit(self, entity: StoredBasin | StoredStream, statements: Sequence[Statement], result: T) -> T:
        return await self._add(entity, statements, result).ticket.wait()

    async def _settle(self, outcome: T | Failure) -> T:
        return await self._committer.settle(outcome)

    async def _refused(self, error: OperationFailed) -> OperationFailed:
        """Return the error once all decisions that it depends on are durable. Raises OperationFailed if that fails."""
        await self._committer.settle(None)
        return error


def _to_json(config: BasinConfig | StreamConfig) -> str:
    return msgspec.json.encode(config).decode()


def _is_repeated(creation: Creation, token: str | None, requested: str) -> bool:
    return token is not None and creation.request_token == token and creation.requested_config == requested


def _noop_or_exists(repeated: bool, info: T, what: str) -> Provisioned[T] | Failure:
    if repeated:
        return Provisioned(info, ProvisionResult.NOOP)
    return Failure(FailureCode.RESOURCE_ALREADY_EXISTS, f"{what} already exists")


def _basin_info(basin: StoredBasin) -> BasinInfo:
    return BasinInfo(name=basin.name, created_at=basin.creation.created_at)


def stream_info(stream: StoredStream) -> StreamInfo:
    """Return what a listing tells of a stream."""
    created_at, cipher = stream.creation.created_at, stream.head.cipher
    return StreamInfo(name=stream.ref.stream, created_at=created_at, cipher=cipher)
