"""What an operator may choose about a recording that is written to files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from penstock_codecs.limits import MIB

__all__ = ["QUEUE_BYTES", "Compression", "FileSettings", "Priority", "Sync"]

QUEUE_BYTES: Final = 64 * MIB
"""Half a second of what one gateway process moves at the most: what a disk may take to come back from a pause."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Compression(Enum):
    """What becomes of a file once it is closed."""

    NONE = "none"
    ZSTD = "zstd"
    """`.pcapng.zst` takes its place. The file being written is always plain, so that it can be read meanwhile."""


class Sync(Enum):
    """When files are flushed to the disk itself, as nothing but a loss of power or of the whole machine needs it."""

    NEVER = "never"
    CLOSE = "close"
    """Once a file is closed, or compressed. Nothing waits for it."""
    INTERVAL = "interval"
    """Also every `fsync_seconds`; the queue needs room for what comes meanwhile."""


class Priority(Enum):
    """Who goes first where there are not processors enough for both."""

    TRAFFIC = "traffic"
    """Recording takes a small share at the most, and leaves out whole conversations, bulk first."""
    RECORDING = "recording"
    """Recording takes what it needs, and traffic is the slower for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Settings of a recording; sizes in bytes, times in seconds."""

    directory: Path
    """Where the files are; made where it is missing, for its owner alone. Several gateways may share it."""
    prefix: str = "penstock"
    """Names are `<prefix>-<UTC time>-<number>.pcapng`; letters, digits, `.`, `_` and `-`, and no `.` at its beginning.
    Nothing else in the directory is ever counted, compressed or deleted."""
    rotate_bytes: int | None = 256 * MIB
    """A file that has grown so long is closed, and another one begun; None: whatever its length."""
    rotate_seconds: float | None = None
    """A file that is so old is closed, if anything was recorded in it; None: whatever its age."""
    keep_files: int | None = None
    """So many files of this prefix stay, the one being written among them, and the oldest go; None: all."""
    keep_bytes: int | None = 16 * 1024 * MIB
    """So much they take together, as above. None: as much as there is."""
    compress: Compression = Compression.NONE
    """What becomes of closed files."""
    fsync: Sync = Sync.CLOSE
    """When files are flushed to the disk itself."""
    fsync_seconds: float = 5.0
    """How often, with `Sync.INTERVAL`."""
    queue_bytes: int = QUEUE_BYTES
    """How much may wait for the disk; then whole conversations are dropped, those first that have most waiting."""
    flush_seconds: float = 0.05
    """How long an event may wait for others, to be written together with them."""
    retry_seconds: float = 10.0
    """How often a new file is tried while the disk is full or failing."""
    priority: Priority = Priority.TRAFFIC
    """Who goes first on a machine without processors to spare."""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"prefix: {self.prefix!r} has other signs than letters, digits, '.', '_' and '-'")
