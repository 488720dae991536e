"""Builds the front and the back of Durable Streams from their tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.address import Address
from penstock.core.delivery import Delivery
from penstock.net.http.client.settings import HttpVersion
from penstock.net.http.front_server import refuse_http
from penstock.net.http.serving import HttpSettings
from penstock.net.upstream import Credentials, CredentialsMode, Upstream
from penstock.protocols.durable.back import DurableBackSettings, open_durable
from penstock.protocols.durable.config import DurableBackTable, DurableListener, DurableListenerLimits
from penstock.protocols.durable.front import DurableFront, DurableSettings
from penstock.protocols.durable.names import DurableNames
from penstock.protocols.opening import BackContext, ListenerContext, OpenListener
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.access.clients import ClientRules
from penstock.routing.target import Target
from penstock_codecs.durable import RECORDS_TYPE
from penstock_codecs.http import HttpLimits

__all__ = [
    "credentials",
    "durable_back_settings",
    "durable_settings",
    "http_settings",
    "names_of",
    "open_back",
    "open_listener",
]


def open_listener(context: ListenerContext, label: str, table: DurableListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    clients = ClientRules(frozenset(table.auth_tokens), context.identities, context.access, table.anonymous)
    settings, http = durable_settings(table, clients, context.drain_seconds), http_settings(table.limits)
    back, own = context.back(label, tokens=True), context.back(label)
    front = DurableFront(context.faulty(back, label, in_sessions=True), own, settings)
    server = context.http_server(front, http, own_bodies=False)
    return OpenListener(server.serve, server.begin_drain, back, (settings, http), front.run, refuse_http)


def durable_settings(listener: DurableListener, clients: ClientRules, drain_seconds: float) -> DurableSettings:
    """Return the settings of the front."""
    limits = listener.limits
    proven = bool(clients.tokens or clients.access is not None) and not listener.anonymous
    hosts = None
    if not proven and listener.tls_certificate is None:  # a page that uses DNS rebinding has no token
        hosts = frozenset({Address.parse(listener.bind).host, *listener.hosts})
    return DurableSettings(
        names=names_of(listener),
        content_type=listener.content_type,
        cors_origins=frozenset(listener.cors_origins),
        hosts=hosts,
        clients=clients,
        shared=not proven and not listener.proves_clients,
        loss=listener.loss.policy,
        max_append_bytes=limits.max_append_bytes,
        max_read_bytes=limits.max_read_bytes,
        long_poll_seconds=limits.long_poll_seconds,
        event_stream_seconds=limits.event_stream_seconds,
        drain_grace_seconds=drain_seconds,
    )


def names_of(table: DurableListener | DurableBackTable) -> DurableNames:
    """Return the mapping between URLs and streams."""
    return DurableNames(table.path, table.basin if table.names == "fixed" else None)


def http_settings(limits: DurableListenerLimits) -> HttpSettings:
    """Return the settings of the listener's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_head=limits.max_head_bytes, max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: DurableBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    settings = upstream_settings(name, table, table.address, "durable")
    server = Upstream(settings, credentials(name, table), watch=context.watch)
    async with (
        open_durable(server, context.embedded, durable_back_settings(table)) as native,
        context.numbered(native, name, table) as records,
        context.with_bytes(records, name) as back,
    ):
        yield Target(name, "durable", back, table.delivery, breaker=server.breaker)


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
        max_append_bytes=table.max_append_bytes,
        recover_seconds=table.recover_seconds,
    )
