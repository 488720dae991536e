"""Builds the segment back from its table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from penstock.backends.combined import Combined
from penstock.backends.logged_tables import ByteLog, LoggedTables, open_logged_tables
from penstock.core.delivery import Delivery
from penstock.net.upstream import Watch
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.target import Target
from penstock_pravega.codec import Dialect
from penstock_pravega.segment.back import SegmentBackSettings, open_segment
from penstock_pravega.segment.config import SegmentBackTable
from penstock_pravega.segment.names import SegmentName, SegmentNames

__all__ = ["open_back", "open_state", "segment_back_settings"]


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: SegmentBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    # Gateways with the same state append to the same segments, and each must know where its records are.
    settings = replace(segment_back_settings(name, table), one_in_flight=isinstance(context.embedded, LoggedTables))
    async with (
        open_segment(settings, watch=context.watch) as back,
        context.numbered(back.native, name, table) as records,
    ):
        combined = Combined(records, back.direct)
        yield Target(name, "segment", combined, table.delivery, settings.names, back.breaker)


@asynccontextmanager
async def open_state(name: str, table: SegmentBackTable, watch: Watch) -> AsyncIterator[LoggedTables]:
    """See `penstock.protocols.plugin.BackKind.open_state`."""
    assert table.state_stream is not None, "the stream is configured"
    settings = segment_back_settings(name, table)
    stream = settings.names.to_stream(SegmentName.parse(table.state_stream, table.basin))
    async with (
        open_segment(settings, watch=watch) as back,
        open_logged_tables(
            ByteLog(back.direct, stream, settings.upstream.where, table.recover_seconds), table.state_max_bytes
        ) as tables,
    ):
        yield tables


def segment_back_settings(name: str, table: SegmentBackTable) -> SegmentBackSettings:
    """Return the settings of a client of a segment store. Raises CannotStart for files that cannot be used."""
    file = table.password_file
    return SegmentBackSettings(
        store=None if table.address is None else upstream_settings(name, table, table.address, "segment"),
        controller=None if table.controller is None else upstream_settings(name, table, table.controller, "controller"),
        username=table.username,
        password="" if file is None else secret_in(f"backs.{name}.password_file", file),
        names=SegmentNames(table.basin),
        dialect=Dialect(table.dialect),
        loss=table.loss.policy,
        keep_empty=table.loss.keep_empty,
        delivery=Delivery(table.delivery),
        recover_seconds=table.recover_seconds,
    )
