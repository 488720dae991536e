"""Builds the listeners that a configuration names, each a front over its view of the router."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import trio

from penstock.app.bootstrap.access import check_closed, open_authority, open_delegation, passwords
from penstock.app.bootstrap.faults import fault_settings
from penstock.app.bootstrap.files import handshake_settings, tls_of
from penstock.app.bootstrap.fronts import (
    controller_http_settings,
    controller_settings,
    http_settings,
    s2_settings,
    s3p_settings,
    segment_settings,
)
from penstock.app.bootstrap.http import HttpServer, refuse_http
from penstock.app.bootstrap.management import management_listener
from penstock.app.config import (
    AnyListener,
    Config,
    ControllerListener,
    IdentityTable,
    S2Listener,
    S3PListener,
    SegmentListener,
)
from penstock.app.config.exposure import is_private
from penstock.app.management.controls import Controls
from penstock.app.management.traffic import Traffic
from penstock.core.address import Address
from penstock.core.back import Back, SwappableBack
from penstock.core.identity import Identities
from penstock.core.segment_names import SegmentNames
from penstock.net.accepting import Listener
from penstock.net.http.traced import traced_connections
from penstock.net.limits.refusals import Refuse, close_at_once
from penstock.net.tls.handshakes import Handshakes
from penstock.protocols.controller.front import ControllerFront
from penstock.protocols.s2.front import S2Front
from penstock.protocols.s3p.front import S3PFront, refuse_s3p
from penstock.protocols.segment.front import SegmentFront
from penstock.routing.access.guard import Guarded
from penstock.routing.faults.back import FaultyBack
from penstock.routing.faults.exchange import FaultyFront
from penstock.routing.faults.rules import Faults
from penstock.routing.router import Router

__all__ = ["open_listeners"]

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def open_listeners(
    config: Config,
    router: Router,
    traffic: Traffic | None = None,
    controls: Controls | None = None,
    faults: Faults | None = None,
) -> list[Listener]:
    """Build every configured listener, not yet bound. `traffic`: the connections and recordings that the management
    listener shows; `controls`: what it may do to the process. `faults`: the faults to inject (None: those of the
    configuration). Raises CannotStart."""
    check_closed(config)
    opening = _Opening(config, router, traffic, controls, faults or Faults(fault_settings(config.faults)))
    return list(opening.listeners())


class _Opening:
    def __init__(
        self,
        config: Config,
        router: Router,
        traffic: Traffic | None,
        controls: Controls | None,
        faults: Faults,
    ) -> None:
        self._config = config
        self._router = router
        self._traffic = traffic
        self._controls = controls
        self._faults = faults
        self._identities = _identities(config.identities)
        self._access = open_authority(config)
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
                self._config, self._config.management, self._router, self._traffic, self._identities, self._controls
            )

    def _s2(self, label: str, listener: S2Listener) -> Listener:
        settings = s2_settings(listener, self._config.drain, self._identities, self._access)
        http, back = http_settings(listener.limits), SwappableBack(self._for_tokens(self._router.for_listener(label)))
        server = HttpServer(http, FaultyFront(S2Front(self._faulty(back, label), settings), self._faults))
        return self._listener(label, listener, server.serve, server.begin_drain, (settings, http), back)

    def _for_tokens(self, back: Back) -> Back:
        return back if self._access is None else Guarded(back, self._access.vigil)

    def _faulty(self, back: Back, label: str) -> Back:
        return FaultyBack(back, self._faults, label)

    def _s3p(self, label: str, listener: S3PListener) -> Listener:
        settings, back = s3p_settings(listener), SwappableBack(self._router.for_listener(label))
        front = S3PFront(self._faulty(back, label), settings)
        serve = traced_connections(front.serve)
        return self._listener(label, listener, serve, front.drain, (settings,), back)

    def _segment(self, label: str, listener: SegmentListener) -> Listener:
        names = SegmentNames(listener.basin)
        listeners = self._config.listeners
        numbered = any(
            isinstance(other, ControllerListener) and listeners.segment_of(other) is listener
            for _, other in listeners.labelled()
        )
        settings = segment_settings(listener, open_delegation(self._config, listener), numbered=numbered)
        back = SwappableBack(self._router.for_listener(label, names))
        front = SegmentFront(self._faulty(back, label), settings)
        ports = self._ports.setdefault(listener.name, [])

        def bound(addresses: Sequence[Address]) -> None:
            ports.extend(address.port for address in addresses)

        serve = traced_connections(front.serve)
        return self._listener(label, listener, serve, front.drain, (settings,), back, bound=bound)

    def _controller(self, label: str, listener: ControllerListener) -> Listener:
        segment = self._config.listeners.segment_of(listener)
        ports = self._ports.setdefault(segment.name, [])
        back = SwappableBack(self._router.for_listener(label, SegmentNames(segment.basin)))
        delegation = open_delegation(self._config, segment)
        users = passwords(self._config.identities) if delegation is not None else None
        settings = controller_settings(listener, segment, lambda: ports[0], delegation, users)
        front, http = ControllerFront(self._faulty(back, label), settings), controller_http_settings(listener.limits)
        server = HttpServer(http, FaultyFront(front, self._faults))
        return self._listener(
            label, listener, server.serve, server.begin_drain, (settings, http), back, duties=front.run
        )

    def _listener(
        self,
        label: str,
        listener: AnyListener,
        serve: Serve,
        drain: Callable[[], None],
        settings: tuple[object, ...],
        back: SwappableBack,
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
            settings=(*settings, handshakes.settings),
            back=back,
            refuse=_REFUSE[type(listener)] if listener.tls_certificate is None else close_at_once,
            private=is_private(self._config, label, listener),
        )


_REFUSE: Final[dict[type[AnyListener], Refuse]] = {
    S2Listener: refuse_http,
    ControllerListener: refuse_http,
    S3PListener: refuse_s3p,
    SegmentListener: close_at_once,
}
"""Refusal of a client when the listener is full. The segment protocol has no message for that, and over TLS the
handshake would cost more than the refused connection."""


def _identities(tables: Sequence[IdentityTable]) -> Identities:
    return Identities.of((table.name, table.tokens, table.certificates, table.addresses) for table in tables)
