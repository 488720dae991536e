"""`penstock read` and `penstock follow`: write the records of a stream to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.cli.streams.common import on_server, position, server_options

if TYPE_CHECKING:
    from penstock.app.streams.reading import ReadSettings
    from penstock.core.back import Back
    from penstock.model.records import RecordBatch
    from penstock.tools.target.naming import Name

__all__ = ["follow_command", "read_command"]

_FORMATS: Final = ("lines", "json", "length", "hex")
_POSITION: Final = "start, tail, a sequence number, -N records before the tail, an S3P identifier, a time, or 10m ago."

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    form = click.option(
        "--format",
        "form",
        type=click.Choice(_FORMATS),
        default="lines",
        show_default=True,
        help="Each body on a line; JSON with headers and positions; bodies after their length in four bytes; or hex.",
    )
    count = click.option("--count", type=click.IntRange(1), metavar="N", help="End after N records.")
    until = click.option("--until", metavar="POSITION", help="End before this sequence number or time.")
    return click.argument("name", metavar="STREAM")(server_options(form(count(until(command)))))


@click.command("read")
@_options
@click.option(
    "--from", "start", default="start", show_default=True, metavar="POSITION", help=f"Where to begin: {_POSITION}"
)
@click.option("--follow", is_flag=True, help="At the tail, wait for more records.")
def read_command(name: str, form: str, start: str, follow: bool, **options: Any) -> None:
    """Print the records of STREAM: BASIN/STREAM, or a URL such as s3p://HOST:PORT/STREAM."""
    _print(name, form, start, follow, options)


@click.command("follow")
@_options
@click.option(
    "--from", "start", default="tail", show_default=True, metavar="POSITION", help=f"Where to begin: {_POSITION}"
)
def follow_command(name: str, form: str, start: str, **options: Any) -> None:
    """Print the records of STREAM as they are appended, until interrupted: `read --follow --from tail`."""
    _print(name, form, start, True, options)


def _print(name: str, form: str, start: str, follow: bool, options: dict[str, Any]) -> None:
    settings = _settings(start, follow, options)
    output = _Output(form)

    async def work(back: Back, found: Name) -> None:
        from penstock.app.streams.reading import batches_of

        async with aclosing(batches_of(back, found.ref, settings)) as batches:
            async for batch in batches:
                output.write(batch)

    try:
        on_server(name, options, work)
    finally:
        output.end()


def _settings(start: str, follow: bool, options: dict[str, Any]) -> ReadSettings:
    from penstock.app.streams.reading import ReadSettings
    from penstock.model.operations import FromSeqNum, FromTimestamp

    end = None if options["until"] is None else position("--until", options["until"])
    if end is not None and not isinstance(end, FromSeqNum | FromTimestamp):
        raise click.UsageError(f"--until: {options['until']!r} is neither a sequence number nor a time")
    return ReadSettings(start=position("--from", start), end=end, count=options["count"], follow=follow)


class _Output:
    """Standard output in one format."""

    def __init__(self, form: str) -> None:
        from penstock.app.streams.formats import WRITERS, for_terminal

        self._whole = form == "json"
        self._write = for_terminal if form == "lines" and sys.stdout.isatty() else WRITERS[form]
        self._left_out = 0

    def write(self, batch: RecordBatch) -> None:
        """Write a batch, without its command records unless the format has headers."""
        from penstock.model.records import is_command

        ids = repeat(None) if batch.first_id is None else batch.record_ids()
        pieces = []
        for record, record_id in zip(batch.records(), ids, strict=False):
            if self._whole or not is_command(record.headers):
                pieces.append(self._write(record, record_id))
            else:
                self._left_out += 1
        sys.stdout.buffer.write(b"".join(pieces))
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Say on standard error how many records were left out."""
        if self._left_out:
            from penstock.recorder.captures.text import counted

            click.echo(f"left out {counted(self._left_out, 'command record')}; --format json prints them", err=True)
