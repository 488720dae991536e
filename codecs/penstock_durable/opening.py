"""Builds the front of Durable Streams from its table."""

from __future__ import annotations

from penstock.core.address import Address
from penstock.net.http.front_server import refuse_http
from penstock.net.http.serving import HttpSettings
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.access.clients import ClientRules
from penstock.wire.http import HttpLimits
from penstock_durable.config import DurableListener, DurableListenerLimits
from penstock_durable.front import DurableFront, DurableSettings
from penstock_durable.names import names_of

__all__ = ["durable_settings", "http_settings", "open_listener"]


def open_listener(context: ListenerContext, label: str, table: DurableListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    clients = context.clients(table.auth_tokens, anonymous=table.anonymous)
    settings, http = durable_settings(table, clients, context.drain_seconds), http_settings(table.limits)
    backs = {route.holder.target.name for route in context.router.routes}
    if len(backs) == 1:
        [settings.home] = backs
    back, own = context.back(label, tokens=True), context.back(label)
    front = DurableFront(context.faulty(back, label, in_sessions=True), own, settings)
    server = context.http_server(front, http)
    return OpenListener(
        server.serve, server.begin_drain, (back, own), (settings, http), front.run, refuse_http, table.path
    )


def durable_settings(listener: DurableListener, clients: ClientRules, drain_seconds: float) -> DurableSettings:
    """Return the settings of the front."""
    limits = listener.limits
    hosts = None
    if not clients.closed and listener.tls_certificate is None:  # a page that uses DNS rebinding has no token
        hosts = frozenset({Address.parse(listener.bind).host, *listener.hosts})
    return DurableSettings(
        names=names_of(listener),
        content_type=listener.content_type,
        cors_origins=frozenset(listener.cors_origins),
        hosts=hosts,
        clients=clients,
        shared=not clients.closed and not listener.proves_clients,
        loss=listener.loss.policy,
        max_append_bytes=limits.max_append_bytes,
        max_read_bytes=limits.max_read_bytes,
        long_poll_seconds=limits.long_poll_seconds,
        event_stream_seconds=limits.event_stream_seconds,
        drain_grace_seconds=drain_seconds,
    )


def http_settings(limits: DurableListenerLimits) -> HttpSettings:
    """Return the settings of the listener's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_head=limits.max_head_bytes, max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )
