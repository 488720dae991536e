"""Names of capture files, which sort by time, and creation of files that are private to their owner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

__all__ = ["PARTIAL", "SQUEEZED", "Naming", "make_private", "try_lock"]

_ENDING: Final = ".pcapng"
SQUEEZED: Final = ".pcapng.zst"
PARTIAL: Final = ".partial"
"""Suffix of a compressed file that is incomplete; its name is also prefixed with a dot."""
_TRIES: Final = 100


class Naming:
    """Names of the form `<prefix>-<UTC time>-<number>.pcapng`. Times increase from name to name, even if the clock
    jumps back.

    Several gateways may write into one directory. The process that writes or compresses a file holds an advisory lock
    on it; others leave the file alone until that process has ended, however it ends.
    """

    def __init__(self, directory: Path, prefix: str, clock: Callable[[], int]) -> None:
        """`clock`: ns since the Unix epoch."""
        self._directory = directory
        self._prefix = prefix
        self._clock = clock
        self._last_us = 0
        self._number = 0
        self._pattern = re.compile(rf"{re.escape(prefix)}-\d{{8}}T\d{{6}}\.\d{{6}}Z-\d{{6,}}\.pcapng(\.zst)?")

    def create(self) -> tuple[Path, int]:
        """Create an empty, locked file and return it with its descriptor. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number += 1
        for _ in range(_TRIES):
            self._last_us = max(self._clock() // 1000, self._last_us + 1)
            path = self._directory / f"{self._prefix}-{_utc(self._last_us)}-{self._number:06}{_ENDING}"
            if path.with_suffix(SQUEEZED).exists():
                continue
            with contextlib.suppress(FileExistsError):
                held = make_private(path)
                # Before it was locked, another gateway may have taken it for an abandoned file.
                if try_lock(held) is not False and os.fstat(held).st_nlink:
                    return path, held
                os.close(held)
        raise FileExistsError(f"no free name for a file in {self._directory}")

    def files(self) -> list[Path]:
        """Return all files of this prefix, by any process, oldest first. Raises OSError."""
        return [self._directory / name for name in sorted(self._names()) if self._pattern.fullmatch(name)]

    def partials(self) -> list[Path]:
        """Return the incomplete compressed files, of running and of killed processes. Raises OSError."""
        names = (name for name in self._names() if name.startswith(".") and name.endswith(PARTIAL))
        return [self._directory / name for name in names if self._pattern.fullmatch(name[1 : -len(PARTIAL)])]

    def source(self, partial: Path) -> Path:
        """Return the plain file that a partial one is made of."""
        return partial.with_name(partial.name[1 : -len(SQUEEZED + PARTIAL)] + _ENDING)

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:  # deleted; it is created again with the next file
            return []


def _utc(time_us: int) -> str:
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{micros:06}Z"


def make_private(path: Path) -> int:
    """Create a file of mode 0600 whatever the umask, open for writing. Raises OSError, and FileExistsError if it
    exists."""
    held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(held, 0o600)
    except OSError:
        os.close(held)
        raise
    return held


def try_lock(held: int) -> bool | None:
    """Lock an open file until it is closed. Returns False if it is locked already, None if its file system has no
    locks."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
