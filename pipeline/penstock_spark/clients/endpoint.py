"""The address of a server and how to speak to it: protocol, TLS and token."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock_codecs.compression import Compression
from penstock_spark.clients.plugin import BASIN_LABEL, Endpoint, plugins, schemes

__all__ = ["BASIN_LABEL", "ENDPOINT_OPTIONS", "Endpoint", "EndpointError", "is_server", "parse_endpoint"]

ENDPOINT_OPTIONS: Final = {
    "protocol": "the protocol, if the endpoint has no scheme",
    "token": "token sent as `authorization: Bearer`; prefer one of the next two, which keep it out of logs",
    "token_file": "file with the token, which may be surrounded by white space; read on the driver",
    "token_variable": "environment variable with the token; read on the driver",
    "ca_file": "PEM file of authorities to trust for the server's certificate (default: the system's)",
    "certificate_file": "PEM file of a client certificate, for servers that require one",
    "key_file": "PEM file of its private key, if that is not in `certificate_file`",
    "compression": "compression, in protocols that have one: `none`, `zstd` or `gzip`",
    "connect_seconds": "seconds to wait for a connection",
    "request_seconds": "seconds to wait for each next byte",
    "recover_seconds": "seconds to retry a server that answered before and is gone; 0: not at all",
}
"""The options of `parse_endpoint`, with their meanings."""
_GATEWAYS: Final = dict.fromkeys(("s3p", "s3ps"), "config/bridge-s2-to-s3p.toml")
"""Configurations of a gateway before a server whose protocol has no client here, by scheme."""

_FILES: Final = ("ca_file", "certificate_file", "key_file")
_TOKENS: Final = ("token", "token_file", "token_variable")
_SECRETS: Final = re.compile(r"^.*@|(?<=[?#]).*")
_VISIBLE: Final = re.compile(r"[!-~]+")


class EndpointError(ValueError):
    """An address or options that cannot be used. `faults`: every fault, one sentence each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def parse_endpoint(text: str, options: Mapping[str, str] | None = None) -> Endpoint:
    """Return the endpoint of an address (see `Endpoint`; for a bare `host:port` see `ClientPlugin.assumed`), with the
    `options` named in ENDPOINT_OPTIONS; other options are ignored.

    Raises EndpointError with every fault: of the address, of an option's value, of files that cannot be read.
    """
    values = {name: value for name in ENDPOINT_OPTIONS if (value := (options or {}).get(name)) is not None}
    faults: list[str] = []
    fields = _address(text.strip(), values.get("protocol"), faults)
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


def _address(text: str, protocol: str | None, faults: list[str]) -> dict[str, Any]:
    if protocol is not None and protocol not in plugins():
        known = ", ".join(plugins())
        faults.append(f"protocol: {_through_gateway(protocol) or f'{protocol!r} is none of {known}'}")
        protocol = None
    if not text:
        faults.append("endpoint: an address is missing, such as http://127.0.0.1:8080")
        return {}
    named = text if "://" in text else f"{_plain(protocol)}://{text}"
    try:
        parts = urlsplit(named)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        reason = "" if "@" in text else f": {error}"  # the error may quote the text before "@", which is a secret
        faults.append(f"endpoint: {_shown(text)!r} is no address{reason}")
        return {}
    scheme_entry = schemes().get(parts.scheme)
    if scheme_entry is None:
        known = ", ".join(f"{name}://" for name in schemes())
        faults.append(f"endpoint: {_through_gateway(parts.scheme) or f'{parts.scheme}:// is none of {known}'}")
        return {}
    spoken, scheme = scheme_entry
    faults += [f"endpoint: {fault}" for fault in _address_faults(text, parts, spoken, protocol)]
    return {**scheme._asdict(), "protocol": spoken, "host": host, "port": scheme.port if port is None else port}


def is_server(scheme: str) -> bool:
    """Return whether addresses with this scheme are of servers, also of those that are read through a gateway."""
    return scheme in schemes() or scheme in _GATEWAYS


def _through_gateway(scheme: str) -> str:
    """Return the way to read from a server whose protocol has no client here; "" if none is known."""
    if scheme not in _GATEWAYS:
        return ""
    return (
        f"{scheme}:// is read through a gateway: run `penstock serve --config {_GATEWAYS[scheme]}` with that server's "
        "address in the file, and use the gateway's endpoint, http://127.0.0.1:8080"
    )


def _plain(protocol: str | None) -> str:
    """Return the scheme of an address without one."""
    assumed = next((name for name, plugin in plugins().items() if plugin.assumed), "")
    return next(iter(plugins()[protocol or assumed].schemes))


def _address_faults(text: str, parts: Any, spoken: str, protocol: str | None) -> list[str]:
    host = parts.hostname or ""
    bare = host.removeprefix(BASIN_LABEL)
    faults = {
        f"{_shown(text)!r} names no host": not bare,
        f"{host!r} is no host": bool(bare) and (not _VISIBLE.fullmatch(bare) or "{" in bare),
        f"{spoken} has no hosts with {BASIN_LABEL!r}": bare != host and not plugins()[spoken].basin_hosts,
        "the port must be from 1 to 65535": parts.port == 0,
        "a token goes into option `token_file`, not into the address": "@" in parts.netloc,
        f"{_shown(parts.path)!r} behind the host": parts.path not in ("", "/"),
        "a query or fragment behind the host": bool(parts.query or parts.fragment),
        f"{parts.scheme}:// is not {protocol}": protocol is not None and protocol != spoken,
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
