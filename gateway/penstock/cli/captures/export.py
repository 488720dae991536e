"""`penstock export`: convert a capture, or a part of it, to another format."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock import DISTRIBUTION
from penstock.capture.dialogue import Message, Problem
from penstock.capture.pcapng import CaptureEvent, Conversation
from penstock.cli.captures.opened import begun, capture_argument, choice_options, opened_captures
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import as_json, message_line, problem_line, record_line
from penstock.recorder.captures.opening import CaptureEvents

if TYPE_CHECKING:
    from penstock.capture.dialogue.dialogues import Dialogues

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
    help="Messages with their records as JSON lines, HTTP exchanges as HAR 1.2, or whole connections as a capture in "
    "which Wireshark shows their messages.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=Path("-"),
    help="Output file, which only its owner can read (default: standard output).",
)
def export_command(
    captures: tuple[Path, ...],
    connections: Sequence[int],
    protocols: Sequence[str],
    streams: Sequence[str],
    side: str | None,
    form: str,
    output: Path,
) -> None:
    """Write CAPTURE in another format.

    With `--to pcapng` several files become one, and connections are written whole: the chosen ones, or with `--stream`
    those that mention such a stream, for which the capture is read twice. Each packet that completes a message has it
    in a comment, which the dissector config/wireshark/penstock.lua shows in Wireshark.
    """
    choice = CaptureFilter(connections, protocols, streams)
    wanted: Wanted = choice.conversation
    if form == "pcapng" and (streams or protocols):
        with opened_captures(captures, "Choosing", prints=False) as captures_opened:
            if captures_opened.live:
                raise click.UsageError("with --stream or --protocol the capture is read twice, so it cannot be a pipe")
            wanted = _about(captures_opened, choice)
    with opened_captures(captures, "Exporting", output == Path("-"), side, connections) as captures_opened:
        events = begun(captures_opened)
        with _output(output, captures_opened) as write:
            _FORMS[form](events, choice, wanted, write)


@contextmanager
def _output(path: Path, captures: CaptureEvents) -> Iterator[Write]:
    if path == Path("-"):
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    if path.exists() and any(file.exists() and path.samefile(file) for file in captures.files):
        raise click.UsageError(f"{path} is an input, so it cannot be the output")
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


def _about(captures: CaptureEvents, choice: CaptureFilter) -> Wanted:
    """Return a filter that accepts conversations with a chosen message."""
    from penstock.capture.dialogue.dialogues import Dialogues

    conversations: set[tuple[str, int]] = set()

    def note(items: Iterator[Message | Problem]) -> None:
        for item in items:
            if isinstance(item, Message) and choice.message(item):
                conversations.add((item.conversation.run, item.conversation.number))

    dialogues = Dialogues(choice.conversation)
    for event in captures:
        note(dialogues.receive(event))
    note(dialogues.end())
    return lambda conversation: (conversation.run, conversation.number) in conversations


def _items(events: Events, dialogues: Dialogues) -> Iterator[Message | Problem]:
    for event in events:
        yield from dialogues.receive(event)
    yield from dialogues.end()


def _jsonl(events: Events, choice: CaptureFilter, wanted: Wanted, write: Write) -> None:
    from penstock.capture.dialogue.dialogues import Dialogues

    for item in _items(events, Dialogues(wanted)):
        if isinstance(item, Problem):
            if choice.problem(item):
                write(as_json(problem_line(item)).encode() + b"\n")
        elif choice.message(item):
            line = message_line(item)
            if item.own_records:
                line["bodies"] = [record_line(record) for record in item.own_records]
            write(as_json(line).encode() + b"\n")


def _har(events: Events, choice: CaptureFilter, wanted: Wanted, write: Write) -> None:
    from penstock.capture.dialogue.dialogues import Dialogues
    from penstock.recorder.captures.har import HarEntries, har_head

    entries = HarEntries()
    places: list[tuple[str, int, int]] = []  # start time, offset and length of each entry in the file

    def put(told: Iterator[dict[str, object]]) -> None:
        for entry in told:
            line = as_json(entry).encode()
            places.append((str(entry["startedDateTime"]), kept.tell(), len(line)))
            kept.write(line)

    def tell(items: Iterator[Message | Problem]) -> None:
        for item in items:
            if isinstance(item, Problem) or choice.message(item):
                put(entries.receive(item))

    with tempfile.TemporaryFile(prefix="penstock-har-") as kept:  # entries come in the order in which exchanges end
        dialogues = Dialogues(wanted)
        for event in events:
            if wanted(event.conversation):
                entries.receive_event(event)
                tell(dialogues.receive(event))
                if event.conversation not in dialogues:
                    put(entries.forget(event.conversation))
        tell(dialogues.end())
        put(entries.end())
        head = as_json(har_head(version(DISTRIBUTION)))
        write(b'{"log":' + head[:-1].encode() + b',"entries":[')
        for number, (_, place, size) in enumerate(sorted(places)):
            kept.seek(place)
            write((b",\n" if number else b"\n") + kept.read(size))
        write(b"\n]}}\n")


def _pcapng(events: Events, choice: CaptureFilter, wanted: Wanted, write: Write) -> None:
    from penstock.capture.wireshark.writing import MessageCommentWriter

    del choice  # conversations are exported whole
    writer = MessageCommentWriter(f"Penstock {version(DISTRIBUTION)}")
    write(b"".join(writer.begin()))
    for event in events:
        if wanted(event.conversation):
            for piece in writer.encode(event):
                write(piece)


_FORMS: Final = {"jsonl": _jsonl, "har": _har, "pcapng": _pcapng}
