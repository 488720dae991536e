"""Builds the listeners that a configuration names, each a front over its view of the router."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.app.bootstrap.access import check_closed, open_authority, users
from penstock.app.bootstrap.faults import fault_settings
from penstock.app.bootstrap.files import handshake_settings, tls_of
from penstock.app.config import Config, IdentityTable, listener_kind_of, view_of
from penstock.app.config.exposure import is_private
from penstock.core.address import Address
from penstock.core.identity import Identities
from penstock.net.accepting import Listener
from penstock.net.limits.refusals import close_at_once
from penstock.net.proxies import TrustedProxies
from penstock.net.tls.handshakes import Handshakes
from penstock.protocols.opening import ListenerContext
from penstock.protocols.plugin import listener_kinds
from penstock.protocols.tables import ListenerTable
from penstock.routing.faults.rules import Faults
from penstock.routing.router import Router

if TYPE_CHECKING:
    from penstock.app.management.controls import Controls
    from penstock.app.management.traffic import Traffic

__all__ = ["open_listeners"]


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
    context = ListenerContext(
        config=view_of(config),
        router=router,
        faults=faults or Faults(fault_settings(config.faults)),
        identities=_identities(config.identities),
        users=users(config.identities),
        access=open_authority(config, router.state),
        drain_seconds=config.drain.grace_seconds,
    )
    listeners = [_listener(config, context, label, table) for label, table in config.listeners.labelled()]
    if config.management.enabled:  # commands open a gateway without, and need not import it
        from penstock.app.bootstrap.management import management_listener

        listeners.append(management_listener(config, config.management, router, traffic, context.identities, controls))
    return listeners


def _listener(config: Config, context: ListenerContext, label: str, table: ListenerTable) -> Listener:
    name, kind = f"listeners.{label}", listener_kinds()[listener_kind_of(label)]
    front = kind.open(context, label, table)
    handshakes = Handshakes(name, handshake_settings(table, context.identities), front.serve, front.begin_drain)

    def bound(addresses: Sequence[Address]) -> None:
        context.bound[label] = addresses

    return Listener(
        name,
        kind.kind,
        Address.parse(table.bind),
        table.limits.max_connections,
        handshakes.serve,
        handshakes.begin_drain,
        bound,
        front.duties,
        context.identities,
        tls_of(name, table, over_http=kind.over_http),
        settings=(*front.settings, handshakes.settings),
        backs=front.backs,
        # Over TLS the handshake would cost more than the refused connection.
        refuse=front.refuse if table.tls_certificate is None else close_at_once,
        private=is_private(config, label, table),
        path=front.path,
        proxies=TrustedProxies(
            tuple(map(ipaddress.ip_network, table.proxies)), table.proxy_protocol, table.forwarded_for
        ),
    )


def _identities(tables: Sequence[IdentityTable]) -> Identities:
    return Identities.of((table.name, table.tokens, table.certificates, table.addresses) for table in tables)
