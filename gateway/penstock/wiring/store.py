"""The embedded store, as a configuration has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

from penstock.backs.base import Back
from penstock.backs.embedded import open_embedded
from penstock.config import Basin, Config, SegmentLoss, Store
from penstock.routing.segments import INTERNAL_BASIN
from penstock.store.settings import StoreSettings
from penstock_codecs.byte_layout import Layout
from penstock_codecs.features import Feature
from penstock_codecs.operations import EnsureBasin
from penstock_codecs.streams import BasinConfig, Retention, StreamConfig, TimestampingMode

__all__ = ["ENVELOPES", "apply_basins", "open_store", "store_settings"]


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Back]:
    """The embedded store, with the configured basins in it. Raises CannotStart."""
    losses = [segment.loss for segment in config.listeners.segment]
    async with open_embedded(store_settings(config.store, *losses)) as back:
        await apply_basins(back, config)
        yield back


async def apply_basins(back: Back, config: Config, before: Config | None = None) -> None:
    """Create the configured basins, and configure them as they are to be: all, or those that were otherwise before.
    Raises OperationFailed where the store fails."""
    known: tuple[Basin, ...] = () if before is None else before.store.basins
    if config.listeners.segment and not (before and before.listeners.segment):
        await back.perform(EnsureBasin(INTERNAL_BASIN, _FOR_EVER))
    for basin in config.store.basins:
        if basin not in known:
            await back.perform(EnsureBasin(basin.name, _basin_config(basin)))


_FOR_EVER: Final = BasinConfig(default_stream_config=StreamConfig(retention=Retention(None)))
"""What Pravega's clients keep for themselves goes when they delete it."""

ENVELOPES: Final = {
    "headers": (Feature.HEADERS, Layout.ENVELOPE_HEADERS),
    "empty_body": (Feature.EMPTY_BODY, Layout.ENVELOPE_EMPTY),
    "command_records": (Feature.COMMAND, Layout.ENVELOPE_COMMANDS),
}
"""For each key of the segment listener's loss table what it is about, and how that looks to the store."""


def store_settings(store: Store, *losses: SegmentLoss) -> StoreSettings:
    """What the store is told; `losses`: of the segment listeners. What one of them wants enveloped is, for all."""
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
