"""Where a server is and how it is spoken to: an address, a protocol, TLS and a token."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROTOCOLS", "Endpoint"]

PROTOCOLS = ("s2s", "s3p", "segment")
"""The first is the default, unless the endpoint's scheme says another."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server. Picklable: executors get it from the driver.

    Text: `http://host:port`, `https://...` (S2S), `s3p://...`, `s3ps://...` (with TLS), `segment://...`,
    `segments://...` (with TLS; a segment store or our segment listener), `pravega://...`, `pravegas://...` (a
    controller, which knows the segment stores). `ca_file`: PEM of those who may have signed the server's certificate,
    the system's where it is None. `certificate_file`, `key_file`: PEM of ours, for mTLS. `token`: shown as
    `authorization: Bearer`; its repr hides it. `connect_seconds`, `request_seconds`: how long to wait for a
    connection, and for each next byte.
    """

    protocol: str
    host: str
    port: int
    tls: bool = False
    controller: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    token: str = ""
    connect_seconds: float = 10.0
    request_seconds: float = 60.0
