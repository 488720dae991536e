"""The time that a peer may take to send one message."""

from __future__ import annotations

import math

from penstock.net.limits.settings import Limits

__all__ = ["Pace"]


class Pace:
    """The pace of one connection or session: a message that has begun must be complete in time, or keep coming at a
    rate."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = math.inf

    def deadline(self, held: int, limits: Limits, now: float) -> float:
        """Return when to give up on a message of which `held` bytes have arrived, infinity if none have. Call it before
        each wait.

        Take whole messages out first: bytes held count as a message that has begun.
        """
        if not held:
            self._begun = math.inf
            return math.inf
        self._begun = min(self._begun, now)
        return self._begun + limits.receive_grace_seconds + held / limits.min_receive_rate

    def next(self) -> None:
        """Record that a message is complete: another one may have begun behind it."""
        self._begun = math.inf
