"""The write-ahead log as a file: its length, and syncing it and the file that it is moved into.

A failed sync is final. Linux reports a failed write once, and keeps the pages in its cache as if they had been written:
a second sync succeeds over data that the disk does not have. So nothing may be acknowledged after it, and the log must
not restart; the next start of the gateway reads the log again.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.model.limits import MIB

__all__ = ["WriteAheadLog", "is_failed_sync", "rewrite_log", "sync", "sync_directory"]

_COUNTERS: Final = Struct("=16xI76xI")
"""Fields of the log's index: the number of frames in the log, at offset 16, and of those that were moved, at 96
(SQLite's documentation of the WAL-index format)."""
_FRAME_HEAD_BYTES: Final = 24


class WriteAheadLog:
    """The write-ahead log of an open database, measured without SQLite, which would take a thread hop."""

    def __init__(self, db: sqlite3.Connection, file: Path) -> None:
        """Measure the log of the database in `file`; `db` is a connection to it that has read. Raises OSError."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        self._frame_bytes = page_bytes + _FRAME_HEAD_BYTES
        self._index = os.open(f"{file}-shm", os.O_RDONLY | os.O_CLOEXEC)

    def lengths(self) -> tuple[int, int]:
        """Return the number of bytes in the log, and how many of them are in the file already."""
        written, moved = _COUNTERS.unpack(os.pread(self._index, _COUNTERS.size, 0))
        return written * self._frame_bytes, moved * self._frame_bytes

    def close(self) -> None:
        """Close the index, after all connections: closing any descriptor of a file drops this process's locks on it."""
        os.close(self._index)


class _SyncFailed(OSError):
    """A failed sync by this module, rather than by SQLite."""


def sync(file: int) -> None:
    """Sync a file by its descriptor. Raises an OSError for which `is_failed_sync` returns True."""
    try:
        os.fdatasync(file)
    except OSError as error:
        raise _SyncFailed(error.errno, f"a sync failed: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Sync the names of a directory's files. Raises OSError; `is_failed_sync` is true for that of a failed sync."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        raise _SyncFailed(error.errno, f"a sync failed: {error.strerror}") from error
    finally:
        os.close(handle)


def is_failed_sync(error: Exception) -> bool:
    """Return whether an error is a failed sync, of SQLite or of this module."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
    return isinstance(error, _SyncFailed)


def rewrite_log(db: sqlite3.Connection, file: Path) -> None:
    """Write the log that a crash left once more, and sync it: it may be in the system's cache only.

    `db` is a connection to the database in `file`. Raises OSError and sqlite3.Error.
    """
    db.execute("BEGIN IMMEDIATE")  # keeps other processes from writing meanwhile
    with Path(f"{file}-wal").open("r+b", buffering=0) as held:
        at = 0
        while data := os.pread(held.fileno(), MIB, at):
            at += os.pwrite(held.fileno(), data, at)
        if at:
            sync(held.fileno())
    db.execute("ROLLBACK")
