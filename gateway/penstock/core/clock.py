"""The time of day, as an argument: code that needs it gets a clock, so that tests can stop it."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "wall_clock"]

Clock = Callable[[], int]
"""The time of day in ms since the Unix epoch; may jump."""


def wall_clock() -> int:
    """Return the system's time in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000
