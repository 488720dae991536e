"""Status of a recording, for the management listener and for people."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

__all__ = ["RecordingState", "RecordingStatus"]


class RecordingState(Enum):
    """The state of a recording."""

    RECORDING = "recording"
    SUSPENDED = "suspended"
    """The disk is full or failing; a new file is tried again and again."""
    STOPPED = "stopped"
    """Not started yet, or closed."""


class RecordingStatus(msgspec.Struct, frozen=True):
    """Status of a recording. Counts are over all its files since its start; sizes in bytes."""

    state: RecordingState
    file: Path | None
    """The file being written; None if suspended, stopped or live."""
    files: int
    """Number of files begun."""
    bytes: int
    """Bytes written, or passed to the live listener."""
    events: int
    """Number of events written: data, openings and notes alike."""
    conversations: int
    """Number of conversations begun. One that was dropped and is recorded again counts twice."""
    dropped: int
    """Number of conversations that were dropped because the disk or the listener was too slow."""
    queue_bytes: int
    """Bytes queued."""
    last_error: str | None
    """The last error, even if it was resolved since."""
