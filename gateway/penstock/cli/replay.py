"""`penstock replay`: recorded clients speak again, to another server."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import click
import trio

from penstock.captures import Captures, UnreadableCapture
from penstock.cli.captures.opened import capture_argument
from penstock.cli.progress import watched
from penstock.cli.signals import until_signalled
from penstock.errors import CannotStart
from penstock.observe import configure_logging
from penstock.replay.configuring import LOSS_WORDS, TargetOptions
from penstock.replay.events import capture_events
from penstock.replay.pace import AS_RECORDED
from penstock.replay.player import PATIENCE_SECONDS
from penstock.replay.replaying import Replay, ReplaySettings
from penstock.replay.report import Summary
from penstock.replay.selection import PlayedParts
from penstock.replay.target import Target
from penstock_codecs.capture import CaptureEvent, Side

__all__ = ["replay_command"]

_SIDES: Final = {"front": Side.FRONT, "back": Side.BACK}


@click.command("replay")
@capture_argument
@click.option(
    "--to",
    "url",
    required=True,
    metavar="URL",
    help="The server: s2://HOST:PORT[/BASIN], s3p://, segment://, "
    "segment+draft://, pravega:// (its controller), each also with +tls; http:// and https:// mean S2.",
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="PENSTOCK_TOKEN",
    show_envvar=True,
    help="Bearer token that an S2 server is shown.",
)
@click.option(
    "--tls-ca",
    type=click.Path(dir_okay=False, exists=True),
    help="PEM file with the authorities that the server's certificate is from.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=AS_RECORDED,
    show_default=True,
    metavar="N",
    help="N times as fast as it was.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="N records a second, instead of by time."
)
@click.option("--fast", is_flag=True, help="As fast as what the recorded clients waited for comes.")
@click.option("--apart", is_flag=True, help="Connections do not wait for each other, each only for its own server.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=PATIENCE_SECONDS,
    show_default=True,
    metavar="S",
    help="Seconds that a wait may take longer than in the recording.",
)
@click.option("--give-up", is_flag=True, help="A connection ends where a wait ran out, instead of going on.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="GLOB",
    help="Only what is about such streams: BASIN/STREAM, or STREAM of any basin.",
)
@click.option("--connection", "connections", multiple=True, type=int, metavar="N", help="Only this connection.")
@click.option(
    "--side",
    type=click.Choice(list(_SIDES)),
    default="front",
    show_default=True,
    help="Whose connections: of clients, or of the gateway with the servers behind it.",
)
@click.option(
    "--from", "since", metavar="TIME", help="What began since then: seconds from the start, or 2026-01-31T12:00:00Z."
)
@click.option("--until", metavar="TIME", help="Nothing after that.")
@click.option(
    "--loops", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Play all of it N times."
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="GLOB=NAME",
    help="Streams with such names are called so on the server; {stream}, {1} and {loop} are filled in.",
)
@click.option(
    "--basin",
    default="penstock",
    show_default=True,
    metavar="BASIN",
    help="Of recorded S3P and segment clients that name none.",
)
@click.option(
    "--loss", type=click.Choice(LOSS_WORDS), help="What is done with what the server's protocol cannot carry."
)
@click.option(
    "--through", is_flag=True, help="Through a gateway in this process also where the server speaks what was recorded."
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@click.option("--strict", is_flag=True, help="End with 1 where anything was different from the recording.")
def replay_command(captures: tuple[Path, ...], url: str, as_json: bool, strict: bool, **said: Any) -> None:
    """Play the clients of a recording again, as a conversation: each waits for what it had waited for.

    Over the protocol that was recorded, or over another one. Several CAPTUREs are parts of one recording; - is standard
    input.
    """
    try:
        target = Target.parse(url)
        settings = _settings(said)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    configure_logging("warning", "auto")
    try:
        summary = trio.run(_replay, captures, target, settings)
    except (CannotStart, UnreadableCapture, ValueError) as error:
        raise click.ClickException(str(error)) from error
    _show(summary, as_json)
    if (strict or summary.vain) and not summary.same:
        sys.exit(1)


def _settings(said: dict[str, Any]) -> ReplaySettings:
    """Raises ValueError."""
    for name in ("speed", "rate", "patience"):
        if said[name] is not None and math.isnan(said[name]):
            raise ValueError(f"--{name}: {said[name]} is no number")
    given = [name for name in ("fast", "rate") if said[name]] + ["speed"] * (said["speed"] != AS_RECORDED)
    if len(given) > 1:
        raise ValueError(f"say one of {', '.join(f'--{name}' for name in given)}")
    renames = tuple(_rename(text) for text in said["renames"])
    return ReplaySettings(
        options=TargetOptions(
            token=said["token"], tls_ca=said["tls_ca"], loss=said["loss"], basin=said["basin"], renames=renames
        ),
        parts=PlayedParts(_SIDES[said["side"]], frozenset(said["connections"]), said["streams"]),
        speed=math.inf if said["fast"] else said["speed"],
        rate=said["rate"],
        together=not said["apart"],
        patience=said["patience"],
        gives_up=said["give_up"],
        since=said["since"],
        until=said["until"],
        loops=said["loops"],
        through=said["through"],
    )


def _rename(text: str) -> tuple[str, str]:
    glob, equals, name = text.partition("=")
    if not (glob and equals and name):
        raise ValueError(f"--rename: expected GLOB=NAME, got {text!r}")
    return glob, name


async def _replay(captures: tuple[Path, ...], target: Target, settings: ReplaySettings) -> Summary:
    damage: dict[str, None] = {}
    size = Captures(captures).size
    with watched("replaying", None if size is None else size * settings.loops) as seen:

        async def events() -> AsyncGenerator[CaptureEvent, None]:
            opened = Captures(captures, seen)
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


def _show(summary: Summary, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary.as_json(), ensure_ascii=False))
        return
    for line in summary.lines():
        click.echo(line)
