"""`penstock records`: the records in a capture, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem
from penstock.cli.captures.opened import capture_argument, choice_options, opened_captures, writer
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import as_json, record_line

__all__ = ["records_command"]


@click.command("records")
@capture_argument
@choice_options
@click.option(
    "--action",
    type=click.Choice([APPENDED, DELIVERED]),
    help="Only records that clients appended, or only those delivered to them.",
)
def records_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    side: str | None,
    action: str | None,
) -> None:
    """Print each record that clients appended or that was delivered to them, as a line of JSON.

    Appended records are printed with their acknowledgement, which gives their position, or with `"acknowledged": false`
    if none was recorded. Bodies that are not UTF-8 are given as `body_base64`.
    """
    from penstock.capture.dialogue.dialogues import Dialogues

    choice = CaptureFilter(connections, protocols, streams)
    with opened_captures(captures, "Reading", side=side, connections=connections) as events:
        write = writer(events)
        dialogues = Dialogues(choice.conversation)

        def show(items: Iterator[Message | Problem]) -> None:
            for item in items:
                if isinstance(item, Problem) or not _spoken(choice, item):
                    continue
                for record in item.records:
                    if action in (None, record.action) and choice.record(record):
                        write(as_json(record_line(record)))

        for event in events:
            show(dialogues.receive(event))
        show(dialogues.end())


def _spoken(choice: CaptureFilter, message: Message) -> bool:
    """Return whether a message's protocol is wanted; its stream may differ from that of its records."""
    return CaptureFilter(protocols=choice.protocols).message(message)
