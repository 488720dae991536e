"""A line protocol that no part of Penstock knows, with its plug-in of the analysis layer.

Clients send `LOGIN <token>` and `PUT <stream> <body>`; the server answers each PUT with `OK <number>`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock_analysis.capture import Conversation, Sender
from penstock_analysis.dialogue import APPENDED, Dialogue, Message, Problem, SeenRecord
from penstock_analysis.dialogue.places import Span
from penstock_analysis.dialogue.sides import Heard, Side, Unreadable
from penstock_analysis.dialogue.two_sided import TwoSided
from penstock_analysis.plugin import AnalysisPlugin, Likeness
from penstock_analysis.redaction.flow import Flow, NotUnderstood, Parser, Redaction
from penstock_analysis.redaction.leaves import Leaves

LINE = {
    Sender.CLIENT: re.compile(rb"(PUT) ([a-z]+) ([^\n]*)\n|(LOGIN) ([^\n]*)\n"),
    Sender.SERVER: re.compile(rb"(OK) ([0-9]+)\n"),
}
MOST = 4096


class Reader:
    """Reader of one side."""

    def __init__(self, sender: Sender, offset: int) -> None:
        self._line = LINE[sender]
        self._data = b""
        self.begun = offset

    def receive(self, data: bytes) -> None:
        self._data += data

    def next(self) -> Heard | None:
        if b"\n" not in self._data[:MOST]:
            return None
        found = self._line.match(self._data)
        if found is None:
            raise Unreadable("a line is a command, or an answer", "Numbered Lines, section 1", self.begun)
        self._data = self._data[found.end() :]
        start, self.begun = self.begun, self.begun + found.end()
        return Heard([part for part in found.groups() if part is not None], start, self.begun)


class LinesDialogue(TwoSided):
    """A conversation in numbered lines."""

    layer = "lines"

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation, *(side(conversation, sender) for sender in (Sender.CLIENT, Sender.SERVER)))
        self._waiting: deque[SeenRecord] = deque()

    def _understood(self, sender: Sender, event: list[bytes], span: Span) -> Iterator[Message | Problem]:
        records, stream = [], ""
        if event[0] == b"PUT":
            stream = event[1].decode()
            self._waiting.append(SeenRecord(APPENDED, stream, event[2], time_ns=span.end_ns))
        elif event[0] == b"OK" and self._waiting:
            records = [self._waiting.popleft()]
            stream, records[0].seq_num = records[0].stream, int(event[1])
        yield self._message(sender, span, event[0].decode(), stream=stream, records=records, event=event)

    def _unanswered(self) -> list[SeenRecord]:
        return list(self._waiting)


def side(conversation: Conversation, sender: Sender) -> Side:
    return Side(
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
        if found[1] == b"PUT":
            for start, data in leaves.leaf(found[3], flow.at + found.start(3)):
                flow.write(start, data)
        elif leaves.tokens and flow.sender is Sender.CLIENT:
            flow.blank(flow.at + found.start(5), flow.at + found.end(5))
        flow.at += len(line)


def joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    return parse(flow, leaves) if LINE[flow.sender].match(start) else None


PLUGIN = AnalysisPlugin(
    dialogue=dialogue,
    layers=("lines",),
    begins=begins,
    redaction=lambda: Redaction(parse, lambda _sender, first, configured: configured and first in b"PLO", joins),
    hides=frozenset({Sender.CLIENT}),
    packs=False,
)
