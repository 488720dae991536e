"""Settings of connections to the servers that a configuration names."""

from __future__ import annotations

from pathlib import Path

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.tls import ClientTls
from penstock.net.upstream import UpstreamSettings
from penstock.protocols.tables import BackTable

__all__ = ["client_tls", "secret_in", "upstream_settings"]


def upstream_settings(name: str, table: BackTable, address: str, protocol: str) -> UpstreamSettings:
    """Return the settings of connections to a back's server. Raises CannotStart for files that cannot be used."""
    host, port = Address.parse(address)
    tls = client_tls(name, table)
    return UpstreamSettings(
        name=name,
        host=host,
        port=port,
        protocol=protocol,
        tls=tls,
        server_name=table.tls_server_name,
        connect_seconds=table.connect_seconds,
        request_seconds=table.request_seconds,
        idle_seconds=table.idle_seconds,
        max_connections=table.max_connections,
        breaker_failures=table.breaker_failures,
        breaker_open_seconds=table.breaker_open_seconds,
    )


def client_tls(name: str, table: BackTable) -> ClientTls | None:
    """Return the TLS settings of a back; None if it uses none. Raises CannotStart for files that cannot be used."""
    try:
        return ClientTls(table.tls_ca, table.tls_certificate, table.tls_key, f"backs.{name}") if table.tls else None
    except CannotStart as error:
        raise CannotStart(f"backs.{name}: {error}") from error


def secret_in(key: str, path: str) -> str:
    """Return the content of a file, stripped. Raises CannotStart, naming the key, unless it is visible ASCII text."""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        raise CannotStart(f"{key}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    if not text or not all("!" <= character <= "~" for character in text):
        raise CannotStart(f"{key}: {path} does not hold a word of visible ASCII")
    return text
