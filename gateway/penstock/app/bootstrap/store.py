"""Builds the embedded store of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from penstock.app.config import BasinTable, Config, StreamTable, kind_of_back
from penstock.app.config.references import state_back
from penstock.backends.embedded import open_embedded
from penstock.core.back import Back
from penstock.core.dumps import forbid_dumps
from penstock.core.errors import CannotStart
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Capability, EnsureBasin, EnsureStream, ProvisionResult
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, Cipher, Retention, StreamConfig, TimestampingMode
from penstock.net.upstream import Watch, unwatched
from penstock.protocols.plugin import back_kinds, listener_kinds
from penstock.store.settings import StoreSettings

__all__ = ["apply_resources", "open_store", "store_settings"]

log = structlog.get_logger()


@asynccontextmanager
async def open_store(config: Config, watch: Watch = unwatched) -> AsyncIterator[Back]:
    """Open the embedded store with the configured basins and streams, or what a server keeps in its place. `watch` is
    called with each connection to that server. Raises CannotStart."""
    if (name := state_back(config.backs)) is not None:
        table = config.backs[name]
        async with back_kinds()[kind_of_back(table)].open_state(name, table, watch) as state:
            yield state
        return
    async with open_embedded(store_settings(config)) as back:
        await apply_resources(back, config)
        yield back


async def apply_resources(back: Back, config: Config, before: Config | None = None) -> None:
    """Create and configure the configured basins and streams: all, or those that differ from `before`. Raises
    OperationFailed if the store fails, CannotStart for a stream without a basin."""
    if Capability.BASINS not in back.capabilities:
        return
    known: tuple[BasinTable, ...] = () if before is None else before.store.basins
    for name, kind in listener_kinds().items():
        if getattr(config.listeners, name) and not (before and getattr(before.listeners, name)):
            for basin, settings in kind.basins.items():
                await back.perform(EnsureBasin(basin, settings))
    for table in config.store.basins:
        if table.stream_cipher != "none":
            forbid_dumps()  # before the first key comes
        if table not in known:
            ensured = await back.perform(EnsureBasin(table.name, _basin_config(table)))
            if ensured.result is ProvisionResult.UPDATED:
                log.info("basin_reconfigured", basin=table.name, streams="those that exist keep their configuration")
    known_streams: tuple[StreamTable, ...] = () if before is None else before.store.streams
    for stream in config.store.streams:
        if stream not in known_streams:
            await _apply_stream(back, stream)


async def _apply_stream(back: Back, table: StreamTable) -> None:
    """Create or configure a stream. Raises CannotStart if there is no such basin."""
    stream = StreamRef(table.basin, table.name)
    try:
        made = await back.perform(EnsureStream(stream, _stream_config(table)))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
            raise
        raise CannotStart(f"[[store.streams]]: stream {table.name!r} needs a basin {table.basin!r}") from None
    if made.result is ProvisionResult.UPDATED:
        log.info("stream_reconfigured", stream=str(stream))


def store_settings(config: Config) -> StoreSettings:
    """Return the settings of the store."""
    store = config.store
    return StoreSettings(
        directory=Path(store.directory),
        append_inflight_bytes=store.append_inflight_bytes,
        tail_cache_bytes=store.tail_cache_bytes,
        read_ahead_batches=store.read_ahead_batches,
        cached_streams=store.cached_streams,
        reader_threads=store.reader_threads,
        sweep_interval_seconds=store.sweep_interval_seconds,
        envelopes=config.listeners.envelopes,
    )


def _stream_config(table: StreamTable) -> StreamConfig:
    mode = table.timestamping_mode
    return StreamConfig(
        storage_class=table.storage_class,
        retention=None if table.retention_seconds is None else Retention(table.retention_seconds or None),
        retention_bytes=table.retention_bytes,
        timestamping_mode=None if mode is None else TimestampingMode(mode),
        timestamping_uncapped=table.timestamping_uncapped,
        delete_on_empty_seconds=table.delete_on_empty_seconds,
    )


def _basin_config(basin: BasinTable) -> BasinConfig:
    return BasinConfig(
        create_stream_on_append=basin.create_stream_on_append,
        create_stream_on_read=basin.create_stream_on_read,
        stream_cipher=None if basin.stream_cipher == "none" else Cipher(basin.stream_cipher),
        default_stream_config=StreamConfig(
            retention=Retention(basin.retention_seconds or None),
            retention_bytes=basin.retention_bytes,
            timestamping_mode=TimestampingMode(basin.timestamping_mode),
        ),
    )
