"""The files that a configuration names: certificates, keys, tokens, the store's directory."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from penstock.config import Config, ControllerListener, S2Listener, SegmentListener
from penstock.errors import CannotStart
from penstock.fronts.http_server import tls_context
from penstock.wiring.upstreams import check_back

__all__ = ["Secured", "check_files", "tls_of"]

Secured = S2Listener | SegmentListener | ControllerListener


def check_files(config: Config) -> None:
    """Find out, without listening or opening the store, whether the named files can be used. Raises CannotStart."""
    for label, listener in config.listeners.labelled():
        if isinstance(listener, Secured):
            tls_of(label, listener)
    for name, back in config.backs.items():
        check_back(name, back)
    _check_directory("store.directory", Path(config.store.directory))
    if config.recorder is not None:
        _check_directory("recorder.directory", Path(config.recorder.directory))


def _check_directory(key: str, directory: Path) -> None:
    nearest = next((path for path in (directory, *directory.absolute().parents) if path.exists()), directory)
    if not nearest.is_dir():
        raise CannotStart(f"{key}: {nearest} is not a directory")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise CannotStart(f"{key}: cannot write to {nearest}: permission denied")


def tls_of(name: str, listener: Secured) -> ssl.SSLContext | None:
    """TLS as the files of `listeners.NAME` say; None without files. Raises CannotStart."""
    if listener.tls_certificate is None:
        return None
    protocols = () if isinstance(listener, SegmentListener) else ("h2", "http/1.1")
    try:
        return tls_context(listener.tls_certificate, listener.tls_key, protocols)
    except OSError as error:  # ssl.SSLError is one
        files = f"{listener.tls_certificate} and {listener.tls_key}"
        reason = (
            "they are not a PEM certificate chain and its key" if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise CannotStart(f"listeners.{name}: cannot use {files} for TLS: {reason}") from error
