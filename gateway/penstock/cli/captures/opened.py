"""Shared parts of the commands that read captures: arguments, options, errors, the progress bar and the output."""

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

from penstock.capture.pcapng import CaptureEvent, Side
from penstock.cli.progress import progress_bar, shares_terminal
from penstock.recorder.captures.choosing import FILTER_TERMS, PROTOCOLS, CaptureFilter, parse_filter
from penstock.recorder.captures.opening import CaptureEvents, UnreadableCapture, recorded_side

__all__ = [
    "begun",
    "capture_argument",
    "choice_options",
    "ending_quietly",
    "filter_option",
    "one_side",
    "opened_captures",
    "side_option",
    "stream_option",
    "text_option",
    "writer",
]

_SIDES: Final[dict[str, Side | None]] = {"front": Side.FRONT, "back": Side.BACK, "both": None}
_INTERRUPTED: Final = 128 + signal.SIGINT

F = TypeVar("F", bound=Callable[..., Any])


def capture_argument(command: F) -> F:
    """Add the argument `captures`: one capture or several."""
    return click.argument(
        "captures", metavar="CAPTURE...", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True)
    )(command)


def stream_option(command: F) -> F:
    """Add the option `--stream`, as `streams`."""
    return click.option(
        "--stream", "streams", multiple=True, metavar="GLOB", help="Only streams that match, such as 'basin/*'."
    )(command)


def text_option(command: F) -> F:
    """Add the option `--text`, as `text`."""
    return click.option(
        "--text", default="", metavar="TEXT", help="Only messages with this text in a field or a record."
    )(command)


def filter_option(command: F) -> F:
    """Add the option `--filter`, as `expression`, a CaptureFilter."""

    def parsed(_context: click.Context, _option: click.Parameter, text: str) -> CaptureFilter:
        try:
            return parse_filter(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help_text = f"Filters in one line, such as 'kind=Append* stream=penstock/*'; names: {', '.join(FILTER_TERMS)}."
    return click.option("--filter", "expression", default="", metavar="EXPRESSION", callback=parsed, help=help_text)(
        command
    )


def choice_options(command: F) -> F:
    """Add the options `--connection`, `--protocol`, `--stream` and `--side`, as `connections`, `protocols`, `streams`
    and `side`."""
    connection = click.option(
        "--connection", "connections", type=int, multiple=True, metavar="N", help="Only this connection."
    )
    protocol = click.option(
        "--protocol", "protocols", multiple=True, type=click.Choice(PROTOCOLS), help="Only this protocol."
    )
    side = side_option("Connections of clients (front), connections to servers (back), or both.")
    return connection(protocol(stream_option(side(command))))


def side_option(meaning: str, *, both: bool = True) -> Callable[[F], F]:
    """Return the option `--side`, as `side` (None if not given). `both`: offer "both", too."""
    words = [word for word, side in _SIDES.items() if both or side is not None]
    help_text = f"{meaning}  [default: front, or back if only that was recorded]"
    return click.option("--side", type=click.Choice(words), help=help_text)


def one_side(paths: Sequence[Path], asked: str | None) -> Side:
    """Return the side of the gateway that was asked for. By default return FRONT, or, with a note on standard error,
    BACK if only that side was recorded. Raises click.ClickException."""
    if asked is not None:
        return _SIDES[asked] or Side.FRONT
    try:
        side = recorded_side(paths)
    except UnreadableCapture as error:
        raise click.ClickException(str(error)) from error
    if side is Side.BACK:
        where = ", ".join(map(str, paths))
        click.echo(f"{where}: only connections to servers were recorded; using those.", err=True)
    return side or Side.FRONT


@contextmanager
def ending_quietly(failure: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """Return a context manager that ends a command without a traceback. Ctrl-C exits silently with the shells' exit
    code; a file that cannot be read or written is reported in one line, as a `failure`. A broken pipe is left to click,
    which exits quietly."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise failure(f"{error.filename or 'the output'}: {error.strerror or error}") from error


@contextmanager
def opened_captures(
    paths: Sequence[Path], label: str, prints: bool = True, side: str | None = "both", connections: Sequence[int] = ()
) -> Iterator[CaptureEvents]:
    """Open the captures, with a progress bar if it does not disturb output; report damage afterwards, and the side of
    the gateway that was left out by default.

    `prints`: lines are printed meanwhile, so there is no bar if the same terminal may show them. `side`: as
    `side_option` gives it. `connections`: connections asked for, on either side.
    """
    with ending_quietly():
        try:
            captures = _of_side(paths, "both" if side is None and connections else side)
            with progress_bar(label, None if prints and shares_terminal() else captures.size) as seen:
                captures.on_read = seen
                yield captures
        except UnreadableCapture as error:
            raise click.ClickException(str(error)) from error
        sys.stdout.flush()  # report a write error here, not when the program ends
    for warning in captures.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if side is None and captures.left_out:
        click.echo(
            "Left out: connections between the gateway and its servers, which carry the same traffic again "
            "(--side back or --side both shows them).",
            err=True,
        )


def _of_side(paths: Sequence[Path], side: str | None) -> CaptureEvents:
    if side == "both":
        return CaptureEvents(paths)
    if side is None and (captures := CaptureEvents(paths, prefers_front=True)).live:
        return captures
    return CaptureEvents(paths, side=one_side(paths, side))


def begun(captures: CaptureEvents) -> Iterator[CaptureEvent]:
    """Return the events, waiting for the first one: an input that is not a capture then fails before a table's head is
    written."""
    events = iter(captures)
    first = next(events, None)
    return events if first is None else chain((first,), events)


def writer(captures: CaptureEvents) -> Callable[[str], None]:
    """Return a function that writes lines to standard output; it flushes each line if the capture is still being
    written."""
    stream = sys.stdout
    if not captures.live:

        def put(line: str) -> None:
            stream.write(line + "\n")

        return put

    def write(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    return write
