"""`penstock connections`: the connections of a gateway, with clients and with servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from penstock.cli.admin_client import answered, management_options
from penstock.cli.output import json_lines_option, print_json, print_lines, table
from penstock.recorder.captures.text import printable, size

__all__ = ["connections_command"]

_HEADS: Final = ("#", "where", "speaks", "client", "server", "age", "client sent", "server sent", "about")
_MOST_NAMES: Final = 3


@click.command("connections")
@management_options
@json_lines_option("connection")
@click.option(
    "--close", "closed", type=click.IntRange(1), metavar="N", help="Close this connection instead of listing."
)
def connections_command(management: str, token: str | None, as_lines: bool, closed: int | None) -> None:
    """List all connections of a running gateway, including those with servers behind it."""
    if closed is not None:
        connections = [answered(management, token, f"/connections/{closed}/close", {})]
        said = [f"connection {closed} is closed"]
    else:
        connections = answered(management, token, "/connections")["connections"]
        said = [*table([_HEADS, *(_row(one, time.time()) for one in connections)])]
    if as_lines:
        print_json(*connections)
    else:
        print_lines(*said)


def _row(one: dict[str, Any], now: float) -> Sequence[str]:
    return (
        str(one["connection"]),
        one["name"],
        one["protocol"] + (" (TLS)" if one["tls"] else ""),
        one["client"],
        one["server"],
        _age(now - one["since"] / 1000),
        size(one["client_bytes"]),
        size(one["server_bytes"]),
        ", ".join(_about(one)),
    )


def _about(one: dict[str, Any]) -> Iterator[str]:
    for what, key in (("stream", "streams"), ("route", "routes"), ("identity", "identities")):
        names = one[key]
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            yield f"{what} {' '.join(map(printable, names[:_MOST_NAMES]))}{more}"
    if one["recordings"]:
        yield f"recorded by {' '.join(map(str, one['recordings']))}"


def _age(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
