"""Remarks on a valid configuration that an operator should know about."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.app.config.exposure import is_exposed, proves_clients, shows_secrets
from penstock.app.config.listeners import AnyListener, S2Listener, S3PListener, SegmentListener
from penstock.app.config.management import Management
from penstock.app.config.recorder import RecorderTable
from penstock.app.config.route_advice import Advice, about_routes
from penstock.app.config.schema import Config
from penstock.core.address import Address

__all__ = ["Advice", "advice"]


def advice(config: Config) -> list[Advice]:
    """Return remarks on `config`, the insecure first."""
    found: list[Advice] = []
    for label, listener in config.listeners.labelled():
        found += _about_listener(config, label, listener)
    if config.management.enabled:
        found += _about_management(config.management)
    if config.recorder is not None:
        found += _about_recorder(config.recorder)
    found += _about_faults(config)
    found += _about_tls(config)
    found += _about_basins(config)
    found += about_routes(config)
    return sorted(found, key=lambda remark: not remark.insecure)


def _about_listener(config: Config, label: str, listener: AnyListener) -> Iterator[Advice]:
    about, kind = f"listeners.{label}", label.partition(".")[0]
    open_to_all = not proves_clients(config, label, listener)
    if isinstance(listener, S2Listener):
        if "*" in listener.cors_origins and open_to_all:
            yield Advice(
                True,
                f"{about}: any web page that is open in a browser that reaches {listener.bind} can read, write and "
                "delete everything, since cors_origins has * and clients need no token. List the origins.",
            )
        elif "*" in listener.cors_origins:
            yield Advice(False, f"{about}: any web page may use it, with a token, since cors_origins has *.")
        if "*" in listener.hosts and open_to_all:
            yield Advice(
                True, f"{about}: pages can reach it by DNS rebinding, since hosts has * and clients need no token."
            )
    if not is_exposed(listener):
        return
    if open_to_all:
        what = f"every stream of basin {listener.basin}" if isinstance(listener, S3PListener) else "everything"
        yield Advice(
            True,
            f"{about}: whoever reaches {listener.bind} can read, write and delete {what}, as anonymous = true says. "
            "Let its clients prove who they are (docs/access.md), or guard the port.",
        )
    if shows_secrets(config, listener) and listener.tls_certificate is None:
        secrets = "bearer tokens" if kind == "s2" else "passwords and tokens"
        yield Advice(
            True,
            f"{about}: {secrets} cross the network to {listener.bind} in clear text. "
            "Give tls_certificate and tls_key, or put a proxy with TLS in front.",
        )


def _about_management(management: Management) -> Iterator[Advice]:
    safe = management.proves_clients or (management.auth_tokens and management.tls_certificate is not None)
    if not Address.parse(management.bind).is_loopback and not safe:
        tokens = "bearer tokens cross the network in clear text" if management.auth_tokens else "nobody is asked"
        yield Advice(
            True,
            f"management: whoever reaches {management.bind} may see all traffic, record it, and cut routes over, and "
            f"{tokens}. Give tls_certificate and tls_key with auth_tokens or tls_client_ca, or bind to 127.0.0.1.",
        )


def _about_recorder(recorder: RecorderTable) -> Iterator[Advice]:
    """Warn about secrets that are recorded because redaction is switched off."""
    if not recorder.redact.weakened:
        return
    directory = Path(recorder.directory)
    with contextlib.suppress(OSError):
        if directory.stat().st_mode & stat.S_IRWXO:
            why = "and others on this machine may enter the directory. Make it its owner's alone (chmod 700)"
            yield Advice(True, f"recorder: secrets are written to {directory}, since redaction is switched off, {why}.")
            return
    yield Advice(False, f"recorder: secrets are written to {directory}, since redaction is switched off in part.")


def _about_faults(config: Config) -> Iterator[Advice]:
    if config.faults:
        names = ", ".join(fault.name for fault in config.faults)
        yield Advice(
            False, f"faults: clients are served badly on purpose, by {names}. Leave [[faults]] out in earnest."
        )


def _about_tls(config: Config) -> Iterator[Advice]:
    """Warn if only one of a controller and its segment listener has TLS: Pravega's clients use it with both or
    neither."""
    for controller in config.listeners.controller:
        segment = config.listeners.segment_of(controller)
        if (segment.tls_certificate is None) != (controller.tls_certificate is None):
            yield Advice(
                False,
                f"{_name('segment', segment)} and {_name('controller', controller)}: one has TLS and the other has "
                "not; clients of Pravega use it for both or for neither.",
            )


def _name(kind: str, listener: AnyListener) -> str:
    return f"listeners.{kind}.{listener.name}" if listener.name else f"listeners.{kind}"


def _about_basins(config: Config) -> Iterator[Advice]:
    """Warn about basins that no [[store.basins]] creates, if there is only the embedded store."""
    if config.routes:
        return
    ensured = {basin.name for basin in config.store.basins}
    named: dict[str, str | None] = {}
    for label, listener in config.listeners.labelled():
        if isinstance(listener, S2Listener):
            named[f"listeners.{label}.default_basin"] = listener.default_basin
        elif isinstance(listener, S3PListener | SegmentListener):
            named[f"listeners.{label}.basin"] = listener.basin
    for key, basin in named.items():
        if basin is not None and basin not in ensured:
            yield Advice(
                False,
                f"{key}: basin {basin} is not in [[store.basins]]; until somebody creates it, requests for its "
                "streams fail.",
            )
