"""`penstock explain`: the errors in each connection, with the bytes that caused them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import replace

from penstock.capture.dialogue import Message, Problem
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Sender
from penstock.cli.captures.opened import capture_argument, opened_captures, side_option, writer
from penstock.cli.captures.rows import ARROWS, RowFormat
from penstock.cli.output import json_lines_option
from penstock.model.limits import KIB
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import as_json, message_line, problem_line
from penstock.recorder.captures.recent import RecentBytes
from penstock.recorder.captures.text import dump, duration, printable, size, value_text

__all__ = ["explain_command"]

KEPT_BYTES: Final = 128 * KIB
"""Bytes kept from the end of each side's data, to show those of an error message."""
KEPT_BYTES_OF_MANY: Final = 4 * KIB
"""The same if all connections are explained."""
MAX_HEARD: Final = 2000
"""Conversations to keep data for; the least recently active ones are dropped."""
SHOWN_BYTES: Final = 256
MAX_ASKED: Final = 1000
"""Most requests kept per conversation in case they fail."""
_EXPLAINED: Final = {"meaning": "means: ", "clause": "clause:"}
"""Fields in which dialogues give the meaning of an error reply and the clause that defines it."""
_NOT_SAID: Final = frozenset({"headers", *_EXPLAINED})


@click.command("explain")
@capture_argument
@click.option(
    "--connection",
    "connections",
    type=int,
    multiple=True,
    metavar="N",
    help="Explain only this connection (default: all).",
)
@side_option("Connections of clients (front), connections to servers (back), or both.")
@json_lines_option("error")
def explain_command(captures: tuple[Path, ...], connections: Sequence[int], side: str | None, as_lines: bool) -> None:
    """For each error in CAPTURE show the bytes, the rule that they break, and the clause that states it.

    Errors are bytes that break a protocol, and replies that report a failure. `^^` marks the first wrong byte.
    """
    from penstock.capture.dialogue.dialogues import Dialogues

    with opened_captures(captures, "Reading", side=side, connections=connections) as events:
        explanation = _Explanation(writer(events), KEPT_BYTES if connections else KEPT_BYTES_OF_MANY, as_lines)
        choice = CaptureFilter(connections)
        dialogues = Dialogues(choice.conversation)
        missing = set(connections)
        for event in events:
            explanation.begin(event.time_ns)
            if choice.conversation(event.conversation):
                missing.discard(event.conversation.number)
                explanation.receive(event)
                explanation.explain(dialogues.receive(event))
                if event.conversation not in dialogues:
                    explanation.forget(event.conversation)
        explanation.explain(dialogues.end())
    for number in sorted(missing):
        click.echo(f"Connection {number} is not in the capture.", err=True)
    if not explanation.count and not missing:
        click.echo("The capture has no errors.", err=True)


class _Explanation:
    """Explains errors. `kept`: bytes to keep from the end of each side's data. `as_lines`: as JSON lines."""

    def __init__(self, write: Callable[[str], None], kept: int, as_lines: bool) -> None:
        self.count = 0
        self._as_lines = as_lines
        self._write = write
        self._kept = kept
        self._rows = RowFormat()
        self._heard: OrderedDict[Conversation, _Heard] = OrderedDict()

    def begin(self, time_ns: int) -> None:
        """Set the time from which times are counted; later calls have no effect."""
        self._rows.begin(time_ns)

    def receive(self, event: CaptureEvent) -> None:
        """Take an event, before the messages that it completes are explained."""
        heard = self._heard.get(event.conversation)
        if heard is None:
            heard = self._heard[event.conversation] = _Heard(self._kept)
            if len(self._heard) > MAX_HEARD:
                self._heard.popitem(last=False)
        self._heard.move_to_end(event.conversation)
        if isinstance(event, Chunk):
            heard.recent[event.sender].add(event.offset, event.data)

    def forget(self, conversation: Conversation) -> None:
        """Forget a conversation that has ended."""
        self._heard.pop(conversation, None)

    def explain(self, items: Iterator[Message | Problem]) -> None:
        """Explain each item that is an error."""
        for item in items:
            heard = self._heard.get(item.conversation) or _Heard(0)
            if isinstance(item, Problem) or item.failure:
                if self._as_lines:
                    self._write(as_json(_line(item, heard)))
                else:
                    self._explain(item, heard)
                self.count += 1
            if isinstance(item, Message):
                heard.add(item)

    def _explain(self, item: Message | Problem, heard: _Heard) -> None:
        if self.count:
            self._write("")
        conversation = item.conversation
        if not heard.named:
            heard.named = True
            name = f"{conversation.name} " if conversation.name else ""
            ends = f"{conversation.client} -> {conversation.server}"
            self._write(f"#{conversation.number} {printable(name)}{conversation.protocol} {ends}")
        for line in self._problem(item, heard) if isinstance(item, Problem) else self._failure(item, heard):
            self._write(f"  {line}")

    def _problem(self, problem: Problem, heard: _Heard) -> Iterator[str]:
        time = self._rows.time(problem.time_ns)
        yield f"{time} s: byte {problem.offset} of the {problem.sender.value}"
        yield f"rule:   {printable(problem.rule)}"
        if problem.clause:
            yield f"clause: {problem.clause}"
        yield from _around(heard, problem.exchange)
        yield from _dump(problem, heard)
        if problem.fatal:
            yield "The rest of this side could not be decoded."

    def _failure(self, message: Message, heard: _Heard) -> Iterator[str]:
        time = self._rows.time(message.end_ns)
        place = f"byte {message.offset} of the {message.sender.value}, {size(message.length)}"
        yield f"{time} s: {message.layer} {printable(message.kind)}, {place}"
        yield f"says:   {printable(message.failure)}"
        for name, word in _EXPLAINED.items():
            if message.fields.get(name):
                yield f"{word} {printable(str(message.fields[name]))}"
        yield from _around(heard, message.exchange, message.answers)
        yield from _dump(message, heard)


def _line(item: Message | Problem, heard: _Heard) -> dict[str, Any]:
    """Return an error as an object, with the request that it answers, the message before it, and its bytes."""
    conversation = item.conversation
    ends = {"protocol": conversation.protocol, "client": str(conversation.client), "server": str(conversation.server)}
    line = problem_line(item) if isinstance(item, Problem) else message_line(item)
    for name, message in zip(("asked", "before"), heard.around(item.exchange), strict=True):
        if message is not None:
            line[name] = message_line(message)
    return line | ends | {"dump": _dump(item, heard)}


def _around(heard: _Heard, exchange: int | None, answers: int | None = None) -> Iterator[str]:
    request, before = heard.around(exchange)
    if request is not None:
        after = f", {duration(answers)} before" if answers is not None else ""
        yield f"asked:  {_in_words(request)}{after}"
    if before is not None:
        yield f"before: {_in_words(before)}"


def _dump(item: Message | Problem, heard: _Heard) -> list[str]:
    """Return a dump of the bytes of an error, as far as they are kept."""
    if isinstance(item, Message):
        end = item.offset + min(item.length, SHOWN_BYTES)
        return dump(*heard.recent[item.sender].between(item.offset, end))
    data, start = item.context, item.context_offset
    if not data:
        start = max(0, item.offset - SHOWN_BYTES // 2)
        data, start = heard.recent[item.sender].between(start, start + SHOWN_BYTES)
    return dump(data, start, item.offset)


def _in_words(message: Message) -> str:
    fields = {
        name: value for name, value in message.fields.items() if name not in _NOT_SAID and value not in (None, "")
    }
    shown = " ".join(f"{name}={value_text(value)}" for name, value in fields.items())
    words = (message.kind, message.stream, shown, f"(byte {message.offset}, {size(message.length)})")
    return f"{ARROWS[message.sender]} {printable(' '.join(word for word in words if word))}"


class _Heard:
    """Data kept of one conversation to explain errors in it."""

    def __init__(self, kept: int) -> None:
        self.named = False
        self.last: Message | None = None
        self.asked: OrderedDict[int | None, Message] = OrderedDict()
        """Requests by exchange."""
        self.recent = {sender: RecentBytes(kept) for sender in Sender}

    def around(self, exchange: int | None) -> tuple[Message | None, Message | None]:
        """Return the request of an exchange, and the message before, if that is another one."""
        request = self.asked.get(exchange)
        return request, None if self.last is request else self.last

    def add(self, message: Message) -> None:
        """Remember a message, after it was explained."""
        kept = replace(message, records=(), event=None)
        self.last = kept
        if message.sender is Sender.CLIENT and message.exchange is not None and message.exchange not in self.asked:
            self.asked[message.exchange] = kept
            if len(self.asked) > MAX_ASKED:
                self.asked.popitem(last=False)
