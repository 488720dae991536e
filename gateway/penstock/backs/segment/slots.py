"""Appends that were handed over to a writer, and how they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import trio

from penstock_codecs.failures import Failure, FailureCode, OperationFailed

__all__ = ["Slot", "in_order", "raise_or"]

COST: Final = 512
"""What an append in flight costs beside its bytes, about."""


class Slot:
    """One append. `number`: the writer's position after it; `count`: of events; `expected`: the length that the segment
    must have; `sends`: how often it was sent."""

    __slots__ = (
        "count",
        "data",
        "end_offset",
        "expected",
        "failure",
        "mismatched",
        "number",
        "over",
        "sends",
        "sent_at",
    )

    def __init__(self, data: bytes, number: int, count: int, expected: int | None) -> None:
        self.data = data
        self.number = number
        self.count = count
        self.expected = expected
        self.sends = 0
        self.sent_at = 0.0
        self.mismatched = False
        """The server said that the condition does not hold, after the append had been sent more than once."""
        self.over = trio.Event()
        self.end_offset: int | None = None
        self.failure: Failure | None = None

    @property
    def cost(self) -> int:
        """What it costs while it is in flight."""
        return len(self.data) + COST

    def stored(self, end_offset: int | None) -> None:
        """It is in the segment; `end_offset`: where its bytes end, where known."""
        self.end_offset = end_offset
        self.over.set()

    def failed(self, failure: Failure) -> None:
        """It is not, or nobody knows."""
        self.failure = self._as_far_as_sent(failure)
        self.over.set()

    def _as_far_as_sent(self, failure: Failure) -> Failure:
        """A lost server can have stored what was sent, and has nothing of what was not."""
        if failure.code is FailureCode.HOT_SERVER and self.sends:
            return Failure(FailureCode.UNAVAILABLE, failure.message, failure.details)
        if failure.retryable and failure.side_effect_possible and not self.sends:
            return Failure(FailureCode.HOT_SERVER, failure.message, failure.details)
        return failure


def in_order(slots: deque[Slot]) -> Iterator[Slot]:
    """Takes those that are stored, up to the first that is under way or has failed."""
    while slots and slots[0].over.is_set() and slots[0].failure is None:
        yield slots.popleft()


def raise_or(slot: Slot) -> Slot:
    """The slot, which is over. Raises OperationFailed where it failed."""
    if slot.failure is not None:
        raise OperationFailed(slot.failure)
    return slot
