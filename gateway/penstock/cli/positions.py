"""`penstock positions`: a record's position in every protocol."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import click

from penstock.cli.admin_client import answered, management_options
from penstock.cli.output import json_option, print_result

__all__ = ["positions_command"]


@click.command("positions")
@click.argument("stream", metavar="BASIN/STREAM")
@management_options
@click.option("--seq-num", help="The first record at or after this sequence number.")
@click.option("--timestamp", help="The first record stamped at or after this time, in ms.")
@click.option("--record-id", metavar="MS-SEQ", help="The first record at or after this record id.")
@click.option("--offset", help="The first record that begins at or after this byte.")
@click.option("--tail-offset", help="The record at this distance before the tail, in records.")
@click.option("--group", metavar="NAME", help="The record that this consumer group reads next.")
@click.option("--listener", help="Use the routes of this listener.")
@click.option("--identity", help="Use the routes of this identity.")
@json_option
def positions_command(stream: str, management: str, token: str | None, as_json: bool, **options: str | None) -> None:
    """Show a record's position in every protocol, and how clients of each protocol read on from there.

    Give exactly one of the options for the position.
    """
    query = {"stream": stream, **{name: value for name, value in options.items() if value is not None}}
    answer = answered(management, token, f"/positions?{urlencode(query)}")
    print_result(answer, _in_words(answer), as_json)


def _in_words(answer: dict[str, Any]) -> list[str]:
    position = answer["position"]
    tail = "; this is the tail" if position["at_tail"] else ""
    lines = [f"stream {answer['stream']}{tail}"]
    lines += [f"  {name:<10} {_shown(position[name])}" for name in ("seq_num", "timestamp", "record_id", "offset")]
    lines += ["read on"]
    for protocol, hint in answer["read_on"].items():
        words = " ".join(f"{name}={_shown(value)}" for name, value in (hint or {}).items())
        lines.append(f"  {protocol:<10} {words or 'not there'}")
    return lines


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)
