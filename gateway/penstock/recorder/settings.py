"""Settings of recordings into files."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from penstock.model.limits import MIB

__all__ = ["QUEUE_BYTES", "FileCompression", "FileSettings", "Priority", "Sync"]

QUEUE_BYTES: Final = 64 * MIB
"""Half a second of the maximum throughput of a gateway process, enough for a typical pause of a disk."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class FileCompression(Enum):
    """The treatment of closed files."""

    NONE = "none"
    ZSTD = "zstd"
    """Replace the file with `.pcapng.zst`. The file being written is always plain, so that it can be read meanwhile."""


class Sync(Enum):
    """Moments at which files are flushed to the disk, which matters only if power or the whole machine fails."""

    NEVER = "never"
    CLOSE = "close"
    """A flush once a file is closed or compressed. Nothing waits for it."""
    INTERVAL = "interval"
    """Also every `fsync_seconds`; the queue needs room for what comes meanwhile."""


class Priority(Enum):
    """Precedence of traffic or recording when processors are short."""

    TRAFFIC = "traffic"
    """Recording takes a small share at most, and drops whole conversations, bulk first."""
    RECORDING = "recording"
    """Recording takes what it needs, and traffic becomes slower."""


class FileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a recording; sizes in bytes, times in seconds."""

    directory: Path
    """Directory of the files; created if missing, private to its owner. Several gateways may share it."""
    prefix: str = "penstock"
    """Names are `<prefix>-<UTC time>-<number>.pcapng`. The prefix has letters, digits, `.`, `_` and `-`, and does not
    begin with `.`. Nothing else in the directory is ever counted, compressed or deleted."""
    rotate_bytes: int | None = 256 * MIB
    """Size at which a file is closed and the next one begun; None: unlimited."""
    rotate_seconds: float | None = None
    """Age at which a file is closed, if anything was recorded in it; None: unlimited."""
    keep_files: int | None = None
    """Number of files of this prefix to keep, including the one being written; the oldest are deleted. None: all."""
    keep_bytes: int | None = 16 * 1024 * MIB
    """Total size of the files to keep, as above. None: unlimited."""
    compress: FileCompression = FileCompression.NONE
    """The treatment of closed files."""
    fsync: Sync = Sync.CLOSE
    """Moments at which files are flushed to the disk."""
    fsync_seconds: float = 5.0
    """Interval of flushes with `Sync.INTERVAL`."""
    queue_bytes: int = QUEUE_BYTES
    """Maximum number of bytes queued for the disk; beyond it whole conversations are dropped, those with the most
    queued bytes first."""
    flush_seconds: float = 0.05
    """Maximum delay of an event, to be written together with others."""
    retry_seconds: float = 10.0
    """Interval of attempts to begin a new file while the disk is full or failing."""
    priority: Priority = Priority.TRAFFIC
    """Precedence of traffic or recording when processors are short."""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"prefix: expected letters, digits, '.', '_' and '-', got {self.prefix!r}")
