"""Progress bars for long work over captures, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["watched"]


@contextmanager
def watched(label: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told of each piece that is read, in bytes, of `size` in all.

    Nothing is shown where standard error is no terminal, or the size is not known.
    """
    if size is None or not sys.stderr.isatty():
        yield lambda _size: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update
