"""The circuit breaker of one server."""

from __future__ import annotations

from enum import Enum

import structlog
import trio

from penstock.backs.upstream_settings import UpstreamSettings, unreachable
from penstock.metrics.families import BACK_CIRCUIT_OPENED, BACK_CONNECTIONS_FAILED

__all__ = ["Breaker", "BreakerState"]

_log = structlog.get_logger()


class BreakerState(Enum):
    """The state of a circuit breaker, by the name that logs and the management listener give it."""

    CLOSED = "closed"
    """All is well: connections are made."""
    OPEN = "open"
    """Too many failures in a row: whoever needs a new connection fails at once."""
    HALF_OPEN = "half-open"
    """The pause is over: one connection is tried, and decides."""


class Breaker:
    """Guards the making of connections to one server; what has a connection already is not held up.

    The rule: `breaker_failures` connections in a row that could not be made open the circuit, and so do as many that
    were lost before the server answered anything, or on which it did not answer in time (these are counted apart, up to
    the next answer). After `breaker_open_seconds` one connection is let through: made, it closes the circuit, else it
    opens it again. One that was closed so after losses opens at the next loss before an answer.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings
        self._unmade = 0
        self._lost = 0
        self._ever_unmade = BACK_CONNECTIONS_FAILED.child(settings.name, "unmade")
        self._ever_lost = BACK_CONNECTIONS_FAILED.child(settings.name, "lost")
        self._ever_opened = BACK_CIRCUIT_OPENED.child(settings.name)
        self.state = BreakerState.CLOSED
        self.since = 0.0
        """When the state last changed, on trio's clock; 0 where it never did."""
        self.reason = ""
        """The failure that opened the circuit; "" while it is closed."""

    def check(self) -> None:
        """May a connection be tried now? Whoever was told so says how it ended: `connected`, `failed`, `given_up`.

        Raises OperationFailed(HOT_SERVER) with detail `retry_after` where not.
        """
        if self.state is BreakerState.CLOSED:
            return
        wait = self.since + self._settings.breaker_open_seconds - trio.current_time()
        if self.state is BreakerState.OPEN and wait <= 0:
            self._change(BreakerState.HALF_OPEN, self.reason)
            return
        why = f"the circuit is {self.state.value}: {self.reason}"
        raise unreachable(self._settings, why, max(wait, 0.0))

    def connected(self) -> None:
        """A connection was made."""
        self._unmade = 0
        if self.state is not BreakerState.CLOSED:
            self._change(BreakerState.CLOSED, "")

    def failed(self, reason: str) -> None:
        """A connection could not be made."""
        self._unmade += 1
        self._ever_unmade.inc()
        self._judge(self._unmade, reason)

    def lost(self, reason: str) -> None:
        """A connection was lost before the server answered anything on it."""
        self._lost += 1
        self._ever_lost.inc()
        self._judge(self._lost, reason)

    def succeeded(self) -> None:
        """The server answered something."""
        self._lost = 0

    def given_up(self) -> None:
        """The attempt was cancelled before its end was known: the next one may try at once."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN
            self.since = trio.current_time() - self._settings.breaker_open_seconds

    def _judge(self, count: int, reason: str) -> None:
        enough = count >= self._settings.breaker_failures or self.state is BreakerState.HALF_OPEN
        if enough and self.state is not BreakerState.OPEN:
            self._ever_opened.inc()
            self._change(BreakerState.OPEN, reason)

    def _change(self, state: BreakerState, reason: str) -> None:
        self.state = state
        self.since = trio.current_time()
        self.reason = reason
        level = _log.warning if state is BreakerState.OPEN else _log.info
        level("back_circuit", back=self._settings.name, state=state.value, reason=reason)
