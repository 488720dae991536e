"""Builds the back of Durable Streams from its table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from penstock.core.delivery import Delivery
from penstock.net.http.client.settings import HttpVersion
from penstock.net.upstream import Credentials, CredentialsMode, Upstream, UpstreamSettings
from penstock.protocols.back_opening import BackContext
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.target import Target
from penstock_durable.back import DurableBackSettings, open_durable
from penstock_durable.codec import RECORDS_TYPE
from penstock_durable.config import DurableBackTable
from penstock_durable.names import names_of

__all__ = ["credentials", "durable_back_settings", "durable_upstream_settings", "open_back"]


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: DurableBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    server = Upstream(durable_upstream_settings(name, table), credentials(name, table), watch=context.watch)
    async with (
        open_durable(server, context.embedded, durable_back_settings(table)) as native,
        context.numbered(native, name, table) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "durable", back, table.delivery, breaker=server.breaker)


def durable_upstream_settings(name: str, table: DurableBackTable) -> UpstreamSettings:
    """Return the settings of connections to a server. Raises CannotStart for files that cannot be used."""
    return replace(upstream_settings(name, table, table.address, "durable"), path=table.path)


def credentials(name: str, table: DurableBackTable) -> Credentials:
    """Return the credentials to present to a server. Raises CannotStart for a file that cannot be used."""
    own = table.token if table.token_file is None else secret_in(f"backs.{name}.token_file", table.token_file)
    return Credentials(back=name, mode=CredentialsMode.NONE if own is None else CredentialsMode.STATIC, secret=own)


def durable_back_settings(table: DurableBackTable) -> DurableBackSettings:
    """Return the settings of a client of a server."""
    return DurableBackSettings(
        names=names_of(table),
        http=HttpVersion(table.http),
        create_type=RECORDS_TYPE if table.create_as == "records" else "application/json",
        delivery=Delivery(table.delivery),
        drop_headers=table.loss.headers == "drop",
        max_append_bytes=table.max_append_bytes,
        recover_seconds=table.recover_seconds,
    )
