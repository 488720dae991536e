"""The certificates that a configuration names: whether they can be read, and until when they are good."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cryptography import x509

from penstock.config import Config
from penstock.doctor.findings import Finding, fine, notable, wrong

__all__ = ["about_certificates"]

SOON: Final = datetime.timedelta(days=14)
_AT_ONCE: Final = "the gateway takes a new file while it runs"
_KEYS: Final = ("tls_certificate", "tls_client_ca", "tls_ca")


def about_certificates(
    config: Config | None, now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
) -> Iterator[Finding]:
    """Each file, once."""
    files: dict[str, str] = {}
    for where, key, path in () if config is None else _named(config):
        files.setdefault(path, f"{where}.{key}")
    for path, about in files.items():
        yield _file(about, Path(path), now())


def _named(config: Config) -> Iterator[tuple[str, str, str]]:
    tables: dict[str, object] = {f"listeners.{label}": one for label, one in config.listeners.labelled()}
    tables |= {"management": config.management}
    tables |= {f"backs.{name}": table for name, table in config.backs.items()}
    for where, table in tables.items():
        for key in _KEYS:
            if path := getattr(table, key, None):
                yield where, key, path
        for one in getattr(table, "tls_certificates", ()):
            yield where, "tls_certificates", one.certificate


def _file(about: str, path: Path, now: datetime.datetime) -> Finding:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has no certificate in PEM"
        return wrong(about, f"{path}: {why}", "Put the certificate there.")
    first = min(found, key=lambda one: one.not_valid_after_utc)
    until = first.not_valid_after_utc
    said = f"{path} is good until {until:%Y-%m-%d}"
    if any(one.not_valid_before_utc > now for one in found):
        return wrong(about, f"{path} is not good yet", "Look at the clock, or get another certificate.")
    if until <= now:
        return wrong(about, f"{path} expired on {until:%Y-%m-%d}", f"Renew it: {_AT_ONCE}.")
    if until - now < SOON:
        return notable(about, said, f"Renew it soon: {_AT_ONCE}.")
    return fine(about, said)
