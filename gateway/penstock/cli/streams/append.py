"""`penstock append`: append the records of a file or of standard input to a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from penstock.cli.output import json_lines_option
from penstock.cli.progress import progress_bar
from penstock.cli.streams.common import on_server, server_options

if TYPE_CHECKING:
    from penstock.app.streams.appending import AppendSummary
    from penstock.core.back import Back
    from penstock.model.operations import Appended
    from penstock.model.records import Header
    from penstock.tools.target.naming import Name

__all__ = ["append_command"]

_FORMATS: Final = ("lines", "json", "length", "whole")
_PIECE: Final = 64 * 1024


@click.command("append")
@click.argument("name", metavar="STREAM")
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@server_options
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="lines",
    show_default=True,
    help="Each line is a body, or a JSON object; bodies after their length in four bytes; or the whole input is one.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Add this header to each record.")
@click.option("--no-timestamps", is_flag=True, help="Leave timestamps to the server, not those of the JSON objects.")
@click.option("--match-seq-num", type=click.IntRange(0), metavar="N", help="Append only if the first record gets this.")
@click.option("--fencing-token", metavar="TEXT", help="Append only if this is the stream's fencing token.")
@json_lines_option("acknowledgement")
def append_command(name: str, source: BinaryIO, form: str, as_lines: bool, **options: Any) -> None:
    """Append records to STREAM: BASIN/STREAM, or a URL such as s3p://HOST:PORT/STREAM.

    Each line of FILE, or of standard input, is a record. All are on the server's disk when the command ends with 0; if
    it fails, it says how many are.
    """
    from penstock.app.streams.appending import AppendSettings, AppendSummary, append_input
    from penstock.app.streams.formats import PARSERS

    settings = AppendSettings(
        headers=tuple(map(_header, options["headers"])),
        timestamps=not options["no_timestamps"],
        match_seq_num=options["match_seq_num"],
        fencing_token=options["fencing_token"],
    )
    summary = AppendSummary(on_progress=_print if as_lines else lambda _appended: None)
    if source.isatty():
        click.echo("Each line is a record; Ctrl-D ends.", err=True)

    async def work(back: Back, found: Name) -> None:
        with progress_bar("appending", _size(source)) as advance:
            await append_input(back, found.ref, _pieces(source, advance), PARSERS[form](), settings, summary)

    try:
        on_server(name, options, work)
    except (click.ClickException, SystemExit):
        if summary.count:
            click.echo(_in_words(summary), err=True)
        raise
    click.echo(_in_words(summary), err=True)


def _header(text: str) -> Header:
    from penstock.model.records import Header

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--header: expected NAME=VALUE, got {text!r}")
    return Header(os.fsencode(name), os.fsencode(value))


async def _pieces(source: BinaryIO, advance: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
    """Yield input as it comes. It is read around the buffer: a thread that waits in it would keep its lock at exit."""
    import trio

    from penstock.app.streams.formats import BadInput

    try:
        while data := await trio.to_thread.run_sync(os.read, source.fileno(), _PIECE, abandon_on_cancel=True):
            yield data
            advance(len(data))
    except OSError as error:
        raise BadInput(f"the input cannot be read: {error.strerror}") from error


def _size(source: BinaryIO) -> int | None:
    """Return the size of a file in bytes; None of other inputs."""
    size = os.fstat(source.fileno()).st_size if source.seekable() else 0
    return size or None


def _print(appended: Appended) -> None:
    from penstock.recorder.captures.lines import as_json

    line = {
        "start": appended.start._asdict(),
        "end": appended.end._asdict(),
        "tail": appended.tail._asdict(),
    }
    sys.stdout.write(as_json(line) + "\n")
    sys.stdout.flush()


def _in_words(summary: AppendSummary) -> str:
    from penstock.recorder.captures.text import counted

    if summary.start is None or summary.end is None:
        return "appended nothing"
    first, last = summary.start.seq_num, summary.end.seq_num - 1
    place = f"sequence number {first}" if first == last else f"sequence numbers {first} to {last}"
    return f"appended {counted(summary.count, 'record')}: {place}"
