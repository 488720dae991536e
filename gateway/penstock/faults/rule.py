"""One rule: what it concerns, when it fires, and what it does then.

A rule sees the messages that it concerns in the order in which they pass, and decides by counting and by random
numbers of its own: the same traffic and the same seed give the same faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

import structlog

from penstock.metrics.families import FAULTS
from penstock.routing.matching import StreamPattern
from penstock_codecs.failures import Failure, FailureCode
from penstock_codecs.model import StreamRef

__all__ = ["About", "Action", "Direction", "Fault", "Kind", "Rule"]

log = structlog.get_logger()


class Action(Enum):
    """What a rule does with a message; the value is the TOML word."""

    DELAY = "delay"
    DROP = "drop"
    DUPLICATE = "duplicate"
    CUT = "cut"
    THROTTLE = "throttle"
    ERROR = "error"
    TERMINAL = "terminal"


class Direction(Enum):
    """Where a message goes: `in`, from a client, or `out`, to it."""

    IN = "in"
    OUT = "out"


class Kind(Enum):
    """What a message is about: records to be stored, records that are read, or anything else."""

    APPEND = "append"
    READ = "read"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class About:
    """What a message has to do with. `listener`: its label, `s2` or `s2.public`; `stream`: in the client's words, None
    for a message about none; `route` "": there is none; `identity` "": nobody's."""

    listener: str
    kind: Kind
    stream: StreamRef | None = None
    route: str = ""
    identity: str = ""

    @property
    def protocol(self) -> str:
        """The listener's kind: s2, s3p, segment or controller."""
        return self.listener.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule's settings. Empty collections: any. `pattern` None: any stream, and what is about none.

    It passes over the first `after` messages, then fires at each `every`th with `probability`, at most `times` times
    (0: without end). `delay` and `jitter` in seconds, `cut_after` in bytes of the message, `bytes_per_second` of
    throttled messages, `records` before a terminal.
    """

    name: str
    action: Action
    direction: Direction
    listeners: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    pattern: StreamPattern | None = None
    seed: int = 0
    probability: float = 1.0
    every: int = 1
    after: int = 0
    times: int = 0
    delay: float = 0.0
    jitter: float = 0.0
    cut_after: int = 0
    bytes_per_second: int = 1
    records: int = 0
    code: FailureCode = FailureCode.UNAVAILABLE
    message: str = ""

    @property
    def failure(self) -> Failure:
        """What clients are told."""
        return Failure(self.code, self.message)

    def concerns(self, about: About) -> bool:
        """Whether such messages are its business."""
        return (
            (not self.listeners or not self.listeners.isdisjoint((about.listener, about.protocol)))
            and (not self.kinds or about.kind in self.kinds)
            and (not self.routes or about.route in self.routes)
            and (not self.identities or about.identity in self.identities)
            and (self.pattern is None or (about.stream is not None and self.pattern.match(about.stream) is not None))
        )


class Rule:
    """A fault in force, with what it has counted. `fired`: for how many messages, or sessions, it was chosen."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.fired = 0
        self._seen = 0
        self._carried = 0
        self._random = random.Random(f"{fault.seed}/{fault.name}")

    def fires(self, about: About) -> bool:
        """Whether this message is to have it, which is told then. To be asked once for each that the rule concerns."""
        chosen = self.chooses()
        if chosen:
            self.tell(about)
        return chosen

    def chooses(self) -> bool:
        """Whether the next one is to have it."""
        fault = self.fault
        self._seen += 1
        past = self._seen - fault.after
        if past <= 0 or past % fault.every or (fault.times and self.fired >= fault.times):
            return False
        if fault.probability < 1.0 and self._random.random() >= fault.probability:
            return False
        self.fired += 1
        return True

    def tell(self, about: About) -> None:
        """It was injected."""
        fault = self.fault
        FAULTS.labels(rule=fault.name, action=fault.action.value).inc()
        log.info(
            "fault_injected",
            rule=fault.name,
            action=fault.action.value,
            direction=fault.direction.value,
            listener=f"listeners.{about.listener}",
            operation=about.kind.value,
            stream=str(about.stream or ""),
        )

    def passes(self, about: About, records: int) -> bool:
        """For a terminal, where there are no sessions: whether so many records more may pass. Where they may not, and
        it fires, it counts anew."""
        self._carried += records
        if self._carried <= self.fault.records:
            return True
        self._carried = 0
        return not self.fires(about)

    def delay(self) -> float:
        """In seconds: for how long a message is held back."""
        fault = self.fault
        return fault.delay + (self._random.uniform(0.0, fault.jitter) if fault.jitter else 0.0)
