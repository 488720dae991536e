"""Builds the S2 listener's front and the S2 backs from their tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from penstock.backends.trim_points import TrimPoints
from penstock.core.address import Address
from penstock.core.delivery import Delivery
from penstock.core.identity import NO_IDENTITIES, Identities
from penstock.net.http.client.settings import HttpVersion
from penstock.net.http.front_server import refuse_http
from penstock.net.http.serving import HttpSettings
from penstock.net.upstream import Credentials, CredentialsMode, Upstream
from penstock.protocols.opening import BackContext, ListenerContext, OpenListener
from penstock.protocols.s2.back.back import open_s2
from penstock.protocols.s2.back.settings import BasinStyle, S2BackSettings
from penstock.protocols.s2.back.sse import open_s2_sse
from penstock.protocols.s2.config import S2BackTable, S2Listener, S2ListenerLimits, S2SseBackTable
from penstock.protocols.s2.front import S2Front, S2Settings
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.access.authority import Authority
from penstock.routing.target import Target
from penstock_codecs.compression import Compression
from penstock_codecs.http import HttpLimits

__all__ = [
    "credentials",
    "http_settings",
    "open_listener",
    "open_s2_back",
    "open_s2_sse_back",
    "s2_back_settings",
    "s2_settings",
]


def open_listener(context: ListenerContext, label: str, table: S2Listener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    settings = s2_settings(table, context.drain_seconds, context.identities, context.access)
    http, back = http_settings(table.limits), context.back(label, tokens=True)
    server = context.http_server(S2Front(context.faulty(back, label, in_sessions=True), settings), http)
    return OpenListener(server.serve, server.begin_drain, back, (settings, http), refuse=refuse_http)


def s2_settings(
    listener: S2Listener, drain_seconds: float, identities: Identities = NO_IDENTITIES, access: Authority | None = None
) -> S2Settings:
    """Return the settings of the S2 front."""
    return S2Settings(
        default_basin=listener.default_basin,
        location=listener.location,
        basin_host_suffixes=listener.basin_host_suffixes,
        cors_origins=frozenset(listener.cors_origins),
        hosts=_hosts(listener, access),
        bearer_tokens=frozenset(listener.auth_tokens),
        sse_dialect=listener.sse_dialect,
        compress=listener.compress,
        identities=identities,
        access=access,
        anonymous=listener.anonymous,
        drain_grace_seconds=drain_seconds,
    )


def _hosts(listener: S2Listener, access: Authority | None) -> frozenset[str] | None:
    """Return the allowed host names, or None to allow all: a page that uses DNS rebinding has neither a token nor a
    certificate."""
    proven = bool(listener.auth_tokens or access is not None) and not listener.anonymous
    if proven or listener.tls_certificate is not None:
        return None
    bound = Address.parse(listener.bind).host
    return frozenset({bound, *listener.hosts, *(f"*{suffix}" for suffix in listener.basin_host_suffixes)})


def http_settings(limits: S2ListenerLimits) -> HttpSettings:
    """Return the settings of an S2 listener's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_head=limits.max_head_bytes, max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
        receive_buffer=limits.receive_buffer_bytes,
        send_buffer=limits.send_buffer_bytes,
        max_unsent=limits.max_unsent_bytes,
    )


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


_COMPRESSION: Final = {"none": Compression.NONE, "zstd": Compression.ZSTD, "gzip": Compression.GZIP}


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
