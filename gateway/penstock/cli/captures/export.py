"""`penstock export`: a capture in another form, or a part of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from penstock.captures import Captures, Choice
from penstock.captures.har import HarEntries, har_head
from penstock.captures.lines import as_json, message_line, problem_line, record_line
from penstock.cli.captures.opened import begun, capture_argument, choice_options, opened
from penstock_codecs.capture import CaptureEvent, CaptureWriter, Conversation
from penstock_codecs.dialogue import Message, Problem
from penstock_codecs.dialogue.hearing import Dialogues

__all__ = ["export_command"]

Write = Callable[[bytes | bytearray | memoryview], object]
Events = Iterable[CaptureEvent]
Wanted = Callable[[Conversation], bool]


@click.command("export")
@capture_argument
@choice_options
@click.option(
    "--to",
    "form",
    type=click.Choice(["jsonl", "har", "pcapng"]),
    required=True,
    help="JSON lines of messages, with their records; HAR 1.2 of HTTP exchanges; or whole connections as a capture.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=Path("-"),
    help="The file that is written, for its owner alone; without it, standard output.",
)
def export_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    form: str,
    output: Path,
) -> None:
    """Write CAPTURE in another form.

    With `--to pcapng` several files become one, and connections are written whole: those that are chosen, or with
    `--stream` those that are about such a stream, for which the capture is read twice.
    """
    choice = Choice(connections, protocols, streams)
    wanted: Wanted = choice.conversation
    if form == "pcapng" and (streams or protocols):
        with opened(captures, "Choosing", prints=False) as found:
            if found.live:
                raise click.UsageError("with --stream or --protocol the capture is read twice: it cannot be a pipe")
            wanted = _about(found, choice)
    with opened(captures, "Exporting", prints=output == Path("-")) as found:
        events = begun(found)
        with _output(output, found) as write:
            _FORMS[form](events, choice, wanted, write)


@contextmanager
def _output(path: Path, captures: Captures) -> Iterator[Write]:
    if path == Path("-"):
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    if path.exists() and any(file.exists() and path.samefile(file) for file in captures.files):
        raise click.UsageError(f"{path} is what is read: it cannot be written to")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file.write
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _about(captures: Captures, choice: Choice) -> Wanted:
    """Which conversations have anything that is chosen."""
    found: set[tuple[str, int]] = set()

    def note(items: Iterator[Message | Problem]) -> None:
        for item in items:
            if isinstance(item, Message) and choice.message(item):
                found.add((item.conversation.run, item.conversation.number))

    dialogues = Dialogues(choice.conversation)
    for event in captures:
        note(dialogues.receive(event))
    note(dialogues.end())
    return lambda conversation: (conversation.run, conversation.number) in found


def _items(events: Events, dialogues: Dialogues) -> Iterator[Message | Problem]:
    for event in events:
        yield from dialogues.receive(event)
    yield from dialogues.end()


def _jsonl(events: Events, choice: Choice, wanted: Wanted, write: Write) -> None:
    for item in _items(events, Dialogues(wanted)):
        if isinstance(item, Problem):
            if choice.problem(item):
                write(as_json(problem_line(item)).encode() + b"\n")
        elif choice.message(item):
            line = message_line(item)
            if item.records:
                line["bodies"] = [record_line(record) for record in item.records]
            write(as_json(line).encode() + b"\n")


def _har(events: Events, choice: Choice, wanted: Wanted, write: Write) -> None:
    entries = HarEntries()
    head = as_json(har_head(version("penstock")))
    write(b'{"log":' + head[:-1].encode() + b',"entries":[')
    before = b"\n"

    def put(told: Iterator[dict[str, object]]) -> None:
        nonlocal before
        for entry in told:
            write(before + as_json(entry).encode())
            before = b",\n"

    def tell(items: Iterator[Message | Problem]) -> None:
        for item in items:
            if isinstance(item, Problem) or choice.message(item):
                put(entries.receive(item))

    dialogues = Dialogues(wanted)
    for event in events:
        if wanted(event.conversation):
            entries.hear(event)
            tell(dialogues.receive(event))
            if event.conversation not in dialogues:
                put(entries.forget(event.conversation))
    tell(dialogues.end())
    put(entries.end())
    write(b"\n]}}\n")


def _pcapng(events: Events, choice: Choice, wanted: Wanted, write: Write) -> None:
    del choice  # whole conversations are wanted, or none of them
    writer = CaptureWriter(f"Penstock {version('penstock')}")
    write(b"".join(writer.begin()))
    for event in events:
        if wanted(event.conversation):
            for piece in writer.encode(event):
                write(piece)


_FORMS: Final = {"jsonl": _jsonl, "har": _har, "pcapng": _pcapng}
