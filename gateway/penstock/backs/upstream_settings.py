"""How one server is reached, and the words for a server that is not there, was lost, or does not answer."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.tls.client import ClientTls
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail

__all__ = ["UpstreamSettings", "lost", "too_late", "unreachable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """How one server is reached; times in seconds. `name`: of the back, as configured."""

    name: str
    host: str
    port: int
    protocol: str = ""
    """What is spoken there: `s2`, `s3p`, `segment` or `controller`."""
    tls: ClientTls | None = None
    """None: plaintext."""
    server_name: str | None = None
    """Name that the certificate must have; None: `host`."""
    connect_seconds: float = 3.0
    """For the TCP connection and the TLS handshake together."""
    request_seconds: float = 5.0
    """For an answer's head, and for an acknowledgement; a following read has deadlines of its own."""
    idle_seconds: float = 60.0
    """A pooled connection that nobody used for so long is closed."""
    max_connections: int = 1000
    """Connections at once; whoever needs one more waits for `connect_seconds`."""
    breaker_failures: int = 5
    """So many failures in a row open the circuit."""
    breaker_open_seconds: float = 1.0
    """How long it stays open before one connection is tried."""

    @property
    def where(self) -> str:
        """The server as messages name it: `back lite at 127.0.0.1:8090`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"back {self.name} at {host}:{self.port}"


def unreachable(back: UpstreamSettings, why: str, retry_after: float | None = None) -> OperationFailed:
    """Nothing was sent, or nothing of it was processed: HOT_SERVER, which may always be sent again.

    `retry_after`: seconds before that it is in vain; it stands in the details.
    """
    message = f"{back.where}: {why}"
    if retry_after is None:
        return fail(FailureCode.HOT_SERVER, message)
    return OperationFailed(Failure(FailureCode.HOT_SERVER, message, {"retry_after": retry_after}))


def lost(back: UpstreamSettings, why: str) -> OperationFailed:
    """The server was lost after something was sent: UNAVAILABLE, a side effect is possible."""
    return fail(FailureCode.UNAVAILABLE, f"{back.where}: {why}")


def too_late(back: UpstreamSettings, what: str, seconds: float) -> OperationFailed:
    """`what`, an answer's head for instance, did not come in `seconds`: UPSTREAM_TIMEOUT, a side effect is possible."""
    return fail(FailureCode.UPSTREAM_TIMEOUT, f"{back.where}: no {what} in {seconds:g} s")
