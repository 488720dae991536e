"""`penstock show`: list messages or conversations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.summaries import Summaries, Summary
from penstock.capture.pcapng import CaptureEvent
from penstock.cli.captures.opened import (
    begun,
    capture_argument,
    choice_options,
    filter_option,
    opened_captures,
    text_option,
    writer,
)
from penstock.cli.captures.rows import CONVERSATION_HEAD, MESSAGE_HEAD, RowFormat
from penstock.cli.output import json_lines_option
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.inspecting import Inspector
from penstock.recorder.captures.lines import as_json, message_line, problem_line, record_line, summary_line

__all__ = ["MessageForm", "show_command", "show_messages"]


class MessageForm(NamedTuple):
    """The form of messages. `as_lines`: JSON lines. `bodies`: with their records. `details`: with all that is known of
    each."""

    as_lines: bool
    bodies: bool = False
    details: bool = False


@click.command("show")
@capture_argument
@choice_options
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="GLOB",
    help="Only messages of this kind, such as APPEND, 'Read*' or problem.",
)
@text_option
@filter_option
@click.option(
    "--conversations", is_flag=True, help="List conversations with such messages instead, each when it has ended."
)
@click.option("--bodies", is_flag=True, help="Also list the records of each message, with shortened bodies.")
@click.option(
    "--details",
    is_flag=True,
    help="Also show the records of each message, its first bytes, and the request that it answers.",
)
@click.option("--utc", "absolute", is_flag=True, help="Show times of day (UTC) instead of seconds since the start.")
@json_lines_option("message or conversation")
@click.option("--progress", is_flag=True, hidden=True, help="Also print lines of JSON that tell how much was read.")
def show_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    side: str | None,
    kinds: Sequence[str],
    text: str,
    expression: CaptureFilter,
    conversations: bool,
    bodies: bool,
    details: bool,
    absolute: bool,
    as_lines: bool,
    progress: bool,
) -> None:
    """List the messages in CAPTURE: a file, compressed or not, a directory of them, or - for standard input.

    Several captures are read as one. `->` is from the client, `<-` from the server; the time of a message is that of
    its last byte. Protocol violations are listed between the messages, after `!!`. Of a damaged capture every intact
    part is listed, and standard error reports the damage.
    """
    texts = [text] if text else []
    choice = CaptureFilter(connections, protocols, streams, kinds, texts).plus(expression)
    rows = RowFormat(absolute, bodies or details)
    with opened_captures(captures, "Reading", side=side, connections=connections) as events:
        write = writer(events)
        if progress:
            events.on_read = _Progress(events.size).on_read
        if conversations:
            _show_conversations(begun(events), choice, rows, as_lines, write)
        else:
            show_messages(begun(events), choice, rows, MessageForm(as_lines, bodies, details), write)


class _Progress:
    """Printer of `{"type": "progress", "read": 4096, "size": 10000}`, in bytes, for a program that reads the output."""

    _SECONDS: Final = 0.5
    """Time between two lines, which also bring what is buffered."""

    def __init__(self, size: int | None) -> None:
        self._size = size
        self._read = 0
        self._next = 0.0

    def on_read(self, count: int) -> None:
        """Note that bytes were read."""
        self._read += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._SECONDS
            click.echo(as_json({"type": "progress", "read": self._read, "size": self._size}))


def show_messages(
    events: Iterable[CaptureEvent],
    choice: CaptureFilter,
    rows: RowFormat,
    form: MessageForm,
    write: Callable[[str], None],
) -> None:
    """Write a line for each wanted message and problem as events complete them."""
    from penstock.capture.dialogue.dialogues import Dialogues

    dialogues = Dialogues(choice.conversation)
    inspector = Inspector()
    if not form.as_lines:
        write(MESSAGE_HEAD)

    def show(items: Iterator[Message | Problem]) -> None:
        for item in items:
            if choice.accepts(item):
                if form.as_lines:
                    write(as_json(line(item)))
                else:
                    for row in rows.of(item):
                        write(row)
                    for row in inspector.dump(item) if form.details else ():
                        write(f"{'':12}{row}")
            if form.details:
                inspector.add(item)

    def line(item: Message | Problem) -> dict[str, Any]:
        if form.details:
            return inspector.inspect(item)
        if isinstance(item, Problem):
            return problem_line(item)
        return message_line(item) | ({"bodies": list(map(record_line, item.own_records))} if form.bodies else {})

    for event in events:
        rows.begin(event.time_ns)
        if form.details and choice.conversation(event.conversation):
            inspector.receive(event)
        show(dialogues.receive(event))
    show(dialogues.end())


def _show_conversations(
    events: Iterable[CaptureEvent], choice: CaptureFilter, rows: RowFormat, as_lines: bool, write: Callable[[str], None]
) -> None:
    from penstock.capture.dialogue.dialogues import Dialogues

    dialogues = Dialogues(choice.conversation)
    summaries = Summaries()
    if not as_lines:
        write(CONVERSATION_HEAD)

    def show(ended: Iterator[Summary]) -> None:
        for summary in ended:
            if summary.chosen or choice.noted(summary.conversation, summary.notes.get("stream", ())):
                write(as_json(summary_line(summary)) if as_lines else rows.conversation(summary))

    for event in events:
        rows.begin(event.time_ns)
        if not choice.conversation(event.conversation):
            continue
        summaries.event(event)
        for item in dialogues.receive(event):
            summaries.add(item, choice.accepts(item))
        show(summaries.ended(event.conversation))
    for item in dialogues.end():
        summaries.add(item, choice.accepts(item))
    show(summaries.rest())
