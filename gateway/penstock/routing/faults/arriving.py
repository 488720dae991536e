"""Faults on messages before they reach a back, and on its answers before they reach a front."""

from __future__ import annotations

from typing import Final, NamedTuple

import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Appended
from penstock.model.records import RecordId, StreamPosition
from penstock.net.cutting import cut_connection
from penstock.routing.faults.rule import Action, FaultDirection, MessageKind, MessageSubject
from penstock.routing.faults.rules import Faults

__all__ = ["GHOST", "AnswerFault", "answer_fault", "apply_request_faults", "dropped_failure"]

_NOWHERE: Final = StreamPosition(0, 0)
GHOST: Final = Appended(_NOWHERE, _NOWHERE, _NOWHERE, RecordId(0, 0), 0)
"""The acknowledgement of a dropped append: the front needs one to continue, and it is never sent."""
_ON_ARRIVAL: Final = frozenset({Action.DELAY, Action.THROTTLE, Action.ERROR, Action.DROP, Action.CUT})
_ON_CHANGES: Final = _ON_ARRIVAL | {Action.DUPLICATE}
"""Actions on messages other than reads: a duplicated read would have no effect."""
_ON_ANSWERS: Final = frozenset({Action.DELAY, Action.ERROR})
_ON_WHOLE_ANSWERS: Final = _ON_ANSWERS | {Action.THROTTLE}


class AnswerFault(NamedTuple):
    """`until`: the trio time before which the answer is held back. `failure`: sent instead of the answer, if any."""

    until: float
    failure: Failure | None


async def apply_request_faults(faults: Faults, subject: MessageSubject, size: int) -> int:
    """Apply the faults of an incoming message of `size` bytes. Return how many times to hand it on, 0 to drop it.

    Raises OperationFailed if the message is to fail before it has any effect. Never returns if the connection is cut.
    """
    copies = 1
    actions = _ON_ARRIVAL if subject.kind is MessageKind.READ else _ON_CHANGES
    for rule in faults.firing(subject, FaultDirection.IN, actions):
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
            await cut_connection()
    return copies


def answer_fault(faults: Faults, subject: MessageSubject, size: int) -> AnswerFault:
    """Apply the faults of an answer of `size` bytes that is ready now. Return when to send it, or its failure."""
    until, failure = trio.current_time(), None
    actions = _ON_WHOLE_ANSWERS if subject.throttled_whole else _ON_ANSWERS
    for rule in faults.firing(subject, FaultDirection.OUT, actions):
        fault = rule.fault
        if fault.action is Action.DELAY:
            until += rule.delay()
        elif fault.action is Action.THROTTLE:
            until += size / fault.bytes_per_second
        else:
            failure = failure or fault.failure
    return AnswerFault(until, failure)


def dropped_failure(code: FailureCode = FailureCode.UNAVAILABLE) -> OperationFailed:
    """Return the failure of a dropped message; the front makes a message of it, which is not sent."""
    return fail(code, "dropped by a fault")
