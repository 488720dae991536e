"""Progress bars for long work over captures, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["watched"]


@contextmanager
def watched(captures: Sequence[Path], label: str, times: int = 1) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told of each piece that is read, in bytes. `times`: how often all is read.

    Nothing is shown where standard error is no terminal, or the size of a capture is not known.
    """
    sizes = [path.stat().st_size for path in captures if path.is_file()]
    if not sys.stderr.isatty() or len(sizes) < len(captures):
        yield lambda _size: None
        return
    with click.progressbar(length=sum(sizes) * times, label=label, file=sys.stderr) as bar:
        yield bar.update
