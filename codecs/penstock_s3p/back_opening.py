"""Builds the S3P back from its table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from penstock.core.delivery import Delivery
from penstock.net.upstream import Upstream
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import upstream_settings
from penstock.routing.target import Target
from penstock_s3p.back import S3PBackSettings, open_s3p
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.config import S3PBackTable
from penstock_s3p.names import s3p_names

__all__ = ["open_back", "s3p_back_settings"]


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: S3PBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    server = Upstream(upstream_settings(name, table, table.address, "s3p"), watch=context.watch)
    async with (
        open_s3p(server, s3p_back_settings(table)) as native,
        context.numbered(native, name, table) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "s3p", back, table.delivery, breaker=server.breaker)


def s3p_back_settings(table: S3PBackTable) -> S3PBackSettings:
    """Return the settings of a client of an S3P server."""
    limits = table.limits
    return S3PBackSettings(
        names=s3p_names(table.names, table.basin),
        limits=replace(
            S3PLimits(),
            max_records_per_append=limits.max_records_per_append,
            max_record_bytes=limits.max_record_bytes,
            max_append_bytes=limits.max_append_bytes,
        ),
        loss=table.loss.policy,
        delivery=Delivery(table.delivery),
        split_appends=table.split_appends,
        trim_keeps_last=table.trim_keeps_last,
        recover_seconds=table.recover_seconds,
    )
