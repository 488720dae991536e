"""The management listener, and what it shows of the other parts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import trio

from penstock.accepting import Listener
from penstock.backs.breaker import Breaker
from penstock.backs.upstream import Upstream
from penstock.config import (
    EMBEDDED,
    Address,
    BackTable,
    Config,
    Management,
    S2Listener,
    S3PListener,
    SegmentBack,
    SegmentListener,
)
from penstock.config.exposure import is_private
from penstock.errors import CannotStart
from penstock.fronts.http_server import HttpSettings
from penstock.identity import NOBODY, Identities
from penstock.management.controls import Controls
from penstock.management.front import ManagementFront
from penstock.management.overview import BackView, Circuit, ListenerView, Overview, RouteView
from penstock.management.settings import ManagementSettings
from penstock.management.traffic import Traffic
from penstock.routing.names import s3p_names
from penstock.routing.router import Router
from penstock.routing.segments import SegmentNames
from penstock.routing.target import Target
from penstock.tls.handshakes import Handshakes
from penstock.wiring.files import handshake_settings, tls_of
from penstock.wiring.http import HttpServer
from penstock.wiring.upstreams import upstream_settings
from penstock_codecs.failures import OperationFailed

__all__ = ["management_listener", "management_settings", "overview"]


def management_listener(
    config: Config,
    table: Management,
    router: Router,
    traffic: Traffic | None = None,
    identities: Identities = NOBODY,
    controls: Controls | None = None,
) -> Listener:
    """The listener, not yet bound."""
    shown, settings = overview(config, router), management_settings(table)
    front = ManagementFront(shown, settings, traffic, controls)
    server = HttpServer(HttpSettings(), front)
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
        tls=tls_of("management", table),
        private=is_private(config, "management", table),
        settings=(shown, settings, handshakes.settings),
    )


def management_settings(table: Management) -> ManagementSettings:
    """What the front is told."""
    loopback = Address.parse(table.bind).is_loopback
    return ManagementSettings(bearer_tokens=frozenset(table.auth_tokens), loopback=loopback)


def overview(config: Config, router: Router) -> Overview:
    """All parts, as the listener shows them."""
    routes = {
        table.name: RouteView(
            name=table.name, match=table.in_words, back=table.back, mirrored=router.mirrored.get(table.name)
        )
        for table in config.routes
    }
    return Overview(listeners=list(_listeners(config, router)), routes=routes, backs=list(_backs(config, router)))


def _listeners(config: Config, router: Router) -> Iterator[ListenerView]:
    for label, listener in config.listeners.labelled():
        name, kind = f"listeners.{label}", label.partition(".")[0]
        if isinstance(listener, S2Listener):
            back = router.for_listener(label)
            yield ListenerView(name=name, kind=kind, back=back, sse_dialect=listener.sse_dialect)
        elif isinstance(listener, S3PListener):
            names = s3p_names(listener.names, listener.basin)
            yield ListenerView(name=name, kind=kind, back=router.for_listener(label), s3p=names)
        elif isinstance(listener, SegmentListener):
            segments = SegmentNames(listener.basin)
            back = router.for_listener(label, segments)
            yield ListenerView(name=name, kind=kind, back=back, segment=segments)


def _backs(config: Config, router: Router) -> Iterator[BackView]:
    yield BackView(name=EMBEDDED, kind=EMBEDDED)
    for name, table in config.backs.items():
        address = table.named if isinstance(table, SegmentBack) else table.address
        target = router.targets[name]
        if target.breaker is None:
            yield BackView(name=name, kind=target.kind, address=address)
        else:
            known = _Watched(target, table, target.breaker)
            yield BackView(name=name, kind=target.kind, address=address, circuit=known.circuit, probe=known.probe)


class _Watched:
    """A breaker's state, with times of day; and how it is found out whether the server is there again."""

    def __init__(self, target: Target, table: BackTable, breaker: Breaker) -> None:
        self._target = target
        self._table = table
        self._breaker = breaker

    async def probe(self) -> None:
        """See `BackView`."""
        table = self._table
        address = table.named if isinstance(table, SegmentBack) else table.address
        try:
            settings = upstream_settings(self._target.name, table, address, self._target.kind)
            stream = await Upstream(settings, breaker=self._breaker).connect()
        except (OperationFailed, CannotStart):  # it is not time yet, or the server is not there, or a file is not
            return
        await trio.aclose_forcefully(stream)

    def circuit(self) -> Circuit:
        """See `BackView`."""
        since = None
        if self._breaker.since:
            since = round((time.time() - (trio.current_time() - self._breaker.since)) * 1000)
        return Circuit(self._breaker.state.value, since, self._breaker.reason)
