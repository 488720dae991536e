"""Rules of fault injection: which messages a rule matches, when it fires, and its action.

A rule sees matching messages in the order in which they pass, and decides by counting them and by a random number
generator of its own: the same traffic with the same seed gets the same faults.
"""

from __future__ import annotations

import random
from enum import Enum

import msgspec
import structlog

from penstock.core.matching import StreamPattern
from penstock.model.failures import Failure, FailureCode
from penstock.model.records import StreamRef
from penstock.observe.metrics.families import FAULTS

__all__ = ["Action", "Fault", "FaultDirection", "MessageKind", "MessageSubject", "Rule"]

log = structlog.get_logger()


class Action(Enum):
    """The action of a rule on a message; the value is its name in TOML."""

    DELAY = "delay"
    DROP = "drop"
    DUPLICATE = "duplicate"
    CUT = "cut"
    THROTTLE = "throttle"
    ERROR = "error"
    TERMINAL = "terminal"


class FaultDirection(Enum):
    """The direction of a message: `in`, from a client, or `out`, to it."""

    IN = "in"
    OUT = "out"


class MessageKind(Enum):
    """The kind of a message: it appends records, reads records, or does anything else."""

    APPEND = "append"
    READ = "read"
    CONTROL = "control"


class MessageSubject(msgspec.Struct, frozen=True):
    """The subject of a message. `listener`: its label, `s2` or `s2.public`. `stream`: its name for the client, None for
    a message without one. `route`: "" if there is none. `identity`: "" for an anonymous client. `in_sessions`: this
    protocol's reads and appends are sessions, in which many batches answer one request. `throttled_whole`: an answer is
    throttled before any of it is sent."""

    listener: str
    kind: MessageKind
    stream: StreamRef | None = None
    route: str = ""
    identity: str = ""
    in_sessions: bool = False
    throttled_whole: bool = False

    @property
    def protocol(self) -> str:
        """The listener's kind."""
        return self.listener.partition(".")[0]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a rule. An empty collection matches anything; `pattern` None matches any stream, and messages without
    one.

    The rule skips the first `after` messages, then fires on every `every`th with `probability`, at most `times` times
    (0: no limit). `delay` and `jitter` are in seconds, `cut_after` in bytes of the message; `cut_places` replaces it if
    it is not 0: the nth message is cut at the nth of so many places in it. `bytes_per_second` is the
    rate of throttled messages, `piece_bytes` how much of one is sent at a time (0: a twentieth of the rate), `records`
    the number of records before a terminal.
    """

    name: str
    action: Action
    direction: FaultDirection
    listeners: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    kinds: frozenset[MessageKind] = frozenset()
    pattern: StreamPattern | None = None
    seed: int = 0
    probability: float = 1.0
    every: int = 1
    after: int = 0
    times: int = 0
    delay: float = 0.0
    jitter: float = 0.0
    cut_after: int = 0
    cut_places: int = 0
    bytes_per_second: int = 1
    piece_bytes: int = 0
    records: int = 0
    code: FailureCode = FailureCode.UNAVAILABLE
    message: str = ""

    @property
    def failure(self) -> Failure:
        """The failure that clients get."""
        return Failure(self.code, self.message)

    def concerns(self, subject: MessageSubject) -> bool:
        """Return whether the rule matches such messages."""
        stream = subject.stream
        return (
            (not self.listeners or not self.listeners.isdisjoint((subject.listener, subject.protocol)))
            and (not self.kinds or subject.kind in self.kinds)
            and (not self.routes or subject.route in self.routes)
            and (not self.identities or subject.identity in self.identities)
            and (self.pattern is None or (stream is not None and self.pattern.match(stream) is not None))
        )


class Rule:
    """A rule in force, with its counters. `fired`: messages, or sessions, on which it fired."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.fired = 0
        self._seen = 0
        self._carried = 0
        self._random = random.Random(f"{fault.seed}/{fault.name}")

    def fires(self, subject: MessageSubject) -> bool:
        """Return whether the rule fires on this message; if so, log and count it. Call once per matching message."""
        chosen = self.chooses()
        if chosen:
            self.report(subject)
        return chosen

    def chooses(self) -> bool:
        """Count a matching message, and return whether the rule fires on it."""
        fault = self.fault
        self._seen += 1
        past = self._seen - fault.after
        if past <= 0 or past % fault.every or (fault.times and self.fired >= fault.times):
            return False
        if fault.probability < 1.0 and self._random.random() >= fault.probability:
            return False
        self.fired += 1
        return True

    def report(self, subject: MessageSubject) -> None:
        """Log and count an injected fault."""
        fault = self.fault
        FAULTS.labels(rule=fault.name, action=fault.action.value).inc()
        log.info(
            "fault_injected",
            rule=fault.name,
            action=fault.action.value,
            direction=fault.direction.value,
            listener=f"listeners.{subject.listener}",
            operation=subject.kind.value,
            stream=str(subject.stream or ""),
        )

    def passes(self, subject: MessageSubject, records: int) -> bool:
        """Count records towards a terminal, for protocols without sessions. Return whether they may pass. Once they
        exceed `records` the count starts again, and they pass only if the rule does not fire."""
        self._carried += records
        if self._carried <= self.fault.records:
            return True
        self._carried = 0
        return not self.fires(subject)

    def delay(self) -> float:
        """Return how long to hold back a message, in seconds."""
        fault = self.fault
        return fault.delay + (self._random.uniform(0.0, fault.jitter) if fault.jitter else 0.0)
