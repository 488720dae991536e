"""`penstock cut-over`: the mirror of a route takes over."""

from __future__ import annotations

import sys
from typing import Any, Final
from urllib.parse import quote

import click

from penstock.captures.text import printable
from penstock.cli.asking import ask, management_options, refused

__all__ = ["cut_over_command"]

_MARGIN_SECONDS: Final = 15.0
"""The answer comes that much later than agreed upon at the most."""


@click.command("cut-over")
@click.argument("route")
@management_options
@click.option("--force", is_flag=True, help="Also where the two backs are not equal: readers may miss records.")
@click.option("--wait", "wait_seconds", type=click.FloatRange(0, 600), default=30.0, show_default=True, metavar="S")
def cut_over_command(route: str, management: str, token: str | None, force: bool, wait_seconds: float) -> None:
    """Make the mirror of ROUTE its primary back, and the other way round.

    Waits until both have the same records, at most S seconds. Ends with 1 where nothing was changed.
    """
    words = {"force": force, "wait_seconds": wait_seconds}
    target = f"/routes/{quote(route, safe='')}/cut-over"
    status, answer = ask(management, token, target, words, patience=wait_seconds + _MARGIN_SECONDS)
    if not isinstance(answer, dict) or "swapped" not in answer:
        raise refused(answer)
    click.echo(_in_words(route, answer))
    if status != 200:
        sys.exit(1)


def _in_words(route: str, answer: dict[str, Any]) -> str:
    sides = f"{answer['primary']} answers clients, {answer['secondary']} is given the copy"
    held = f"appends waited for {answer['held_ms']} ms"
    lines = [f"route {route}: {'cut over' if answer['swapped'] else 'not cut over'}; {sides}; {held}"]
    return "\n".join([*lines, *(f"  - {printable(reason)}" for reason in answer["reasons"])])
