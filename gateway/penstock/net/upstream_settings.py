"""Settings for connections to one server, and failures for one that is unreachable, lost, silent, or breaks its
protocol."""

from __future__ import annotations

import msgspec

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.net.tls.client import ClientTls

__all__ = ["UpstreamSettings", "broke", "doubtful", "is_refused", "lost", "refused", "too_late", "unreachable"]


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for connections to one server; times in seconds. `name`: of the back, as configured."""

    name: str
    host: str
    port: int
    protocol: str = ""
    """The name of the server's protocol, in metrics and recordings."""
    path: str = ""
    """The path under which the server has streams; "" if its protocol has none."""
    tls: ClientTls | None = None
    """TLS settings; None: plaintext."""
    server_name: str | None = None
    """Name that the server's certificate must have; None: `host`."""
    connect_seconds: float = 3.0
    """Time limit for the TCP connection and the TLS handshake together."""
    request_seconds: float = 5.0
    """Time limit for the head of a response, and for an acknowledgement; a following read has its own deadlines."""
    idle_seconds: float = 60.0
    """Time after which an idle pooled connection is closed."""
    max_connections: int = 1000
    """Connections at once; a request that needs another one waits up to `connect_seconds`."""
    breaker_failures: int = 5
    """Failures in a row that open the circuit."""
    breaker_open_seconds: float = 1.0
    """Time for which the circuit stays open before one connection is tried."""

    @property
    def where(self) -> str:
        """The server as messages name it: `back lite at 127.0.0.1:8090`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"back {self.name} at {host}:{self.port}"


def unreachable(back: UpstreamSettings, reason: str) -> OperationFailed:
    """Return the failure for a server to which nothing was sent, or that processed none of it: HOT_SERVER, always safe
    to retry."""
    return fail(FailureCode.HOT_SERVER, f"{back.where}: {reason}")


def refused(back: UpstreamSettings, reason: str, state: str, retry_after: float) -> OperationFailed:
    """Return the failure for a circuit that is not closed, so that nothing was sent: HOT_SERVER.

    Details: `circuit`, its state, and `retry_after`, the seconds during which a retry is futile.
    """
    return fail(FailureCode.HOT_SERVER, f"{back.where}: {reason}", circuit=state, retry_after=retry_after)


def is_refused(failure: Failure) -> bool:
    """Return whether the failure is due to a circuit that is not closed."""
    return "circuit" in failure.details


def lost(back: UpstreamSettings, reason: str) -> OperationFailed:
    """Return the failure for a server that was lost after something was sent: UNAVAILABLE, a side effect is
    possible."""
    return fail(FailureCode.UNAVAILABLE, f"{back.where}: {reason}")


def broke(back: UpstreamSettings, reason: str) -> OperationFailed:
    """Return the failure for a server that breaks its protocol: UPSTREAM_FAULT, a side effect is possible."""
    return fail(FailureCode.UPSTREAM_FAULT, f"{back.where}: {reason}")


def doubtful(failure: Failure) -> Failure:
    """Return the failure of an operation that may have been executed before `failure`: the same if it is an
    UPSTREAM_FAULT, else UNAVAILABLE."""
    fault = failure.code is FailureCode.UPSTREAM_FAULT
    return failure if fault else Failure(FailureCode.UNAVAILABLE, failure.message)


def too_late(back: UpstreamSettings, what: str, seconds: float) -> OperationFailed:
    """Return the failure for `what` (a response's head, for instance) that did not come in `seconds`: UPSTREAM_TIMEOUT,
    a side effect is possible."""
    return fail(FailureCode.UPSTREAM_TIMEOUT, f"{back.where}: no {what} in {seconds:g} s")
