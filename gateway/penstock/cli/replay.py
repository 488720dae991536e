"""`penstock replay`: play recorded clients against another server."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.capture.pcapng import CaptureEvent
from penstock.cli.captures.opened import capture_argument, one_side, side_option
from penstock.cli.output import json_option, print_result
from penstock.cli.progress import progress_bar
from penstock.core.errors import CannotStart
from penstock.recorder.captures.opening import CaptureEvents, UnreadableCapture
from penstock.tools.replay import AS_RECORDED, PATIENCE_SECONDS
from penstock.tools.target import LOSS_WORDS
from penstock.tools.target.url import schemes

if TYPE_CHECKING:
    from penstock.protocols.servers import Server
    from penstock.tools.replay.replaying import ReplaySettings
    from penstock.tools.replay.report import ReplaySummary

__all__ = ["replay_command"]


@click.command("replay")
@capture_argument
@click.option(
    "--to",
    "url",
    required=True,
    metavar="URL",
    help=f"The server: SCHEME://HOST:PORT[/BASIN]. SCHEME is {schemes()}, and may end in +tls.",
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="PENSTOCK_TOKEN",
    show_envvar=True,
    help="Bearer token for the server, if it takes one.",
)
@click.option(
    "--tls-ca",
    type=click.Path(dir_okay=False, exists=True),
    help="PEM file of authorities to trust for the server's certificate.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=AS_RECORDED,
    show_default=True,
    metavar="N",
    help="Replay N times as fast as recorded.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Replay N records a second, instead of by time.",
)
@click.option("--fast", is_flag=True, help="Replay without delays, but keep the order of requests and replies.")
@click.option("--apart", is_flag=True, help="Each connection waits only for its own replies, not for others.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=PATIENCE_SECONDS,
    show_default=True,
    metavar="S",
    help="Seconds that a wait may take longer than in the recording.",
)
@click.option("--give-up", is_flag=True, help="Close a connection whose wait timed out, instead of going on.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="GLOB",
    help="Only requests for streams that match: BASIN/STREAM, or STREAM of any basin.",
)
@click.option("--connection", "connections", multiple=True, type=int, metavar="N", help="Only this connection.")
@side_option("Connections of clients (front), or connections to servers (back).", both=False)
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="Only traffic from this time on: seconds from the start, or 2026-01-31T12:00:00Z.",
)
@click.option("--until", metavar="TIME", help="Only traffic up to this time.")
@click.option(
    "--loops", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Play the recording N times."
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="GLOB=NAME",
    help="Rename streams that match GLOB on the server; {stream}, {1} and {loop} are filled in.",
)
@click.option(
    "--basin",
    default="penstock",
    show_default=True,
    metavar="BASIN",
    help="Basin for recorded clients that name none.",
)
@click.option("--loss", type=click.Choice(LOSS_WORDS), help="Treatment of records that the server cannot store.")
@click.option(
    "--through",
    is_flag=True,
    help="Replay through a gateway in this process even if the server speaks the recorded protocol.",
)
@json_option
@click.option("--strict", is_flag=True, help="Exit with 1 if anything differed from the recording.")
def replay_command(captures: tuple[Path, ...], url: str, as_json: bool, strict: bool, **options: Any) -> None:
    """Play the clients of a recording again: each waits for what it had waited for in the recording.

    The server may speak the recorded protocol or another one. Several CAPTUREs are parts of one recording; - is
    standard input.
    """
    import trio

    from penstock.observe import configure_logging
    from penstock.tools.target.url import parse_target

    try:
        target = parse_target(url)
        settings = _settings(captures, options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    configure_logging("warning", "auto")
    try:
        summary = trio.run(_replay, captures, target, settings)
    except (CannotStart, UnreadableCapture, ValueError) as error:
        raise click.ClickException(str(error)) from error
    print_result(summary.as_json(), summary.lines(), as_json)
    if (strict or summary.vain) and not summary.same:
        sys.exit(1)


def _settings(captures: tuple[Path, ...], options: dict[str, Any]) -> ReplaySettings:
    """Return the settings of a replay. Raises ValueError."""
    from penstock.tools.replay.replaying import PlayedParts, ReplaySettings
    from penstock.tools.target.back import TargetOptions

    for name in ("speed", "rate", "patience"):
        if options[name] is not None and math.isnan(options[name]):
            raise ValueError(f"--{name}: {options[name]} is not a number")
    speeds = [name for name in ("fast", "rate") if options[name]] + ["speed"] * (options["speed"] != AS_RECORDED)
    if len(speeds) > 1:
        raise ValueError(f"give only one of {', '.join(f'--{name}' for name in speeds)}")
    renames = tuple(_rename(text) for text in options["renames"])
    return ReplaySettings(
        options=TargetOptions(
            token=options["token"],
            tls_ca=options["tls_ca"],
            loss=options["loss"],
            basin=options["basin"],
            renames=renames,
        ),
        parts=PlayedParts(one_side(captures, options["side"]), frozenset(options["connections"]), options["streams"]),
        speed=math.inf if options["fast"] else options["speed"],
        rate=options["rate"],
        together=not options["apart"],
        patience=options["patience"],
        gives_up=options["give_up"],
        since=options["since"],
        until=options["until"],
        loops=options["loops"],
        through=options["through"],
    )


def _rename(text: str) -> tuple[str, str]:
    glob, equals, name = text.partition("=")
    if not (glob and equals and name):
        raise ValueError(f"--rename: expected GLOB=NAME, got {text!r}")
    return glob, name


async def _replay(captures: tuple[Path, ...], target: Server, settings: ReplaySettings) -> ReplaySummary:
    from penstock.cli.signals import until_signalled
    from penstock.tools.replay.replaying import Replay, capture_events

    damage: dict[str, None] = {}
    size = CaptureEvents(captures).size
    with progress_bar("replaying", None if size is None else size * settings.loops) as seen:

        async def events() -> AsyncGenerator[CaptureEvent, None]:
            opened = CaptureEvents(captures, seen)
            async with aclosing(capture_events(opened)) as found:
                async for event in found:
                    yield event
            damage.update(dict.fromkeys(opened.warnings))

        replay = Replay(target, events, settings)
        if not await until_signalled(replay.run):
            replay.summary.stop()
            click.echo("interrupted", err=True)
    replay.summary.damage = "; ".join(damage) or None
    return replay.summary
