"""`penstock streams`, `create`, `delete` and `trim`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import json_lines_option, print_lines
from penstock.cli.streams.common import on_server, position, server_options
from penstock.core.config_fields import DEFAULT_BASIN

if TYPE_CHECKING:
    from penstock.core.back import Back
    from penstock.model.streams import StreamConfig, StreamInfo
    from penstock.tools.target.naming import Name

__all__ = ["create_command", "delete_command", "streams_command", "trim_command"]


@click.command("streams")
@click.argument("name", metavar="[BASIN[/PREFIX]]", default="")
@server_options
@json_lines_option("stream")
def streams_command(name: str, as_lines: bool, **options: Any) -> None:
    """List the streams of a server, of one basin, or with names that begin with PREFIX.

    BASIN may be a URL such as s2://HOST:PORT/BASIN. Servers of some protocols cannot list their streams.
    """

    async def work(back: Back, target: Name) -> None:
        from penstock.model.failures import FailureCode, OperationFailed, fail
        from penstock.tools.target.back import TARGET_BACK

        failed: dict[str, str] = {}
        async with aclosing(_basins(back, target, failed)) as basins:
            async for basin in basins:
                try:
                    async with aclosing(_streams(back, basin, target.stream)) as streams:
                        async for info in streams:
                            print_lines(_line(target.basin or basin, info, as_lines))
                except OperationFailed as error:
                    if target.basin:
                        raise
                    failed[f"basin {basin}"] = error.failure.message
        for missing in failed.keys() - {f"back {TARGET_BACK}"}:
            click.echo(f"{missing}: its streams are missing", err=True)
        for reason in failed.values():
            raise fail(FailureCode.UNAVAILABLE, reason)

    on_server(f"{name}/" if name and "/" not in name else name, options, work)


@click.command("create")
@click.argument("name", metavar="STREAM")
@server_options
@click.option("--retention", metavar="AGE", help='Keep records for this time, such as 7d; "forever" keeps them all.')
def create_command(name: str, retention: str | None, **options: Any) -> None:
    """Create STREAM: BASIN/STREAM, or a URL such as s3p://HOST:PORT/STREAM. A name that ends in / is a basin."""
    config = _config(retention)

    async def work(back: Back, target: Name) -> None:
        from penstock.model.operations import CreateBasin, CreateStream
        from penstock.model.streams import BasinConfig

        if target.stream:
            await back.perform(CreateStream(target.ref, config))
        else:
            await back.perform(CreateBasin(_basin(target), BasinConfig(default_stream_config=config)))
        click.echo(f"created {target}", err=True)

    on_server(name, options, work)


@click.command("delete")
@click.argument("name", metavar="STREAM")
@server_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_command(name: str, yes: bool, **options: Any) -> None:
    """Delete STREAM with its records: BASIN/STREAM, or a URL such as s3p://HOST:PORT/STREAM. A name that ends in / is a
    basin, which is deleted with all its streams."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{name} is deleted with its records without a question only with --yes")
        click.confirm(f"Delete {name} and its records?", abort=True)

    async def work(back: Back, target: Name) -> None:
        from penstock.model.operations import DeleteBasin, DeleteStream

        await back.perform(DeleteStream(target.ref) if target.stream else DeleteBasin(_basin(target)))
        click.echo(f"deleted {target}", err=True)

    on_server(name, options, work)


@click.command("trim")
@click.argument("name", metavar="STREAM")
@server_options
@click.option(
    "--before",
    required=True,
    metavar="POSITION",
    help="The first record to keep: a sequence number, an S3P identifier, a time, or 7d ago.",
)
def trim_command(name: str, before: str, **options: Any) -> None:
    """Remove the records of STREAM before a position."""
    from penstock.model.operations import FromByteOffset, FromTailOffset

    start = position("--before", before)
    if isinstance(start, FromTailOffset | FromByteOffset):
        raise click.UsageError(f"--before: {before!r} is no sequence number, S3P identifier or time")

    async def work(back: Back, target: Name) -> None:
        from penstock.model.operations import Trim

        first = await back.perform(Trim(target.ref, start))
        click.echo(f"trimmed {target}: the first record is {first.seq_num}", err=True)

    on_server(name, options, work)


def _basin(target: Name) -> str:
    from penstock.tools.target.url import BadTarget

    if not target.basin:
        raise BadTarget(f"{target}: the name of a stream or basin is missing")
    return target.reached_basin


def _config(retention: str | None) -> StreamConfig:
    from penstock.app.streams.positions import seconds_in
    from penstock.model.streams import INFINITE, Retention, StreamConfig

    if retention is None:
        return StreamConfig()
    if retention == "forever":
        return StreamConfig(retention=INFINITE)
    seconds = seconds_in(retention)
    if not seconds or seconds < 1:
        raise click.UsageError(f'--retention: expected a time such as 7d, or "forever", got {retention!r}')
    return StreamConfig(retention=Retention(int(seconds)))


async def _basins(back: Back, target: Name, failed: dict[str, str]) -> AsyncGenerator[str, None]:
    """Yield the names of basins. Adds the backs whose basins are missing to `failed`, each with the reason."""
    from penstock.model.operations import ListBasins

    if target.basin:
        yield target.reached_basin
        return
    last, more = "", True
    while more:
        page = await back.perform(ListBasins(start_after=last, partial=True))
        failed |= {f"back {name}": reason for name, reason in page.failed.items()}
        for info in page.items:
            yield info.name
            last = info.name
        more = page.has_more
    if not (last or failed):
        await _check_listing(back)


async def _check_listing(back: Back) -> None:
    """Raise OperationFailed if the server cannot list streams, which a server without basins may also be unable to."""
    from penstock.model.failures import FailureCode, OperationFailed
    from penstock.model.operations import ListStreams

    try:
        await back.perform(ListStreams(DEFAULT_BASIN, limit=1))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
            raise


async def _streams(back: Back, basin: str, prefix: str) -> AsyncGenerator[StreamInfo, None]:
    from penstock.model.operations import ListStreams

    last, more = "", True
    while more:
        page = await back.perform(ListStreams(basin, prefix, last))
        for info in page.items:
            yield info
            last = info.name
        more = page.has_more


def _line(basin: str, info: StreamInfo, as_json: bool) -> str:
    from penstock.recorder.captures.lines import as_json as line

    if not as_json:
        return f"{basin}/{info.name}"
    return line({"basin": basin, "stream": info.name, "created_at": info.created_at, "deleted_at": info.deleted_at})
