"""Builds the embedded store of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from penstock.app.config import BasinTable, Config
from penstock.backends.embedded import open_embedded
from penstock.core.back import Back
from penstock.protocols.plugin import listener_kinds
from penstock.store.settings import StoreSettings
from penstock_codecs.operations import EnsureBasin, ProvisionResult
from penstock_codecs.streams import BasinConfig, Cipher, Retention, StreamConfig, TimestampingMode

__all__ = ["apply_basins", "open_store", "store_settings"]

log = structlog.get_logger()


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Back]:
    """Open the embedded store with the configured basins. Raises CannotStart."""
    async with open_embedded(store_settings(config)) as back:
        await apply_basins(back, config)
        yield back


async def apply_basins(back: Back, config: Config, before: Config | None = None) -> None:
    """Create and configure the configured basins: all, or those that differ from `before`. Raises OperationFailed if
    the store fails."""
    known: tuple[BasinTable, ...] = () if before is None else before.store.basins
    for name, kind in listener_kinds().items():
        if getattr(config.listeners, name) and not (before and getattr(before.listeners, name)):
            for basin, settings in kind.basins.items():
                await back.perform(EnsureBasin(basin, settings))
    for table in config.store.basins:
        if table not in known:
            ensured = await back.perform(EnsureBasin(table.name, _basin_config(table)))
            if ensured.result is ProvisionResult.UPDATED:
                log.info("basin_reconfigured", basin=table.name, streams="those that exist keep their configuration")


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


def _basin_config(basin: BasinTable) -> BasinConfig:
    return BasinConfig(
        create_stream_on_append=basin.create_stream_on_append,
        create_stream_on_read=basin.create_stream_on_read,
        stream_cipher=None if basin.stream_cipher == "none" else Cipher(basin.stream_cipher),
        default_stream_config=StreamConfig(
            retention=Retention(basin.retention_seconds or None),
            timestamping_mode=TimestampingMode(basin.timestamping_mode),
        ),
    )
