"""`penstock backs` and `penstock routes`: the servers behind a running gateway, and the routes to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from penstock.cli.admin_client import answered, management_options
from penstock.cli.output import json_lines_option, print_json, print_lines, table
from penstock.recorder.captures.text import duration, printable

__all__ = ["backs_command", "routes_command"]

_BACK_HEADS: Final = ("name", "kind", "address", "circuit", "since", "reason")
_ROUTE_HEADS: Final = ("name", "back", "circuit", "mirror", "streams")


@click.command("backs")
@management_options
@json_lines_option("back")
def backs_command(management: str, token: str | None, as_lines: bool) -> None:
    """List the backs of a running gateway, each with the state of its circuit breaker and the reason."""
    backs = answered(management, token, "/backs")["backs"]
    if as_lines:
        print_json(*backs)
    else:
        print_lines(*table([_BACK_HEADS, *map(_back, backs)]))


@click.command("routes")
@management_options
@json_lines_option("route")
def routes_command(management: str, token: str | None, as_lines: bool) -> None:
    """List the routes of a running gateway, each with the back that answers its clients now, and its mirror."""
    routes = answered(management, token, "/routes")["routes"]
    if as_lines:
        print_json(*routes)
    else:
        print_lines(*table([_ROUTE_HEADS, *map(_route, routes)]))


def _back(back: dict[str, Any]) -> tuple[str, ...]:
    since = "" if back["since"] is None else f"{datetime.fromtimestamp(back['since'] / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return back["name"], back["kind"], back["address"], back["circuit"], since, printable(back["reason"])


def _route(route: dict[str, Any]) -> tuple[str, ...]:
    mirror = "" if route["mirror"] is None else ", ".join(_mirror(route["mirror"]))
    return route["name"], route["back"], route["circuit"] or "", mirror, printable(route["match"])


def _mirror(mirror: dict[str, Any]) -> Iterator[str]:
    yield f"{mirror['secondary']}: {mirror['state']}"
    if mirror["lag_records"]:
        yield f"{mirror['lag_records']} records behind, {duration(mirror['lag_ms'] * 1_000_000)}"
