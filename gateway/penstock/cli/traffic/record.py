"""`penstock record`: start, stop and list recordings of a running gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.admin_client import answer_error, ask, management_options
from penstock.cli.traffic.selecting import PLURALS, SPOKEN, in_words, selection_options

__all__ = ["record_commands"]


@click.group("record")
def record_commands() -> None:
    """Record the traffic of a running gateway into its [recorder] directory."""


@record_commands.command("start")
@management_options
@selection_options(SPOKEN)
def _start(management: str, token: str | None, **asked: tuple[Any, ...]) -> None:
    """Start a recording of the connections that the options select (default: all) and print its number.

    Connections that are already open are recorded from that point on.
    """
    words = {PLURALS[name]: values for name, values in asked.items() if values}
    click.echo("\n".join(_in_words(_asked(management, token, "/recordings", words))))


@record_commands.command("stop")
@click.argument("number", type=click.IntRange(1))
@management_options
def _stop(number: int, management: str, token: str | None) -> None:
    """Stop recording NUMBER; its last file is then complete."""
    click.echo("\n".join(_in_words(_asked(management, token, f"/recordings/{number}/stop", {}))))


@record_commands.command("list")
@management_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one for each recording.")
def _list(management: str, token: str | None, as_json: bool) -> None:
    """List running recordings, including live ones (`penstock tail`)."""
    recordings = _asked(management, token, "/recordings")["recordings"]
    for one in recordings:
        click.echo(json.dumps(one) if as_json else "\n".join(_in_words(one)))
    if not recordings and not as_json:
        click.echo("no recordings are running")


def _asked(management: str, token: str | None, target: str, words: object = None) -> Any:
    status, answer = ask(management, token, target, words)
    if status != 200:
        raise answer_error(answer)
    return answer


def _in_words(one: dict[str, Any]) -> Iterator[str]:
    kind = "live" if one["kind"] == "live" else f"{one['files']} file{'s' if one['files'] != 1 else ''}"
    yield f"recording {one['id']}: {one['state']} ({kind}), {in_words(one['selection'])}"
    yield (
        f"  {one['conversations']} connections, {one['dropped']} of them dropped; {one['bytes']} bytes written, "
        f"{one['queue_bytes']} waiting"
    )
    if one["file"] is not None:
        yield f"  into {one['file']}"
    if one["last_error"] is not None:
        yield f"  last error: {one['last_error']}"
