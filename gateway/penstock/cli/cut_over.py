"""`penstock cut-over`: swap the primary back of a route with its mirror."""

from __future__ import annotations

import sys
from typing import Any, Final
from urllib.parse import quote

import click

from penstock.cli.admin_client import answer_error, ask, management_options
from penstock.cli.output import json_option, print_result
from penstock.recorder.captures.text import printable

__all__ = ["cut_over_command"]

_MARGIN_SECONDS: Final = 15.0
"""Seconds to wait for the answer beyond the agreed wait."""


@click.command("cut-over")
@click.argument("route")
@management_options
@click.option("--force", is_flag=True, help="Swap even if the two backs differ: readers may miss records.")
@click.option("--wait", "wait_seconds", type=click.FloatRange(0, 600), default=30.0, show_default=True, metavar="S")
@json_option
def cut_over_command(
    route: str, management: str, token: str | None, force: bool, wait_seconds: float, as_json: bool
) -> None:
    """Make the mirror of ROUTE its primary back, and the primary back its mirror.

    Waits at most S seconds until both have the same records. Exits with 1 if nothing was changed.
    """
    words = {"force": force, "wait_seconds": wait_seconds}
    target = f"/routes/{quote(route, safe='')}/cut-over"
    status, answer = ask(management, token, target, words, patience=wait_seconds + _MARGIN_SECONDS)
    if not isinstance(answer, dict) or "swapped" not in answer:
        raise answer_error(answer)
    print_result(answer, _in_words(route, answer), as_json)
    if status != 200:
        sys.exit(1)


def _in_words(route: str, answer: dict[str, Any]) -> list[str]:
    sides = f"{answer['primary']} is the primary back, {answer['secondary']} its mirror"
    held = f"appends waited for {answer['held_ms']} ms"
    lines = [f"route {route}: {'cut over' if answer['swapped'] else 'not cut over'}; {sides}; {held}"]
    return [*lines, *(f"  - {printable(reason)}" for reason in answer["reasons"])]
