"""How servers behind the gateway are reached, as a configuration has it."""

from __future__ import annotations

from pathlib import Path

from penstock.backs.upstream import Credentials, CredentialsMode, UpstreamSettings
from penstock.config import Address, BackTable, S2Back, S2SseBack, SegmentBack
from penstock.errors import CannotStart
from penstock.tls import ClientTls

__all__ = ["check_back", "credentials", "secret_in", "upstream_settings"]


def upstream_settings(name: str, table: BackTable, address: str, protocol: str) -> UpstreamSettings:
    """What connections to a server of this back are told. Raises CannotStart for files that cannot be used."""
    host, port = Address.parse(address)
    tls = _tls(name, table)
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


def _tls(name: str, table: BackTable) -> ClientTls | None:
    try:
        return ClientTls(table.tls_ca, table.tls_certificate, table.tls_key, f"backs.{name}") if table.tls else None
    except CannotStart as error:
        raise CannotStart(f"backs.{name}: {error}") from error


def credentials(name: str, table: S2Back | S2SseBack) -> Credentials:
    """What a server is shown. Raises CannotStart for a file that cannot be used."""
    mode = CredentialsMode(table.credentials)
    own = table.token if table.token_file is None else secret_in(f"backs.{name}.token_file", table.token_file)
    for_nobody = {"": own} if own is not None and mode is CredentialsMode.SWAP else {}
    return Credentials(back=name, mode=mode, secret=own, by_identity={**table.tokens, **for_nobody})


def check_back(name: str, table: BackTable) -> None:
    """Find out whether the files that a back names can be used. Raises CannotStart."""
    _tls(name, table)
    if isinstance(table, S2Back | S2SseBack):
        credentials(name, table)
    elif isinstance(table, SegmentBack) and table.password_file is not None:
        secret_in(f"backs.{name}.password_file", table.password_file)


def secret_in(key: str, path: str) -> str:
    """What a file holds, without blanks around it. Raises CannotStart, naming the key, for no visible ASCII text."""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        raise CannotStart(f"{key}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    if not text or not all("!" <= character <= "~" for character in text):
        raise CannotStart(f"{key}: {path} does not hold a word of visible ASCII")
    return text
