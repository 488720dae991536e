"""Watches a file for changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

__all__ = ["ASIDE_SECONDS", "watch_file"]

ASIDE_SECONDS: Final = 5.0
"""While watching is off, the interval of checks whether it is on again."""

_Seen = tuple[int, int, int] | None


async def watch_file(path: Path, seconds: Callable[[], float | None], changed: Callable[[], Awaitable[None]]) -> None:
    """Check a file every `seconds()` and call `changed` if it differs; never returns. While `seconds()` is None, the
    file is not checked.

    A change is reported once it has stayed the same for one interval, so that a file is read when it is completely
    written. Symbolic links are followed (Kubernetes swaps a link), and a file that is missing for a moment has not
    changed.
    """
    told = seen = _look(path)
    while True:
        pause = seconds()
        await trio.sleep(ASIDE_SECONDS if pause is None else pause)
        if pause is None:
            told = seen = None
            continue
        before, seen = seen, _look(path)
        if told is None:
            told = seen
        elif seen is not None and seen == before and seen != told:
            told = seen
            await changed()


def _look(path: Path) -> _Seen:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
