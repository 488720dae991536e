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
        lines = [f"connection {closed} is closed"]
    else:
        connections = answered(management, token, "/connections")["connections"]
        lines = [*table([_HEADS, *(_row(connection, time.time()) for connection in connections)])]
    if as_lines:
        print_json(*connections)
    else:
        print_lines(*lines)


def _row(connection: dict[str, Any], now: float) -> Sequence[str]:
    return (
        str(connection["connection"]),
        connection["name"],
        connection["protocol"] + (" (TLS)" if connection["tls"] else ""),
        connection["client"],
        connection["server"],
        _age(now - connection["since"] / 1000),
        size(connection["client_bytes"]),
        size(connection["server_bytes"]),
        ", ".join(_about(connection)),
    )


def _about(connection: dict[str, Any]) -> Iterator[str]:
    for what, key in (("stream", "streams"), ("route", "routes"), ("identity", "identities")):
        names = connection[key]
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            yield f"{what} {' '.join(map(printable, names[:_MOST_NAMES]))}{more}"
    if connection["recordings"]:
        yield f"recorded by {' '.join(map(str, connection['recordings']))}"


def _age(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
