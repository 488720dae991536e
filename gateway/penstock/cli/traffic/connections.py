"""`penstock connections`: the connections of a gateway, with clients and with servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from penstock.cli.admin_client import answer_error, ask, management_options
from penstock.recorder.captures.text import printable, size

__all__ = ["connections_command"]

_HEADS: Final = ("#", "where", "speaks", "client", "server", "age", "client sent", "server sent", "about")
_MOST_NAMES: Final = 3


@click.command("connections")
@management_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one for each connection.")
@click.option(
    "--close", "closed", type=click.IntRange(1), metavar="N", help="Close this connection instead of listing."
)
def connections_command(management: str, token: str | None, as_json: bool, closed: int | None) -> None:
    """List all connections of a running gateway, including those with servers behind it."""
    if closed is not None:
        status, answer = ask(management, token, f"/connections/{closed}/close", {})
        if status != 200:
            raise answer_error(answer)
        click.echo(f"connection {closed} is closed")
        return
    status, answer = ask(management, token, "/connections")
    if status != 200:
        raise answer_error(answer)
    connections = answer["connections"]
    if as_json:
        for one in connections:
            click.echo(json.dumps(one))
        return
    click.echo("\n".join(_table([_HEADS, *(_row(one, time.time()) for one in connections)])))


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


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _age(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
