"""Settings of a mirror."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["MirrorSettings", "OnRefused"]


class OnRefused(Enum):
    """The action of the copy at a record that the secondary refuses; the value is its name in TOML."""

    STOP = "stop"
    """Stop copying the stream there, until the secondary takes the record."""
    SKIP = "skip"
    """Continue after it; sequence numbers on the secondary are smaller by one from there on."""


class MirrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one route's mirror; times in seconds."""

    on_refused: OnRefused = OnRefused.STOP
    streams_at_once: int = 8
    """Streams that are copied at the same time, each with up to about 8 MiB in memory; others wait for their turn."""
    most_waiting: int = 100_000
    """Most streams that wait in memory; beyond that all streams are listed again once these are done."""
    idle_seconds: float = 5.0
    """Time without appends after which a stream is no longer followed, until the next append."""
    verify_seconds: float = 10.0
    """Longest time until a record that was appended to the secondary can be read back from it."""
    retry_seconds: float = 1.0
    """Pause after a failure of either back; it doubles with every further failure."""
    most_retry_seconds: float = 30.0
    """Longest pause after a failure."""
