"""How long a peer may take over one message."""

from __future__ import annotations

import math

from penstock.config.limits import Limits

__all__ = ["Pace"]


class Pace:
    """Of one connection or session. A message that has begun must be complete in time, or go on coming at a rate."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = math.inf

    def deadline(self, held: int, limits: Limits, now: float) -> float:
        """When to give up on a message of which `held` bytes are there; for none never. To be asked before each wait.

        Whole messages must be taken out before: what is held counts as one that has begun.
        """
        if not held:
            self._begun = math.inf
            return math.inf
        self._begun = min(self._begun, now)
        return self._begun + limits.receive_grace_seconds + held / limits.min_receive_rate

    def next(self) -> None:
        """A message is complete: another may have begun behind it."""
        self._begun = math.inf
