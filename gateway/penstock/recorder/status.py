"""How a recording is doing, for the management listener and for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["RecordingState", "RecordingStatus"]


class RecordingState(Enum):
    """Whether it takes anything."""

    RECORDING = "recording"
    SUSPENDED = "suspended"
    """The disk is full or failing; a new file is tried again and again."""
    STOPPED = "stopped"
    """Not started yet, or closed."""


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """Counts are from the start of the recording, over all its files; sizes in bytes."""

    state: RecordingState
    file: Path | None
    """The one being written; None: suspended, stopped, or live."""
    files: int
    """How many were begun."""
    bytes: int
    """How much was written, or given to the live listener."""
    events: int
    """What was written, bytes and openings and notes alike."""
    conversations: int
    """How many were recorded, or begun to be. One that was dropped and comes again counts twice."""
    dropped: int
    """How many of these were given up, because the disk or the listener did not follow."""
    queue_bytes: int
    """How much is waiting."""
    last_error: str | None
    """What went wrong last, also if it was mended since."""
