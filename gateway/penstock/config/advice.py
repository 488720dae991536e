"""What an operator should know about a configuration that is valid all the same."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.config.address import Address
from penstock.config.listeners import AnyListener, ControllerListener, S2Listener, S3PListener, SegmentListener
from penstock.config.management import Management
from penstock.config.recorder import RecorderTable
from penstock.config.route_advice import Advice, about_routes
from penstock.config.schema import Config

__all__ = ["Advice", "advice"]


def advice(config: Config) -> list[Advice]:
    """Remarks on `config`, the insecure first."""
    found: list[Advice] = []
    for label, listener in config.listeners.labelled():
        about = f"listeners.{label}"
        if isinstance(listener, S2Listener):
            found += _about_s2(about, listener)
        elif isinstance(listener, S3PListener):
            found += _about_s3p(about, listener)
        else:
            found += _about_pravega(about, listener)
    if config.management.enabled:
        found += _about_management(config.management)
    if config.recorder is not None:
        found += _about_recorder(config.recorder)
    found += _about_faults(config)
    found += _about_tls(config)
    found += _about_basins(config)
    found += about_routes(config)
    return sorted(found, key=lambda remark: not remark.insecure)


def _about_s2(about: str, listener: S2Listener) -> Iterator[Advice]:
    local = Address.parse(listener.bind).is_loopback
    if not local and not listener.auth_tokens:
        yield Advice(
            True,
            f"{about}: whoever reaches {listener.bind} can read, write and delete everything. "
            "Give auth_tokens, or bind to 127.0.0.1.",
        )
    if not local and listener.auth_tokens and listener.tls_certificate is None:
        yield Advice(
            True,
            f"{about}: bearer tokens cross the network to {listener.bind} in clear text. "
            "Give tls_certificate and tls_key, or put a proxy with TLS in front.",
        )
    if local and listener.cors and not listener.auth_tokens:
        yield Advice(
            False,
            f"{about}: any web page that is open on this machine can read, write and delete everything, since "
            "cors is true and there are no auth_tokens.",
        )


def _about_s3p(about: str, listener: S3PListener) -> Iterator[Advice]:
    if not Address.parse(listener.bind).is_loopback:
        yield Advice(
            True,
            f"{about}: whoever reaches {listener.bind} can read, write and delete every stream of basin "
            f"{listener.basin}: S3P knows neither users nor encryption. Bind to 127.0.0.1, or guard the port.",
        )


def _about_pravega(about: str, listener: SegmentListener | ControllerListener) -> Iterator[Advice]:
    if not Address.parse(listener.bind).is_loopback:
        yield Advice(
            True,
            f"{about}: whoever reaches {listener.bind} can read, write and delete everything: clients of "
            "Pravega are not asked who they are. Bind to 127.0.0.1, or guard the port.",
        )


def _about_management(management: Management) -> Iterator[Advice]:
    local = Address.parse(management.bind).is_loopback
    if not local:
        tokens = "bearer tokens cross the network in clear text" if management.auth_tokens else "nobody is asked"
        yield Advice(
            True,
            f"management: whoever reaches {management.bind} may see all traffic, record it, and cut routes over, and "
            f"{tokens}. Bind to 127.0.0.1, or put a proxy with TLS in front.",
        )


def _about_recorder(recorder: RecorderTable) -> Iterator[Advice]:
    """Secrets that are written although they need not be."""
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
    """Pravega's clients use TLS with both or with neither."""
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
    """Basins that only the embedded store could have, and has not."""
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
