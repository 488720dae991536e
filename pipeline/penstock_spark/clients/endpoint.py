"""The address of an S2S server and how to reach it: TLS, token and time limits."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.wire.compression import Compression

__all__ = ["BASIN_LABEL", "ENDPOINT_OPTIONS", "Endpoint", "EndpointError", "is_server", "parse_endpoint"]

ENDPOINT_OPTIONS: Final = {
    "token": "token sent as `authorization: Bearer`; prefer one of the next two, which keep it out of logs",
    "token_file": "file with the token, which may be surrounded by white space; read on the driver",
    "token_variable": "environment variable with the token; read on the driver",
    "ca_file": "PEM file of authorities to trust for the server's certificate (default: the system's)",
    "certificate_file": "PEM file of a client certificate, for servers that require one",
    "key_file": "PEM file of its private key, if that is not in `certificate_file`",
    "compression": "compression: `none`, `zstd` or `gzip`",
    "connect_seconds": "seconds to wait for a connection",
    "request_seconds": "seconds to wait for each next byte",
    "recover_seconds": "seconds to retry a server that answered before and is gone; 0: not at all",
}
"""The options of `parse_endpoint`, with their meanings."""
BASIN_LABEL: Final = "{basin}."
"""Prefix of a host where each basin has its own: `https://{basin}.b.s2.dev`."""

_PORTS: Final = {"http": 80, "https": 443}
"""Default ports, by scheme."""
_GATEWAYS: Final = {
    **dict.fromkeys(("s3p", "s3ps"), "config/bridge-s2-to-s3p.toml"),
    **dict.fromkeys(("segment", "segments", "pravega", "pravegas"), "config/bridge-s2-to-segment.toml"),
    **dict.fromkeys(("durable", "durables"), "config/bridge-s2-to-durable.toml"),
    "kafka": "config/bridge-s2-to-kafka.toml",
}
"""Configurations of a gateway before a server of another protocol, by the scheme of that server's addresses."""
_FILES: Final = ("ca_file", "certificate_file", "key_file")
_TOKENS: Final = ("token", "token_file", "token_variable")
_SECRETS: Final = re.compile(r"^.*@|(?<=[?#]).*")
_VISIBLE: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server. Picklable: the driver sends it to executors, so its files must exist there too.

    `host` may begin with BASIN_LABEL. `ca_file`: PEM of the authorities trusted to sign the server's certificate; None
    for the system's. `certificate_file`, `key_file`: PEM of the client's certificate, for mTLS. `token`: sent as
    `authorization: Bearer`; the repr hides it. `connect_seconds`, `request_seconds`: time limits for connecting, and
    for each next byte. `recover_seconds`: how long to retry a server that answered before and is gone; one that never
    answered is retried for `connect_seconds` at most. `compression`: of what is sent and requested.
    """

    host: str
    port: int
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    token: str = field(default="", repr=False)
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
    recover_seconds: float = 30.0
    compression: Compression = Compression.NONE

    def __str__(self) -> str:
        """Return the address: `https://host:port`, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class EndpointError(ValueError):
    """An address or options that cannot be used. `faults`: every fault, one sentence each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def parse_endpoint(text: str, options: Mapping[str, str] | None = None) -> Endpoint:
    """Return the endpoint of an address, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT` (without TLS), with the
    `options` named in ENDPOINT_OPTIONS; other options are ignored.

    Raises EndpointError with every fault: of the address, of an option's value, of files that cannot be read.
    """
    values = {name: value for name in ENDPOINT_OPTIONS if (value := (options or {}).get(name)) is not None}
    faults: list[str] = []
    fields = _address(text.strip(), faults)
    fields |= {name: values[name] for name in _FILES if name in values and _readable(name, values[name], faults)}
    for name, read in _READ.items():
        if name in values:
            try:
                fields[name] = read(values[name])
            except ValueError as error:
                faults.append(f"{name}: {error}")
    fields["token"] = _token(values, faults)
    if "key_file" in values and "certificate_file" not in values:
        faults.append("key_file: a key without certificate_file")
    if not fields.get("tls", True):
        faults += [f"{name}: the endpoint is without TLS" for name in _FILES if name in values]
    if faults:
        raise EndpointError(faults)
    return Endpoint(**fields)


def _address(text: str, faults: list[str]) -> dict[str, Any]:
    if not text:
        faults.append("endpoint: an address is missing, such as http://127.0.0.1:8080")
        return {}
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        reason = "" if "@" in text else f": {error}"  # the error may quote the text before "@", which is a secret
        faults.append(f"endpoint: {_shown(text)!r} is no address{reason}")
        return {}
    if parts.scheme in _GATEWAYS:
        faults.append(
            f"endpoint: {parts.scheme}:// is reached through a gateway: run `penstock serve --config "
            f"{_GATEWAYS[parts.scheme]}` with that server's address in the file, and use the gateway's endpoint, "
            "http://127.0.0.1:8080"
        )
        return {}
    if parts.scheme not in _PORTS:
        faults.append(f"endpoint: {parts.scheme}:// is neither http:// nor https://")
        return {}
    faults += [f"endpoint: {fault}" for fault in _address_faults(text, parts)]
    return {"host": host, "port": _PORTS[parts.scheme] if port is None else port, "tls": parts.scheme == "https"}


def is_server(scheme: str) -> bool:
    """Return whether addresses with this scheme are of servers, also of those that are reached through a gateway."""
    return scheme in _PORTS or scheme in _GATEWAYS


def _address_faults(text: str, parts: Any) -> list[str]:
    host = parts.hostname or ""
    bare = host.removeprefix(BASIN_LABEL)
    faults = {
        f"{_shown(text)!r} names no host": not bare,
        f"{host!r} is no host": bool(bare) and (not _VISIBLE.fullmatch(bare) or "{" in bare),
        "the port must be from 1 to 65535": parts.port == 0,
        "a token goes into option `token_file`, not into the address": "@" in parts.netloc,
        f"{_shown(parts.path)!r} behind the host": parts.path not in ("", "/"),
        "a query or fragment behind the host": bool(parts.query or parts.fragment),
    }
    return [fault for fault, is_so in faults.items() if is_so]


def _shown(text: str) -> str:
    """Return an address with any secrets removed."""
    return _SECRETS.sub("...", text)


def _readable(name: str, path: str, faults: list[str]) -> bool:
    try:
        with Path(path).open("rb"):
            return True
    except OSError as error:
        faults.append(f"{name}: cannot read {path}: {error.strerror}")
        return False


def _seconds(least: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not least <= seconds <= 86_400:
            raise ValueError(f"{text!r} is not a number of seconds from {least:g} to 86400")
        return seconds

    return read


def _compression(text: str) -> Compression:
    names = [compression.name.lower() for compression in Compression]
    if text.lower() not in names:
        raise ValueError(f"{text!r} is none of {', '.join(names)}")
    return Compression[text.upper()]


_READ: Final[dict[str, Callable[[str], object]]] = {
    "compression": _compression,
    "connect_seconds": _seconds(0.01),
    "request_seconds": _seconds(0.01),
    "recover_seconds": _seconds(0.0),
}


def _token(values: Mapping[str, str], faults: list[str]) -> str:
    token_names = [name for name in _TOKENS if name in values]
    if len(token_names) > 1:
        faults.append(f"{' and '.join(token_names)}: only one of them")
    if not token_names:
        return ""
    name, value = token_names[0], values[token_names[0]]
    token = value
    if name == "token_file":
        try:
            token = Path(value).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"token_file: cannot read {value}: {getattr(error, 'strerror', 'it is not text')}")
            return ""
    elif name == "token_variable":
        token = os.environ.get(value, "").strip()
    if not _VISIBLE.fullmatch(token):
        # Keep the token itself out of the message.
        faults.append(f"{name}: no token, or one with characters that a header cannot have")
    return token
