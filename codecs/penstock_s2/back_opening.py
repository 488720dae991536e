"""Builds the S2 backs from their tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from penstock.backends.trim_points import TrimPoints
from penstock.core.delivery import Delivery
from penstock.net.http.client.settings import HttpVersion
from penstock.net.upstream import Credentials, CredentialsMode, Upstream
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.target import Target
from penstock.wire.compression import Compression
from penstock_s2.back.back import open_s2
from penstock_s2.back.settings import BasinStyle, S2BackSettings
from penstock_s2.config import S2BackTable, S2SseBackTable

__all__ = ["credentials", "open_s2_back", "open_s2_sse_back", "s2_back_settings"]

_COMPRESSION: Final = {"none": Compression.NONE, "zstd": Compression.ZSTD, "gzip": Compression.GZIP}


@asynccontextmanager
async def open_s2_back(context: BackContext, name: str, table: S2BackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    server = _server(context, name, table)
    async with (
        open_s2(s2_back_settings(table), server, cuts=TrimPoints(context.embedded, name)) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "s2", back, table.delivery, breaker=server.breaker)


@asynccontextmanager
async def open_s2_sse_back(context: BackContext, name: str, table: S2SseBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    from penstock_s2.back.sse import open_s2_sse

    server = _server(context, name, table)
    async with (
        open_s2_sse(s2_back_settings(table), server) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "s2-sse", back, "refuse", breaker=server.breaker)


def _server(context: BackContext, name: str, table: S2BackTable | S2SseBackTable) -> Upstream:
    settings = upstream_settings(name, table, table.address, "s2")
    return Upstream(settings, credentials(name, table), watch=context.watch)


def credentials(name: str, table: S2BackTable | S2SseBackTable) -> Credentials:
    """Return the credentials to present to a server. Raises CannotStart for a file that cannot be used."""
    mode = CredentialsMode(table.credentials)
    own = table.token if table.token_file is None else secret_in(f"backs.{name}.token_file", table.token_file)
    without_identity = {"": own} if own is not None and mode is CredentialsMode.SWAP else {}
    return Credentials(back=name, mode=mode, secret=own, by_identity={**table.tokens, **without_identity})


def s2_back_settings(table: S2BackTable | S2SseBackTable) -> S2BackSettings:
    """Return the settings of a client of an S2 server."""
    settings = S2BackSettings(
        http=HttpVersion(table.http),
        basin_style=BasinStyle(table.basin_style),
        basin_authority=table.basin_authority,
        recover_seconds=table.recover_seconds,
    )
    if isinstance(table, S2SseBackTable):
        return replace(settings, sse_dialect=table.sse_dialect)
    return replace(settings, delivery=Delivery(table.delivery), compression=_COMPRESSION[table.compression])
