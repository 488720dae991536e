"""Addresses as people write them: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

__all__ = ["Address"]

_HOST: Final = re.compile(r"[^\s/@?#\[\]]+")
"""A host that a resolver can be asked for. The resolver decides whether it is a legal name."""


class Address(NamedTuple):
    """A host (name or number) and a TCP port; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `HOST:PORT`. Raises ValueError, whose message says what is wrong."""
        scheme, is_url, location = text.partition("://")
        if is_url:
            host = location.partition("/")[0] or "127.0.0.1:8080"
            tls = ", and tls = true" if scheme in ("https", "tls") else ""
            raise ValueError(f"expected HOST:PORT instead of a URL: write {host}{tls}, got {text!r}")
        host, colon, port = text.rpartition(":")
        if not colon or not host:
            raise ValueError(f"expected HOST:PORT, such as 127.0.0.1:8080, got {text!r}")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"an IPv6 address goes in brackets, such as [::1]:8080, got {text!r}")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host!r} is not a host name or address, in {text!r}")
        if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
            raise ValueError(f"expected a port from 0 to 65535 after the last colon, got {text!r}")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can connect."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def to_connect(self) -> Address:
        """The address for clients on this machine: the loopback address in place of an "any" address, which not every
        system can connect to."""
        return Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host), self.port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
