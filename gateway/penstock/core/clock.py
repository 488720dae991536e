"""The time of day, as an argument: code that needs it gets a clock, so that tests can stop it.

Theory of operation. Stored times outlive a wrong clock: a stream that was stamped with next year has next year's
timestamps until then, and retention that ran a year ahead has deleted what it should have kept. Clocks jump for
seconds, when a time server or a person is wrong. So the gateway counts by the system's monotonic clock from a time that
it trusts, and follows the system's time of day at once only where the two differ by `JUMP_SECONDS` or less. It follows
a larger jump, forwards or backwards, once that has lasted for `TRUST_SECONDS`. The time of day at the start is trusted,
since there is nothing to compare it with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["JUMP_SECONDS", "TRUST_SECONDS", "Clock", "SteadyClock", "wall_clock"]

Clock = Callable[[], int]
"""The time of day in ms since the Unix epoch; may jump."""

JUMP_SECONDS: Final = 60
"""Largest difference from the count that is followed at once: more than time servers correct, and less than harms."""
TRUST_SECONDS: Final = 60
"""Time that a larger jump must last until it is followed."""
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The monotonic clock. That of Linux goes on while the system is suspended."""


def _system_time() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_time() -> int:
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def _log() -> Any:
    import structlog  # commands that only show their help need a clock, and no log

    return structlog.get_logger()


class SteadyClock:
    """A `Clock` that follows large jumps of the system's time of day only if they last.

    `system`: the time of day; `count`: a monotonic clock; in ms.
    """

    def __init__(self, system: Clock = _system_time, count: Clock = _monotonic_time) -> None:
        self._system = system
        self._count = count
        self._offset = system() - count()
        self._jump: tuple[int, int] | None = None  # the offset since a jump that is not followed yet, and when it began

    def __call__(self) -> int:
        """Return the time in ms since the Unix epoch."""
        system, count = self._system(), self._count()
        offset = system - count
        if abs(offset - self._offset) > JUMP_SECONDS * 1000:
            if self._jump is None or abs(offset - self._jump[0]) > JUMP_SECONDS * 1000:
                self._jump = offset, count
                _log().warning("clock_jumped", seconds=(offset - self._offset) // 1000, followed_in=TRUST_SECONDS)
            if count - self._jump[1] < TRUST_SECONDS * 1000:
                return count + self._offset
            _log().warning("clock_followed", seconds=(offset - self._offset) // 1000)
        elif self._jump is not None:
            _log().info("clock_returned", seconds=(offset - self._offset) // 1000)
        self._offset, self._jump = offset, None
        return system

    def trouble(self) -> str | None:
        """Return what is wrong with the system's time of day, as a sentence; None if nothing is."""
        self()
        if self._jump is None:
            return None
        seconds = (self._jump[0] - self._offset) // 1000
        return (
            f"the clock jumped by {seconds} s: the gateway counts on from the time before, "
            f"until the jump has lasted for {TRUST_SECONDS} s"
        )


wall_clock: Final = SteadyClock()
"""The clock of the gateway."""
