"""What an operator may set of a mirror."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["MirrorSettings", "OnRefused"]


class OnRefused(Enum):
    """What becomes of the copy of a stream at a record that the secondary cannot carry (the value is the TOML word)."""

    STOP = "stop"
    """It ends there, until the secondary takes the record."""
    SKIP = "skip"
    """It goes on behind it; sequence numbers on the secondary are smaller by one from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """Settings of one route's mirror; times in seconds."""

    on_refused: OnRefused = OnRefused.STOP
    streams_at_once: int = 8
    """So many streams are copied at the same time, each with up to about 8 MiB in memory; others wait their turn."""
    most_waiting: int = 100_000
    """So many streams may wait in memory; beyond that all streams are listed again once these are done."""
    idle_seconds: float = 5.0
    """A stream without appends for so long is no longer followed, until the next append."""
    verify_seconds: float = 10.0
    """A record that was appended to the secondary must be read back from it within this."""
    retry_seconds: float = 1.0
    """Pause after a failure of either back; it doubles with every further one,"""
    most_retry_seconds: float = 30.0
    """up to this."""
