"""The files that a configuration names: certificates, keys, tokens, the store's directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from penstock.app.bootstrap.access import check_closed
from penstock.app.bootstrap.tracing import check_tracing
from penstock.app.config import Config, kind_of_back, listener_kind_of
from penstock.core.errors import CannotStart
from penstock.core.identity import Identities
from penstock.net.tls import Pair, ServerFiles, ServerTls
from penstock.net.tls.handshakes import HandshakeSettings
from penstock.net.tls.server import HTTP_ALPN
from penstock.protocols.plugin import back_kinds, listener_kinds
from penstock.protocols.tables import TlsListener
from penstock.protocols.upstreams import client_tls

__all__ = ["check_files", "handshake_settings", "tls_of"]


def check_files(config: Config) -> None:
    """Check that the named files can be used, without listening or opening the store. Raises CannotStart with all
    faults, one on a line."""
    problems = []
    for check in _file_checks(config):
        try:
            check()
        except CannotStart as error:
            problems.append(str(error))
    if problems:
        raise CannotStart("\n".join(problems))


def _file_checks(config: Config) -> Iterator[Callable[[], object]]:
    yield partial(check_closed, config)
    for label, listener in config.listeners.labelled():
        over_http = listener_kinds()[listener_kind_of(label)].over_http
        yield partial(tls_of, f"listeners.{label}", listener, over_http=over_http)
    if config.management.enabled:
        yield partial(tls_of, "management", config.management, over_http=True)
    for name, back in config.backs.items():
        yield partial(client_tls, name, back)
        yield partial(back_kinds()[kind_of_back(back)].check, name, back)
    yield partial(_check_directory, "store.directory", Path(config.store.directory))
    yield partial(check_tracing, config)
    if config.recorder is not None:
        yield partial(_check_directory, "recorder.directory", Path(config.recorder.directory))


def _check_directory(key: str, directory: Path) -> None:
    nearest = next((path for path in (directory, *directory.absolute().parents) if path.exists()), directory)
    if not nearest.is_dir():
        raise CannotStart(f"{key}: {nearest} is not a directory")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise CannotStart(f"{key}: cannot write to {nearest}: permission denied")


def tls_of(name: str, listener: TlsListener, *, over_http: bool) -> ServerTls | None:
    """Load a listener's TLS files; `name` as in `listeners.s2`. None if it has none. Raises CannotStart."""
    if listener.tls_certificate is None:
        return None
    files = ServerFiles(
        pair=Pair(listener.tls_certificate, listener.tls_key),
        others=tuple(
            Pair(tls_certificate.certificate, tls_certificate.key, tls_certificate.names)
            for tls_certificate in listener.tls_certificates
        ),
        client_ca=listener.tls_client_ca,
        client_crl=listener.tls_client_crl,
        required=listener.tls_client_auth == "required",
        alpn=HTTP_ALPN if over_http else (),
    )
    return ServerTls(name, files)


def handshake_settings(table: TlsListener, identities: Identities) -> HandshakeSettings:
    """Return the settings of a listener's TLS handshakes."""
    return HandshakeSettings(seconds=table.tls_handshake_seconds, identities=identities)
