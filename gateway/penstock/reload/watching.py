"""Seeing that a file has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

__all__ = ["watch_file"]

ASIDE_SECONDS: Final = 1.0
"""While nobody is to look, so often it is seen whether somebody is."""

_Seen = tuple[int, int, int] | None


async def watch_file(path: Path, seconds: Callable[[], float | None], changed: Callable[[], Awaitable[None]]) -> None:
    """For ever: look at a file every `seconds()`, and call `changed` where it is another than before. While that is
    None nobody looks.

    A change is told once it is a look old, so that a file that is being written is read when it is complete. What
    links lead to counts (Kubernetes swaps a link), and a file that is away for a moment has not changed.
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
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
