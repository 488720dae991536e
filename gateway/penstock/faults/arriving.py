"""What is done to messages before a back hears of them, and to its answers before a front does."""

from __future__ import annotations

from typing import Final, NamedTuple

import trio

from penstock.faults.cutting import cut
from penstock.faults.rule import About, Action, Direction, Kind
from penstock.faults.rules import Faults
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.model import RecordId, StreamPosition
from penstock_codecs.operations import Appended

__all__ = ["GHOST", "Answer", "arrival", "held_back", "lost"]

_NOWHERE: Final = StreamPosition(0, 0)
GHOST: Final = Appended(_NOWHERE, _NOWHERE, _NOWHERE, RecordId(0, 0), 0)
"""The acknowledgement of what never arrived: a front needs one to go on, and it is never sent."""
_ON_ARRIVAL: Final = frozenset({Action.DELAY, Action.THROTTLE, Action.ERROR, Action.DROP, Action.CUT})
_ON_CHANGES: Final = _ON_ARRIVAL | {Action.DUPLICATE}
"""A read that is asked twice is one."""
_ON_ANSWERS: Final = frozenset({Action.DELAY, Action.ERROR})
_ON_SEGMENT_ANSWERS: Final = _ON_ANSWERS | {Action.THROTTLE}
"""See `penstock.faults.messages.ON_SEGMENT_MESSAGES`."""


class Answer(NamedTuple):
    """When an answer may go, as a trio time, and the failure that is told instead of it, if any."""

    until: float
    failure: Failure | None


async def arrival(faults: Faults, about: About, size: int) -> int:
    """A message of so many bytes comes in. How many times it is handed on: 0 where it is dropped.

    Raises OperationFailed where it fails before anything is done, and never returns where the connection is cut.
    """
    copies = 1
    actions = _ON_ARRIVAL if about.kind is Kind.READ else _ON_CHANGES
    for rule in faults.firing(about, Direction.IN, actions):
        fault = rule.fault
        if fault.action is Action.DELAY:
            await trio.sleep(rule.delay())
        elif fault.action is Action.THROTTLE:
            await trio.sleep(size / fault.bytes_per_second)
        elif fault.action is Action.ERROR:
            raise OperationFailed(fault.failure)
        elif fault.action is Action.DUPLICATE:
            copies += 1
        elif fault.action is Action.DROP:
            return 0
        else:
            await cut()
    return copies


def held_back(faults: Faults, about: About, size: int) -> Answer:
    """What becomes of an answer with so many bytes that is there now."""
    until, failure = trio.current_time(), None
    actions = _ON_SEGMENT_ANSWERS if about.protocol == "segment" else _ON_ANSWERS
    for rule in faults.firing(about, Direction.OUT, actions):
        fault = rule.fault
        if fault.action is Action.DELAY:
            until += rule.delay()
        elif fault.action is Action.THROTTLE:
            until += size / fault.bytes_per_second
        else:
            failure = failure or fault.failure
    return Answer(until, failure)


def lost(code: FailureCode = FailureCode.UNAVAILABLE) -> OperationFailed:
    """Of what never arrived; the front makes a message of it, which is not sent."""
    return fail(code, "dropped by a fault")
