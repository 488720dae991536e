"""Builds the S2 listener's front from its table."""

from __future__ import annotations

from penstock.core.address import Address
from penstock.net.http.front_server import refuse_http
from penstock.net.http.serving import HttpSettings
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.access.clients import ClientRules
from penstock.wire.http import HttpLimits
from penstock_s2.config import S2Listener, S2ListenerLimits
from penstock_s2.front import S2Front, S2Settings

__all__ = ["http_settings", "open_listener", "s2_settings"]


def open_listener(context: ListenerContext, label: str, table: S2Listener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    clients = context.clients(table.auth_tokens, anonymous=table.anonymous)
    settings = s2_settings(table, clients, context.drain_seconds)
    http, back = http_settings(table.limits), context.back(label, tokens=True)
    front = S2Front(context.faulty(back, label, in_sessions=True), settings)
    server = context.http_server(front, http)
    return OpenListener(server.serve, server.begin_drain, (back,), (settings, http), refuse=refuse_http)


def s2_settings(listener: S2Listener, clients: ClientRules, drain_seconds: float) -> S2Settings:
    """Return the settings of the S2 front."""
    return S2Settings(
        default_basin=listener.default_basin,
        location=listener.location,
        basin_host_suffixes=listener.basin_host_suffixes,
        cors_origins=frozenset(listener.cors_origins),
        hosts=_hosts(listener, clients),
        clients=clients,
        sse_dialect=listener.sse_dialect,
        event_stream_seconds=listener.limits.event_stream_seconds,
        compress=listener.compress,
        drain_grace_seconds=drain_seconds,
    )


def _hosts(listener: S2Listener, clients: ClientRules) -> frozenset[str] | None:
    """Return the allowed host names, or None to allow all: a page that uses DNS rebinding has neither a token nor a
    certificate."""
    if clients.closed or listener.tls_certificate is not None:
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
