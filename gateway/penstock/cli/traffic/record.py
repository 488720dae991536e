"""`penstock record` and `penstock recordings`: start, stop and list recordings of a running gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.admin_client import answered, management_options
from penstock.cli.output import json_lines_option, json_option, print_lines, print_result
from penstock.cli.traffic.selecting import PLURALS, SPOKEN, in_words, selection_options

__all__ = ["record_commands", "recordings_command"]


@click.group("record")
def record_commands() -> None:
    """Record the traffic of a running gateway into its [recorder] directory."""


@record_commands.command("start")
@management_options
@selection_options(SPOKEN)
@json_option
def _start(management: str, token: str | None, as_json: bool, **options: tuple[Any, ...]) -> None:
    """Start a recording of the connections that the options select (default: all) and print its number.

    Connections that are already open are recorded from that point on.
    """
    words = {PLURALS[name]: values for name, values in options.items() if values}
    recording = answered(management, token, "/recordings", words)
    print_result(recording, _in_words(recording), as_json)


@record_commands.command("stop")
@click.argument("number", type=click.IntRange(1), required=False)
@management_options
@json_option
def _stop(number: int | None, management: str, token: str | None, as_json: bool) -> None:
    """Stop recording NUMBER; its last file is then complete. The number may be left out if only one is running."""
    if number is None:
        running = [
            one["id"] for one in answered(management, token, "/recordings")["recordings"] if one["kind"] != "live"
        ]
        if len(running) != 1:
            numbers = f": give one of {', '.join(map(str, running))}" if running else ""
            raise click.ClickException(f"{len(running) or 'no'} recordings are running{numbers}")
        (number,) = running
    recording = answered(management, token, f"/recordings/{number}/stop", {})
    print_result(recording, _in_words(recording), as_json)


@click.command("recordings")
@management_options
@json_lines_option("recording")
def recordings_command(management: str, token: str | None, as_lines: bool) -> None:
    """List the running recordings of a gateway, including live ones (`penstock tail`)."""
    recordings = answered(management, token, "/recordings")["recordings"]
    for recording in recordings:
        print_result(recording, _in_words(recording), as_lines)
    if not recordings and not as_lines:
        print_lines("no recordings are running")


record_commands.add_command(recordings_command, "list")


def _in_words(recording: dict[str, Any]) -> Iterator[str]:
    kind = (
        "live" if recording["kind"] == "live" else f"{recording['files']} file{'s' if recording['files'] != 1 else ''}"
    )
    yield f"recording {recording['id']}: {recording['state']} ({kind}), {in_words(recording['selection'])}"
    yield (
        f"  {recording['conversations']} connections, {recording['dropped']} of them dropped; "
        f"{recording['bytes']} bytes written, {recording['queue_bytes']} waiting"
    )
    if recording["file"] is not None:
        yield f"  into {recording['file']}"
    if recording["last_error"] is not None:
        yield f"  last error: {recording['last_error']}"
