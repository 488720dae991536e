"""Builds the embedded store of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

import structlog

from penstock.app.config import Basin, Config, SegmentLoss, Store
from penstock.backends.embedded import open_embedded
from penstock.core.back import Back
from penstock.core.segment_names import INTERNAL_BASIN
from penstock.store.settings import StoreSettings
from penstock_codecs.byte_layout import Layout
from penstock_codecs.features import Feature
from penstock_codecs.operations import EnsureBasin, ProvisionResult
from penstock_codecs.streams import BasinConfig, Retention, StreamConfig, TimestampingMode

__all__ = ["ENVELOPES", "apply_basins", "open_store", "store_settings"]

log = structlog.get_logger()


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Back]:
    """Open the embedded store with the configured basins. Raises CannotStart."""
    losses = [segment.loss for segment in config.listeners.segment]
    async with open_embedded(store_settings(config.store, *losses)) as back:
        await apply_basins(back, config)
        yield back


async def apply_basins(back: Back, config: Config, before: Config | None = None) -> None:
    """Create and configure the configured basins: all, or those that differ from `before`. Raises OperationFailed if
    the store fails."""
    known: tuple[Basin, ...] = () if before is None else before.store.basins
    if config.listeners.segment and not (before and before.listeners.segment):
        await back.perform(EnsureBasin(INTERNAL_BASIN, _FOR_EVER))
    for basin in config.store.basins:
        if basin not in known:
            ensured = await back.perform(EnsureBasin(basin.name, _basin_config(basin)))
            if ensured.result is ProvisionResult.UPDATED:
                log.info("basin_reconfigured", basin=basin.name, streams="those that exist keep their configuration")


_FOR_EVER: Final = BasinConfig(default_stream_config=StreamConfig(retention=Retention(None)))
"""Pravega's clients delete their own internal streams; no retention applies to them."""

ENVELOPES: Final = {
    "headers": (Feature.HEADERS, Layout.ENVELOPE_HEADERS),
    "empty_body": (Feature.EMPTY_BODY, Layout.ENVELOPE_EMPTY),
    "command_records": (Feature.COMMAND, Layout.ENVELOPE_COMMANDS),
}
"""The feature and the store's layout of each key of the segment listener's loss table."""


def store_settings(store: Store, *losses: SegmentLoss) -> StoreSettings:
    """Return the settings of the store. What any segment listener wants enveloped (`losses`) is enveloped for all."""
    envelopes = [
        layout for key, (_, layout) in ENVELOPES.items() if any(getattr(loss, key) == "envelope" for loss in losses)
    ]
    return StoreSettings(
        directory=Path(store.directory),
        append_inflight_bytes=store.append_inflight_bytes,
        tail_cache_bytes=store.tail_cache_bytes,
        read_ahead_batches=store.read_ahead_batches,
        cached_streams=store.cached_streams,
        reader_threads=store.reader_threads,
        sweep_interval_seconds=store.sweep_interval_seconds,
        envelopes=reduce(or_, envelopes, Layout.PLAIN),
    )


def _basin_config(basin: Basin) -> BasinConfig:
    return BasinConfig(
        create_stream_on_append=basin.create_stream_on_append,
        create_stream_on_read=basin.create_stream_on_read,
        default_stream_config=StreamConfig(
            retention=Retention(basin.retention_seconds or None),
            timestamping_mode=TimestampingMode(basin.timestamping_mode),
        ),
    )
