"""`penstock tail`: list a running gateway's messages as they pass."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO

import click

from penstock.cli.admin_client import follow, management_options
from penstock.cli.captures.opened import filter_option, text_option
from penstock.cli.captures.rows import RowFormat
from penstock.cli.captures.show import MessageForm, show_messages
from penstock.cli.output import json_lines_option
from penstock.cli.traffic.live import live_events, with_messages
from penstock.cli.traffic.selecting import SPOKEN, query, selection_options
from penstock.recorder.captures.choosing import PROTOCOLS, CaptureFilter

__all__ = ["tail_command"]


@click.command("tail")
@management_options
@selection_options([name for name in PROTOCOLS if name != "management"])
@click.option(
    "--kind", "kinds", multiple=True, metavar="GLOB", help="Only messages of this kind, such as APPEND or problem."
)
@text_option
@filter_option
@click.option(
    "--pcapng",
    "into",
    type=click.File("wb", lazy=False),
    metavar="FILE",
    help="Write the traffic as a capture to FILE, with the messages in comments (- for standard output, as in penstock "
    "tail --pcapng - | tshark -i -).",
)
@click.option("--bodies", is_flag=True, help="Also list the records of each message, with shortened bodies.")
@click.option(
    "--utc", "absolute", is_flag=True, help="Show times of day (UTC) instead of seconds since the first message."
)
@json_lines_option("message")
def tail_command(
    management: str,
    token: str | None,
    kinds: Sequence[str],
    text: str,
    expression: CaptureFilter,
    into: BinaryIO | None,
    bodies: bool,
    absolute: bool,
    as_lines: bool,
    **options: tuple[Any, ...],
) -> None:
    """List the messages of a gateway and its peers from now on, as `penstock show` does, until Ctrl-C.

    Connections that are already open are followed from that point on. Secrets are redacted as in recordings.
    """
    filtered = expression != CaptureFilter()
    if into is not None and (kinds or text or filtered or bodies or absolute or as_lines):
        raise click.UsageError(
            "--pcapng writes all traffic and cannot be combined with --kind, --text, --filter, --bodies, --utc or "
            "--json"
        )
    if into is not None and not _asks_for_connections(options["protocol"]):
        raise click.UsageError(f"--pcapng writes whole connections: --protocol must be one of {', '.join(SPOKEN)}")
    choice = CaptureFilter(
        protocols=options["protocol"],
        streams=list(_spellings(options["stream"])),
        kinds=kinds,
        texts=[text] if text else [],
    ).plus(expression)
    with contextlib.suppress(KeyboardInterrupt):
        pieces = follow(management, token, f"/tail?{_query(options)}")
        if into is not None:
            _write(with_messages(pieces), into)
            return
        show_messages(
            chain.from_iterable(live_events(pieces)),
            choice,
            RowFormat(absolute, bodies),
            MessageForm(as_lines, bodies),
            _print,
        )


def _query(options: dict[str, tuple[Any, ...]]) -> str:
    """Return the query that selects connections on the gateway, which does not look into messages."""
    if not _asks_for_connections(options["protocol"]):
        options = {**options, "protocol": ()}
    return query(options)


def _asks_for_connections(protocols: Iterable[str]) -> bool:
    """Return whether these protocols can select whole connections."""
    return set(protocols) <= set(SPOKEN)


def _spellings(streams: Iterable[str]) -> Iterator[str]:
    """Yield the names that any protocol may use for a stream: without its basin, or with a part after it."""
    for stream in streams:
        basin, slash, name = stream.partition("/")
        whole = stream if slash else f"*/{stream}"
        for spelled in (whole, name if slash else basin):
            yield from (spelled, f"{spelled}/*")


def _write(pieces: Iterable[bytes], into: BinaryIO) -> None:
    for piece in pieces:
        into.write(piece)
        into.flush()


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
