"""`penstock records`: the records that went by, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from penstock.captures import Choice
from penstock.captures.lines import as_json, record_line
from penstock.cli.captures.opened import capture_argument, choice_options, opened, writer
from penstock_codecs.dialogue import APPENDED, DELIVERED, Message, Problem
from penstock_codecs.dialogue.hearing import Dialogues

__all__ = ["records_command"]


@click.command("records")
@capture_argument
@choice_options
@click.option("--action", type=click.Choice([APPENDED, DELIVERED]), help="Only what clients gave, or what they got.")
def records_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    action: str | None,
) -> None:
    """Print each record that clients appended or that was delivered to them, as a line of JSON.

    Appended records come with their acknowledgement, which says where they are; `"acknowledged": false` where none was
    recorded. Bodies that are no UTF-8 stand as `body_base64`.
    """
    choice = Choice(connections, protocols, streams)
    with opened(captures, "Reading") as found:
        write = writer(found)
        dialogues = Dialogues(choice.conversation)

        def show(items: Iterator[Message | Problem]) -> None:
            for item in items:
                if isinstance(item, Problem) or not _spoken(choice, item):
                    continue
                for record in item.records:
                    if action in (None, record.action) and choice.record(record):
                        write(as_json(record_line(record)))

        for event in found:
            show(dialogues.receive(event))
        show(dialogues.end())


def _spoken(choice: Choice, message: Message) -> bool:
    """Whether it is of a wanted protocol; a record's stream need not be that of the message."""
    return Choice(protocols=choice.protocols).message(message)
