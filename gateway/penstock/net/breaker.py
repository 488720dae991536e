"""The circuit breaker of one server."""

from __future__ import annotations

import math
from enum import Enum

import structlog
import trio

from penstock.net.upstream_settings import UpstreamSettings, refused
from penstock.observe.metrics.families import BACK_CIRCUIT_OPENED, BACK_CONNECTIONS_FAILED

__all__ = ["Breaker", "BreakerState"]

_log = structlog.get_logger()


class BreakerState(Enum):
    """The state of a circuit breaker; the value is its name in logs and on the management listener."""

    CLOSED = "closed"
    """Connections are made."""
    OPEN = "open"
    """There were too many failures in a row: a new connection fails at once."""
    HALF_OPEN = "half-open"
    """The pause is over: one connection is tried, and decides."""


class Breaker:
    """A guard on new connections to one server; existing connections are not affected.

    `breaker_failures` failed attempts to connect in a row open the circuit, and so do as many unanswered requests in a
    row (the connection was lost before an answer, or none came in time). After `breaker_open_seconds` one connection is
    let through. The circuit closes as soon as that is made or, if it was opened by unanswered requests, as soon as one
    is answered, since a server that hangs accepts connections too. Otherwise the circuit opens again.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings
        self._unmade = 0
        self._lost = 0
        self._answer_decides = False
        self._trial_since = -math.inf
        self._ever_unmade = BACK_CONNECTIONS_FAILED.child(settings.name, "unmade")
        self._ever_lost = BACK_CONNECTIONS_FAILED.child(settings.name, "lost")
        self._ever_opened = BACK_CIRCUIT_OPENED.child(settings.name)
        self.state = BreakerState.CLOSED
        self.since = 0.0
        """Time of the last change of state, on trio's clock; 0 if it never changed."""
        self.reason = ""
        """The failure that opened the circuit; "" while it is closed."""

    def check(self) -> None:
        """Raise OperationFailed unless a connection may be tried now; report its end by `connected`, `failed` or
        `given_up`.

        Raises HOT_SERVER with details `circuit` (the state) and `retry_after` (seconds).
        """
        if self.state is BreakerState.CLOSED:
            return
        now = trio.current_time()
        wait = self._free_at() - now
        if wait <= 0:
            self._trial_since = now
            if self.state is BreakerState.OPEN:
                self._change(BreakerState.HALF_OPEN, self.reason)
            return
        reason = f"the circuit is {self.state.value}: {self.reason}"
        raise refused(self._settings, reason, self.state.value, min(wait, self._settings.breaker_open_seconds))

    def _free_at(self) -> float:
        """Return when the next connection may be tried, on trio's clock.

        A trial whose end was not reported, because no request was made on it, holds up others for as long as connecting
        and a request may take.
        """
        settings = self._settings
        if self.state is BreakerState.OPEN:
            return self.since + settings.breaker_open_seconds
        return self._trial_since + settings.connect_seconds + settings.request_seconds

    @property
    def wants_request(self) -> bool:
        """True if a request should be let through now because only an answer can close the circuit."""
        is_closed = self.state is BreakerState.CLOSED
        return not is_closed and self._answer_decides and self._free_at() <= trio.current_time()

    def connected(self) -> None:
        """Record that a connection was made."""
        self._unmade = 0
        if self.state is not BreakerState.CLOSED and not self._answer_decides:
            self._change(BreakerState.CLOSED, "")

    def failed(self, reason: str) -> None:
        """Record that a connection could not be made."""
        self._unmade += 1
        self._ever_unmade.inc()
        self._judge(self._unmade, reason, answer_decides=False)

    def lost(self, reason: str) -> None:
        """Record an unanswered request: its connection was lost before an answer, or none came in time."""
        self._lost += 1
        self._ever_lost.inc()
        self._judge(self._lost, reason, answer_decides=True)

    def succeeded(self) -> None:
        """Record that the server answered a request."""
        self._lost = 0
        if self.state is not BreakerState.CLOSED and self._answer_decides:
            self._change(BreakerState.CLOSED, "")

    def given_up(self) -> None:
        """Record that an attempt was cancelled before its end was known: the next one may begin at once."""
        if self.state is BreakerState.HALF_OPEN:
            self._trial_since = -math.inf

    def _judge(self, count: int, reason: str, *, answer_decides: bool) -> None:
        enough = count >= self._settings.breaker_failures or self.state is BreakerState.HALF_OPEN
        if enough and self.state is not BreakerState.OPEN:
            self._ever_opened.inc()
            self._answer_decides = answer_decides
            self._change(BreakerState.OPEN, reason)

    def _change(self, state: BreakerState, reason: str) -> None:
        self.state = state
        self.since = trio.current_time()
        self.reason = reason
        level = _log.warning if state is BreakerState.OPEN else _log.info
        level("back_circuit", back=self._settings.name, state=state.value, reason=reason)
