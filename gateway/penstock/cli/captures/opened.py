"""What all commands that read captures share: arguments, options, errors, the progress bar and the output."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from penstock.captures import Captures, UnreadableCapture
from penstock.captures.choosing import PROTOCOLS
from penstock.cli.progress import watched
from penstock_codecs.capture import CaptureEvent

__all__ = ["begun", "capture_argument", "choice_options", "ending_quietly", "opened", "stream_option", "writer"]

_INTERRUPTED: Final = 128 + signal.SIGINT

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
def ending_quietly(failure: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """Ctrl-C ends without a word, with the exit code that shells give it; a file that cannot be read or written is one
    line, a `failure`. A pipe that nobody reads any more is left to click, which ends quietly."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise failure(f"{error.filename or 'the output'}: {error.strerror or error}") from error


@contextmanager
def opened(paths: Sequence[Path], label: str, prints: bool = True) -> Iterator[Captures]:
    """The captures, with a progress bar where nobody is disturbed by it; says afterwards what is damaged.

    `prints`: lines are printed meanwhile, so that there is no bar on the terminal that shows them.
    """
    with ending_quietly():
        try:
            captures = Captures(paths)
            with watched(label, None if prints and sys.stdout.isatty() else captures.size) as seen:
                captures.on_read = seen
                yield captures
        except UnreadableCapture as error:
            raise click.ClickException(str(error)) from error
        sys.stdout.flush()  # what cannot be written is told here, not when the program ends
    for warning in captures.warnings:
        click.echo(f"Warning: {warning}", err=True)


def begun(captures: Captures) -> Iterator[CaptureEvent]:
    """The events, once there is one: of what is no capture nothing is written, also no head of a table."""
    events = iter(captures)
    first = next(events, None)
    return events if first is None else chain((first,), events)


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
