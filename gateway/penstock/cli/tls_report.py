"""What `penstock check` says of TLS: who shows what, until when it is good, and who must prove who he is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from penstock.config import Config
from penstock.config.tls import TlsListener
from penstock.tls.files import certificates_in

__all__ = ["clients", "tls_lines"]


def clients(listener: TlsListener, otherwise: str) -> str:
    """Who is served; `otherwise`: what else is asked for, as the rest of the report has it."""
    if not listener.proves_clients:
        return otherwise
    known = f"those who show a certificate of {listener.tls_client_ca}"
    return known if otherwise.startswith("anybody") else f"{known}, and {otherwise}"


def tls_lines(config: Config) -> Iterator[str]:
    """A line for each listener with TLS, and for each back that is shown a certificate."""
    for label, listener in config.listeners.labelled():
        yield from _listener(f"listeners.{label}", listener)
    if config.management.enabled:
        yield from _listener("management", config.management)
    for name, back in config.backs.items():
        if back.tls and back.tls_certificate is not None:
            yield f"backs.{name} is shown {_shown(back.tls_certificate)}"
    for identity in config.identities:
        if identity.certificates:
            yield f"Identity {identity.name}: certificates with {' or '.join(identity.certificates)}"


def _listener(name: str, listener: TlsListener) -> Iterator[str]:
    if listener.tls_certificate is None:
        return
    parts = [f"{name}: TLS 1.2 or newer, with {_shown(listener.tls_certificate)}"]
    for one in listener.tls_certificates:
        parts.append(f"for {', '.join(one.names) or 'the names in it'}: {_shown(one.certificate)}")
    parts.append(_asked(listener))
    yield "; ".join(parts)


def _asked(listener: TlsListener) -> str:
    if listener.tls_client_ca is None:
        return "clients are not asked for certificates"
    revoked = f" and is not in {listener.tls_client_crl}" if listener.tls_client_crl else ""
    if listener.tls_client_auth == "required":
        return f"clients must show a certificate that {listener.tls_client_ca} vouches for{revoked}"
    return f"clients may show a certificate, which {listener.tls_client_ca} must vouch for{revoked}"


def _shown(path: str) -> str:
    ends = [one.until for one in certificates_in(path) if one.until is not None]
    if not ends:
        return path
    first = min(ends).astimezone(UTC)
    return f"{path} ({'until' if first > datetime.now(UTC) else 'EXPIRED on'} {first:%Y-%m-%d})"
