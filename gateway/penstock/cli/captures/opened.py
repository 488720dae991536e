"""What all commands that read captures share: arguments, options, errors, the progress bar and the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.captures import Captures, UnreadableCapture
from penstock.captures.choosing import PROTOCOLS

__all__ = ["capture_argument", "choice_options", "opened", "stream_option", "writer"]

F = TypeVar("F", bound=Callable[..., Any])


def capture_argument(command: F) -> F:
    """One capture or several, as `captures`."""
    return click.argument(
        "captures", metavar="CAPTURE...", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True)
    )(command)


def stream_option(command: F) -> F:
    """`--stream`, as `streams`."""
    return click.option(
        "--stream", "streams", multiple=True, metavar="GLOB", help="Only what is about such streams, as 'basin/*'."
    )(command)


def choice_options(command: F) -> F:
    """`--connection`, `--protocol` and `--stream`, as `connections`, `protocols` and `streams`."""
    connection = click.option(
        "--connection", "connections", type=int, multiple=True, metavar="N", help="Only this connection."
    )
    protocol = click.option(
        "--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS), help="Only what is spoken so."
    )
    return connection(protocol(stream_option(command)))


@contextmanager
def opened(paths: Sequence[Path], label: str, prints: bool = True) -> Iterator[Captures]:
    """The captures, with a progress bar where nobody is disturbed by it; says afterwards what is damaged.

    `prints`: lines are printed meanwhile, so that there is no bar on the terminal that shows them.
    """
    try:
        captures = Captures(paths)
        size = captures.size
        if size is None or not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
            yield captures
        else:
            with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
                captures.on_read = bar.update
                yield captures
    except UnreadableCapture as error:
        raise click.ClickException(str(error)) from error
    for warning in captures.warnings:
        click.echo(f"Warning: {warning}", err=True)


def writer(captures: Captures) -> Callable[[str], None]:
    """Writes lines to standard output; at once, where the capture is still being written."""
    stream = sys.stdout
    if not captures.live:

        def put(line: str) -> None:
            stream.write(line + "\n")

        return put

    def write(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    return write
