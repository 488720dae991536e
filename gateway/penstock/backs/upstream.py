"""The way to another server: dialling it with deadlines, TLS, credentials, and a circuit breaker.

What goes wrong is said in one vocabulary by all backs. A server that cannot be reached, or whose circuit is open, has
done nothing: HOT_SERVER. One that was lost after something was sent may have: UNAVAILABLE, or UPSTREAM_TIMEOUT.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum

__all__ = ["BreakerState", "UpstreamSettings"]


class BreakerState(Enum):
    """The state of a circuit breaker, by the name that logs and the management listener give it."""

    CLOSED = "closed"
    """All is well: requests pass."""
    OPEN = "open"
    """Too many failures in a row: requests fail at once, without being sent."""
    HALF_OPEN = "half-open"
    """The pause is over: one request is let through, and decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """How one server is reached; times in seconds. `name`: of the back, as configured."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Name that the certificate must have; None: `host`."""
    connect_seconds: float = 3.0
    """For the TCP connection and the TLS handshake together."""
    request_seconds: float = 5.0
    """For an answer's head, and for an acknowledgement; a following read has deadlines of its own."""
    idle_seconds: float = 60.0
    """A pooled connection that nobody used for so long is closed."""
    max_connections: int = 100
    """Connections at once; whoever needs one more waits for `connect_seconds`."""
    breaker_failures: int = 5
    """So many failures to connect in a row open the circuit."""
    breaker_open_seconds: float = 1.0
    """How long it stays open before one request is let through."""
