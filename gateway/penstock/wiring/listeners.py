"""The listeners that a configuration names: each a front over what the router has for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import trio

from penstock.accepting import Listener
from penstock.config import (
    Address,
    AnyListener,
    Config,
    ControllerListener,
    IdentityTable,
    S2Listener,
    S3PListener,
    SegmentListener,
)
from penstock.fronts.controller import ControllerFront
from penstock.fronts.s2 import S2Front
from penstock.fronts.s3p import S3PFront
from penstock.fronts.segment import SegmentFront
from penstock.identity import Identities
from penstock.management.traffic import Traffic
from penstock.routing.router import Router
from penstock.routing.segments import SegmentNames
from penstock.tls.handshakes import Handshakes
from penstock.wiring.files import handshake_settings, tls_of
from penstock.wiring.fronts import (
    controller_http_settings,
    controller_settings,
    http_settings,
    s2_settings,
    s3p_settings,
    segment_settings,
)
from penstock.wiring.http import HttpServer
from penstock.wiring.management import management_listener

__all__ = ["open_listeners"]

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def open_listeners(config: Config, router: Router, traffic: Traffic | None = None) -> list[Listener]:
    """Every listener that is configured, not yet bound. `traffic`: what the management listener knows of connections
    and recordings. Raises CannotStart."""
    opening = _Opening(config, router, traffic)
    return list(opening.listeners())


class _Opening:
    def __init__(self, config: Config, router: Router, traffic: Traffic | None) -> None:
        self._config = config
        self._router = router
        self._traffic = traffic
        self._identities = _identities(config.identities)
        self._ports: dict[str | None, list[int]] = {}  # of the segment listeners by name, once they are bound

    def listeners(self) -> Iterator[Listener]:
        make: dict[type, Callable[..., Listener]] = {
            S2Listener: self._s2,
            S3PListener: self._s3p,
            SegmentListener: self._segment,
            ControllerListener: self._controller,
        }
        for label, listener in self._config.listeners.labelled():
            yield make[type(listener)](label, listener)
        if self._config.management.enabled:
            yield management_listener(
                self._config, self._config.management, self._router, self._traffic, self._identities
            )

    def _s2(self, label: str, listener: S2Listener) -> Listener:
        settings = s2_settings(listener, self._config.drain, self._identities)
        front = S2Front(self._router.for_listener(label), settings)
        server = HttpServer(http_settings(listener.limits), front)
        return self._listener(label, listener, server.serve, server.begin_drain)

    def _s3p(self, label: str, listener: S3PListener) -> Listener:
        front = S3PFront(self._router.for_listener(label), s3p_settings(listener))
        return self._listener(label, listener, front.serve, front.drain)

    def _segment(self, label: str, listener: SegmentListener) -> Listener:
        names = SegmentNames(listener.basin)
        front = SegmentFront(self._router.for_listener(label, names), segment_settings(listener))
        ports = self._ports.setdefault(listener.name, [])

        def bound(addresses: Sequence[Address]) -> None:
            ports.extend(address.port for address in addresses)

        return self._listener(label, listener, front.serve, front.drain, bound=bound)

    def _controller(self, label: str, listener: ControllerListener) -> Listener:
        segment = self._config.listeners.segment_of(listener)
        ports = self._ports.setdefault(segment.name, [])
        back = self._router.for_listener(label, SegmentNames(segment.basin))
        front = ControllerFront(back, controller_settings(listener, segment, lambda: ports[0]))
        server = HttpServer(controller_http_settings(listener.limits), front)
        return self._listener(label, listener, server.serve, server.begin_drain, duties=front.run)

    def _listener(
        self,
        label: str,
        listener: AnyListener,
        serve: Serve,
        drain: Callable[[], None],
        *,
        bound: Callable[[Sequence[Address]], None] = lambda _addresses: None,
        duties: Callable[[], Awaitable[None]] | None = None,
    ) -> Listener:
        name = f"listeners.{label}"
        handshakes = Handshakes(name, handshake_settings(listener, self._identities), serve, drain)
        return Listener(
            name,
            label.partition(".")[0],
            Address.parse(listener.bind),
            listener.limits.max_connections,
            handshakes.serve,
            handshakes.begin_drain,
            bound,
            duties,
            self._identities,
            tls_of(name, listener),
        )


def _identities(tables: Sequence[IdentityTable]) -> Identities:
    return Identities.of((table.name, table.tokens, table.certificates, table.addresses) for table in tables)
