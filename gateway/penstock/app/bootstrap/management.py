"""The management listener, and its overview of the other parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import trio

from penstock.app.bootstrap.files import handshake_settings, tls_of
from penstock.app.config import (
    EMBEDDED,
    BackTable,
    Config,
    Management,
    kind_of_back,
    listener_kind_of,
)
from penstock.app.config.exposure import is_private
from penstock.app.management.controls import Controls
from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import BackView, Circuit, ListenerView, Overview, RouteView
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.core.identity import NO_IDENTITIES, Identities
from penstock.model.failures import OperationFailed
from penstock.net.accepting import Listener
from penstock.net.breaker import Breaker
from penstock.net.http.front_server import HttpServer
from penstock.net.http.serving import HttpSettings
from penstock.net.tls.handshakes import Handshakes
from penstock.net.upstream import Upstream
from penstock.protocols.plugin import back_kinds, listener_kinds
from penstock.protocols.upstreams import upstream_settings
from penstock.routing.router import Router
from penstock.routing.target import Target
from penstock.wire.http import HttpLimits

__all__ = ["management_listener", "management_settings", "overview"]

_MAX_STREAMS: Final = 100
"""Concurrent HTTP/2 streams of one connection."""


def management_listener(
    config: Config,
    table: Management,
    router: Router,
    traffic: Traffic | None = None,
    identities: Identities = NO_IDENTITIES,
    controls: Controls | None = None,
) -> Listener:
    """Build the management listener, not yet bound."""
    shown, settings = overview(config, router), management_settings(table)
    front = ManagementFront(shown, settings, traffic, controls)
    server = HttpServer(HttpSettings(limits=HttpLimits(max_streams=_MAX_STREAMS)), front)
    address = Address.parse(table.bind)
    handshakes = Handshakes("management", handshake_settings(table, identities), server.serve, server.begin_drain)
    return Listener(
        "management",
        "management",
        address,
        table.max_connections,
        handshakes.serve,
        handshakes.begin_drain,
        duties=front.run,
        tls=tls_of("management", table, over_http=True),
        private=is_private(config, "management", table),
        settings=(shown, settings, handshakes.settings),
    )


def management_settings(table: Management) -> ManagementSettings:
    """Return the settings of the management front."""
    loopback = Address.parse(table.bind).is_loopback
    return ManagementSettings(
        bearer_tokens=frozenset(table.auth_tokens),
        read_tokens=frozenset(table.read_tokens),
        loopback=loopback,
        mcp=table.mcp,
    )


def overview(config: Config, router: Router) -> Overview:
    """Return the overview of all parts that the listener shows."""
    routes = {
        table.name: RouteView(
            name=table.name, match=table.in_words, back=table.back, mirrored=router.mirrored.get(table.name)
        )
        for table in config.routes
    }
    return Overview(listeners=list(_listeners(config, router)), routes=routes, backs=list(_backs(config, router)))


def _listeners(config: Config, router: Router) -> Iterator[ListenerView]:
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        if kind.serves_records:
            terms = kind.terms(listener)
            back = router.for_listener(label, terms.internal_names)
            yield ListenerView(name=f"listeners.{label}", kind=kind.kind, back=back, terms=terms)


def _backs(config: Config, router: Router) -> Iterator[BackView]:
    yield BackView(name=EMBEDDED, kind=EMBEDDED)
    for name, table in config.backs.items():
        address = back_kinds()[kind_of_back(table)].address(table)
        target = router.targets[name]
        if target.breaker is None:
            yield BackView(name=name, kind=target.kind, address=address)
        else:
            watched = _Watched(target, table, target.breaker)
            yield BackView(
                name=name,
                kind=target.kind,
                address=address,
                circuit=watched.circuit,
                probe=watched.probe,
                required=table.required,
            )


class _Watched:
    """A breaker's state in wall-clock time, and the probe that checks whether its server is back."""

    def __init__(self, target: Target, table: BackTable, breaker: Breaker) -> None:
        self._target = target
        self._table = table
        self._breaker = breaker

    async def probe(self) -> None:
        """See `BackView`."""
        if self._breaker.wants_request:
            return
        table = self._table
        address = back_kinds()[kind_of_back(table)].address(table)
        try:
            settings = upstream_settings(self._target.name, table, address, self._target.kind)
            stream = await Upstream(settings, breaker=self._breaker).connect()
        except (OperationFailed, CannotStart):  # the breaker is open, the server unreachable or a file missing
            return
        await trio.aclose_forcefully(stream)

    def circuit(self) -> Circuit:
        """See `BackView`."""
        since = None
        if self._breaker.since:
            since = round((time.time() - (trio.current_time() - self._breaker.since)) * 1000)
        return Circuit(self._breaker.state.value, since, self._breaker.reason, self._breaker.wants_request)
