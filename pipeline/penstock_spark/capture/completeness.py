"""Detection of complete files and of ended recordings.

A recorder holds an advisory lock on the file that it writes, and begins the next one only when that is closed. So a
file is complete when it is compressed, when its recording continues in another file, or when no process holds its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Final

from penstock_spark.capture.files import FileInfo
from penstock_spark.capture.recordings import RecordingFiles, file_number_of

__all__ = ["complete", "over"]

_NS: Final = 1_000_000_000


def complete(recording: RecordingFiles, now_ns: int, settle_seconds: float) -> int:
    """Return the number of complete files of a recording, counted from the first. `now_ns`: since 1970.

    Files that no recorder named are complete when unmodified for `settle_seconds`: other programs lock none.
    """
    count = max(0, recording.certain - 1)  # the recording continues in another file
    for place in recording.files[count:]:
        if not (_is_squeezed(place) or _is_left(place, now_ns, settle_seconds)):
            break
        count += 1
    return count


def over(last: FileInfo, now_ns: int, settle_seconds: float) -> bool:
    """Return whether the recording that ends with this file has ended: no process holds the file, and it was not
    modified for `settle_seconds`, since between two files a recorder holds no lock for a moment."""
    return (_is_squeezed(last) or _is_left(last, now_ns, 0)) and _is_old(last, now_ns, settle_seconds)


def _is_squeezed(place: FileInfo) -> bool:
    return file_number_of(place) is not None and place.name.endswith(".zst")


def _is_old(place: FileInfo, now_ns: int, seconds: float) -> bool:
    return place.modified_ns <= now_ns - int(seconds * _NS)


def _is_left(place: FileInfo, now_ns: int, settle_seconds: float) -> bool:
    """Return whether a file is known to have no writer, which locks show only in a mounted file system."""
    if not place.size:
        return False
    if file_number_of(place) is None:
        return _is_old(place, now_ns, settle_seconds)
    return place.local and _unlocked(place.path)


def _unlocked(path: str, lock: Callable[[int, int], None] = fcntl.flock) -> bool:
    """Return whether a file is unlocked. Takes a shared lock for a moment, as other readers do."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):
            lock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        return False
    finally:
        os.close(held)
