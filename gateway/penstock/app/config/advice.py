"""Remarks on a valid configuration that an operator should know about."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.app.config.backs import EMBEDDED
from penstock.app.config.exposure import is_exposed, proves_clients, secrets_shown
from penstock.app.config.listeners import listener_kind_of
from penstock.app.config.management import Management
from penstock.app.config.recorder import RecorderTable
from penstock.app.config.route_advice import about_routes
from penstock.app.config.schema import Config, tokens_in_state, view_of
from penstock.core.address import Address
from penstock.protocols.plugin import Advice, ListenerKind, listener_kinds
from penstock.protocols.tables import ListenerTable

__all__ = ["Advice", "absent_basins", "advice"]


def advice(config: Config) -> list[Advice]:
    """Return remarks on `config`, the insecure first."""
    remarks: list[Advice] = []
    for label, listener in config.listeners.labelled():
        remarks += _about_listener(config, label, listener)
    if config.management.enabled:
        remarks += _about_management(config.management)
    if config.recorder is not None:
        remarks += _about_recorder(config.recorder)
    remarks += _about_first_token(config)
    remarks += _about_faults(config)
    remarks += _about_basins(config)
    remarks += about_routes(config)
    return sorted(remarks, key=lambda remark: not remark.insecure)


def _about_listener(config: Config, label: str, listener: ListenerTable) -> Iterator[Advice]:
    about, kind = f"listeners.{label}", listener_kinds()[listener_kind_of(label)]
    open_to_all = not proves_clients(config, label, listener)
    yield from kind.advice(about, listener, view_of(config), anonymous=open_to_all)
    if not is_exposed(listener):
        return
    if open_to_all:
        yield Advice(
            True,
            f"{about}: every client that reaches {listener.bind} can read, write and delete {kind.reach(listener)}, as "
            "anonymous = true says. Make its clients authenticate (docs/access.md), or protect the port.",
        )
    secrets = secrets_shown(config, label, listener)
    if secrets and listener.tls_certificate is None:
        yield Advice(
            True,
            f"{about}: {secrets} cross the network to {listener.bind} in clear text. "
            "Give tls_certificate and tls_key, or put a proxy with TLS in front.",
        )


def _about_management(management: Management) -> Iterator[Advice]:
    safe = management.proves_clients or (management.bearer_tokens and management.tls_certificate is not None)
    if not Address.parse(management.bind).is_loopback and not safe:
        tokens = (
            "bearer tokens cross the network in clear text"
            if management.bearer_tokens
            else "clients need not authenticate"
        )
        yield Advice(
            True,
            f"management: every client that reaches {management.bind} may see all traffic, record it, and cut routes "
            "over, and "
            f"{tokens}. Give tls_certificate and tls_key with auth_tokens or tls_client_ca, or bind to 127.0.0.1.",
        )


def _about_recorder(recorder: RecorderTable) -> Iterator[Advice]:
    """Warn about secrets that are recorded because redaction is switched off."""
    if not recorder.redact.weakened:
        return
    directory = Path(recorder.directory)
    with contextlib.suppress(OSError):
        if directory.stat().st_mode & stat.S_IRWXO:
            reason = "and other users of this machine may enter the directory. Restrict it to its owner (chmod 700)"
            yield Advice(
                True, f"recorder: secrets are written to {directory}, since redaction is switched off, {reason}."
            )
            return
    yield Advice(False, f"recorder: secrets are written to {directory}, since redaction is switched off in part.")


def _about_first_token(config: Config) -> Iterator[Advice]:
    """Warn if access tokens are in the gateway's state, and no client could issue the first one."""
    if (back := tokens_in_state(config)) is None:
        return
    listeners = config.listeners.labelled()
    if not any(listener_kinds()[listener_kind_of(label)].issues_tokens(listener) for label, listener in listeners):
        yield Advice(
            False,
            f"access: tokens are in the gateway's state, which back {back} keeps, and no listener can issue the first "
            "one. Unless there is one already, give auth_tokens to a listener with /v1/access-tokens (docs/access.md).",
        )


def _about_faults(config: Config) -> Iterator[Advice]:
    if config.faults:
        names = ", ".join(fault.name for fault in config.faults)
        yield Advice(False, f"faults: clients are disturbed on purpose, by {names}. Remove [[faults]] in production.")


def _about_basins(config: Config) -> Iterator[Advice]:
    """Warn about basins of the embedded store that no [[store.basins]] creates."""
    for key, basin, _ in absent_basins(config):
        reason = "until a client creates it, requests for its streams fail"
        yield Advice(False, f"{key}: basin {basin} is not in [[store.basins]]; {reason}.")


def absent_basins(config: Config) -> Iterator[tuple[str, str, ListenerKind[Any]]]:
    """Yield the key of each listener that names a basin of the embedded store which is not in [[store.basins]], the
    basin, and the kind of the listener."""
    ensured = {basin.name for basin in config.store.basins}
    for label, listener in config.listeners.labelled():
        kind = listener_kinds()[listener_kind_of(label)]
        for key, basin in kind.named_basins(listener):
            routes = [route for route in config.routes if route.serves(label) and route.takes_basin(basin)]
            if basin not in ensured and all(route.back == EMBEDDED and not route.to_basin for route in routes):
                yield f"listeners.{label}.{key}", basin, kind
