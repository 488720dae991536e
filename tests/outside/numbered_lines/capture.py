"""Plug-in of captures: conversations are shown, recognized and redacted."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock.capture.dialogue import APPENDED, DELIVERED, Dialogue, Message, Problem, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.dialogue.sides import DialogueSide, PlacedEvent, UnreadableBytes
from penstock.capture.dialogue.two_sided import TwoSided
from penstock.capture.pcapng import Conversation, Sender
from penstock.capture.plugin import CapturePlugin, Likeness
from penstock.capture.redaction.flow import Flow, NotUnderstood, Parser, Redaction
from penstock.capture.redaction.leaves import Leaves

LINE = {
    Sender.CLIENT: re.compile(
        rb"(PUT) ([a-z0-9-]+) ([^\n]*)\n|(LOGIN) ([^\n]*)\n|(GET) ([a-z0-9-]+) ([0-9]+) ([0-9]+)\r?\n"
    ),
    Sender.SERVER: re.compile(rb"(OK|END) ([0-9]+)\r?\n|(ROW) ([0-9]+) ([^\n]*)\n|(NO) ([^\n]*)\n"),
}
MOST = 1_100_000
_SECRETS = {Sender.CLIENT: (3, 5), Sender.SERVER: (5, 0)}
"""The groups of a line that hold a body and a token."""


class Reader:
    """Reader of one side."""

    def __init__(self, sender: Sender, offset: int) -> None:
        self._line = LINE[sender]
        self._data = b""
        self.begun = offset

    def receive(self, data: bytes) -> None:
        self._data += data

    def next(self) -> PlacedEvent | None:
        if b"\n" not in self._data[:MOST]:
            return None
        found = self._line.match(self._data)
        if found is None:
            raise UnreadableBytes("a line is a command, or an answer", "Numbered Lines, section 1", self.begun)
        self._data = self._data[found.end() :]
        start, self.begun = self.begun, self.begun + found.end()
        return PlacedEvent([part for part in found.groups() if part is not None], start, self.begun)


class LinesDialogue(TwoSided):
    """A conversation in numbered lines."""

    layer = "lines"

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation, *(side(conversation, sender) for sender in (Sender.CLIENT, Sender.SERVER)))
        self._commands = 0
        self._waiting: deque[tuple[int, str, int, SeenRecord | None]] = deque()
        """Number, stream and time of each command without its last answer, and the record that a PUT appends."""

    def _understood(self, sender: Sender, event: list[bytes], span: TimedSpan) -> Iterator[Message | Problem]:
        word, records, stream, answers, failure = event[0].decode(), [], "", None, ""
        carried: list[SeenRecord] = []
        exchange = None
        if word in ("PUT", "GET"):
            self._commands += 1
            exchange, stream = self._commands, event[1].decode()
            record = SeenRecord(APPENDED, stream, event[2], time_ns=span.end_ns) if word == "PUT" else None
            self._waiting.append((exchange, stream, span.end_ns, record))
            carried = [] if record is None else [record]
        elif word == "ROW" and self._waiting:
            exchange, stream, _, _ = self._waiting[0]
            records = [SeenRecord(DELIVERED, stream, event[2], seq_num=int(event[1]), time_ns=span.end_ns)]
        elif word in ("OK", "END", "NO") and self._waiting:
            exchange, stream, asked_ns, appended = self._waiting.popleft()
            answers = span.end_ns - asked_ns
            failure = event[1].decode(errors="replace") if word == "NO" else ""
            if appended is not None:
                appended.seq_num, appended.failure = (None, failure) if failure else (int(event[1]), "")
                records = [appended]
        yield self._message(
            *(sender, span, word),
            exchange=exchange,
            stream=stream,
            records=records,
            event=event,
            answers=answers,
            failure=failure,
            carried=carried,
        )

    def _unanswered(self) -> list[SeenRecord]:
        return [record for _, _, _, record in self._waiting if record is not None]


def side(conversation: Conversation, sender: Sender) -> DialogueSide:
    return DialogueSide(
        conversation, sender, lambda offset: Reader(sender, offset), lambda data: LINE[sender].match(data) is not None
    )


def dialogue(conversation: Conversation, _memory: Any) -> Dialogue:
    return LinesDialogue(conversation)


def begins(sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    if b"\n" not in first and len(first) < 64:
        return None
    return Likeness.MARK if LINE[sender].match(first) else Likeness.NONE


def parse(flow: Flow, leaves: Leaves) -> Parser:
    """Blank the token of a LOGIN, and what is secret in bodies."""
    while True:
        line = yield from flow.line(MOST)
        found = LINE[flow.sender].fullmatch(line)
        if found is None:
            raise NotUnderstood
        body, token = _SECRETS[flow.sender]
        if found[body] is not None:
            for start, data in leaves.leaf(found[body], flow.at + found.start(body)):
                flow.write(start, data)
        elif token and leaves.tokens and found[token] is not None:
            flow.blank(flow.at + found.start(token), flow.at + found.end(token))
        flow.at += len(line)


def joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    return parse(flow, leaves) if LINE[flow.sender].match(start) else None


PLUGIN = CapturePlugin(
    dialogue=dialogue,
    layers=("lines",),
    begins=begins,
    numbered_requests=True,
    redaction=lambda: Redaction(parse, lambda _sender, first, configured: configured and first in b"PLGOREN", joins),
    hides=frozenset({Sender.CLIENT}),
    packs=False,
)
