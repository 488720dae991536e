"""Output of commands: tables, results as JSON, and standard streams that are closed, full or without a reader."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO, TypeVar, cast

import click

__all__ = ["guarding_output", "json_lines_option", "json_option", "print_json", "print_lines", "print_result", "table"]

F = TypeVar("F", bound=Callable[..., Any])


def json_lines_option(what: str) -> Callable[[F], F]:
    """Return the option `--json`, as `as_lines`, of a command that lists: one object on a line for each `what`."""
    return click.option("--json", "as_lines", is_flag=True, help=f"Print JSON lines, one for each {what}.")


def json_option(command: F) -> F:
    """Add the option `--json`, as `as_json`, of a command that has one result: one object on one line."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")(command)


def print_json(*objects: Any) -> None:
    """Print each object as JSON on a line of its own."""
    from penstock.recorder.captures.lines import as_json

    print_lines(*map(as_json, objects))


def print_result(result: Any, lines: Iterable[str], as_json: bool) -> None:
    """Print the one result of a command: as a JSON object, or these lines."""
    if as_json:
        print_json(result)
    else:
        print_lines(*lines)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table, the head first, in columns as wide as they need."""
    from penstock.recorder.captures.text import columns

    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def print_lines(*lines: str) -> None:
    """Print the lines. If the reader has left, ignore that, so that the command's exit code still tells the outcome."""
    with contextlib.suppress(BrokenPipeError):
        for line in lines:
            click.echo(line)


@contextlib.contextmanager
def guarding_output() -> Iterator[None]:
    """Exit quietly with code 0 when the reader of standard output leaves, as in `penstock show x | head`.

    A standard stream that was closed from the start (`<&-`, `>&-`) and is used, or a full disk, ends the command with
    one line, as a ClickException.
    """
    if sys.stdin is None:
        sys.stdin = _unusable_stream("r", os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _unusable_stream("w", os.O_RDONLY)
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        has_no_reader = isinstance(error, BrokenPipeError) and _reader_left()  # not another pipe or socket
        _flush_or_discard()
        if has_no_reader:
            raise click.exceptions.Exit(0) from None
        if error.errno == errno.EBADF:
            raise click.ClickException("standard input or output is closed") from None
        if error.errno == errno.ENOSPC:
            raise click.ClickException(f"{error.filename or 'the output'}: {error.strerror}") from None
        raise
    except BaseException:
        _flush_or_discard()
        raise


def _unusable_stream(mode: str, flags: int) -> TextIO:
    """Return a stream whose use fails with EBADF. It occupies the closed descriptor, which a socket would get else."""
    return cast(TextIO, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _flush_or_discard() -> None:
    """Leave nothing for the interpreter to flush at exit: it would complain about a failed write."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _reader_left() -> bool:
    """Return whether standard output is a pipe or socket without a reader."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):  # not a file, as in tests; or closed
        return False
