"""Progress bars on standard error for long work over captures, if it is a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["progress_bar", "shares_terminal"]


def shares_terminal() -> bool:
    """Return whether lines on standard output may appear on the bar's terminal: directly, or through a pipe (`|
    less`)."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # not a file, as in tests
        return True
    return sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def progress_bar(label: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """Draw a bar on standard error; yield the function that advances it by a number of bytes, of `size` in all.

    Draws nothing if standard error is not a terminal, or the size is unknown (None).
    """
    if size is None or not sys.stderr.isatty():
        yield lambda _size: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update
