"""One conversation of the segment protocol."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from penstock.capture.dialogue.messages import Message, Problem, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.dialogue.sides import DialogueSide
from penstock.capture.dialogue.two_sided import TwoSided
from penstock.capture.pcapng import Conversation, Sender
from penstock_pravega.capture import describing
from penstock_pravega.capture.clauses import segment_clause
from penstock_pravega.capture.delivering import Deliveries
from penstock_pravega.capture.dialect_detection import DetectedDialect
from penstock_pravega.capture.meaning import Meanings
from penstock_pravega.capture.reading import DecodedMessage, SegmentReader
from penstock_pravega.codec.layout import Dialect, Direction
from penstock_pravega.codec.released import Hello

__all__ = ["SegmentDialogue"]

_IN_BLOCK: Final = {"AppendBlock": True, "BeginAppendBlock": True, "AppendBlockEnd": False, "EndAppendBlock": False}


class SegmentDialogue(TwoSided):
    """Dialogue of one conversation of the segment protocol, of either dialect.

    `deliveries`: shared by conversations with the same server, since clients continue reads on other connections.
    """

    layer = "segment"

    def __init__(self, conversation: Conversation, deliveries: Deliveries | None = None) -> None:
        self._spoken = DetectedDialect()
        super().__init__(
            conversation,
            self._side(conversation, Sender.CLIENT, Direction.REQUEST),
            self._side(conversation, Sender.SERVER, Direction.REPLY),
        )
        self._late = False
        self._greeted: set[Sender] = set()
        self._in_block = False
        self._meanings = Meanings(conversation, Deliveries() if deliveries is None else deliveries)

    def _side(self, conversation: Conversation, sender: Sender, direction: Direction) -> DialogueSide:
        def make(offset: int) -> SegmentReader:
            return SegmentReader(direction, self._spoken, offset, late=offset > 0)

        return DialogueSide(conversation, sender, make, partial(self._spoken.begins, direction))

    @property
    def _state(self) -> str:
        """State of the conversation: `hello` until both sides have sent it, `appending` inside a block, else `open`."""
        if self._in_block:
            return "appending"
        greeting = self._spoken.dialect is Dialect.RELEASED and not self._late
        return "hello" if greeting and len(self._greeted) < len(Sender) else "open"

    def _missed(self, sender: Sender) -> None:
        self._late = self._meanings.late = True
        if sender is Sender.CLIENT:
            self._in_block = False

    def _unanswered(self) -> list[SeenRecord]:
        return self._meanings.unanswered()

    def _left_over(self) -> Iterator[Problem]:
        for offset, rule in self._meanings.cut_events():
            yield self._sides[Sender.SERVER].problem(offset, rule, segment_clause(rule), fatal=False)

    def _understood(self, sender: Sender, event: DecodedMessage, span: TimedSpan) -> Iterator[Message | Problem]:
        message = event.message
        kind = describing.kind_of(message)
        if sender is Sender.CLIENT:
            self._in_block = _IN_BLOCK.get(kind, self._in_block)
        if isinstance(message, Hello):
            self._greeted.add(sender)
        meaning = self._meanings.of(sender, event, span)
        if meaning.wrong:
            clause = segment_clause(meaning.wrong)
            yield self._sides[sender].problem(span.offset, meaning.wrong, clause, fatal=False)
        yield self._message(
            sender,
            span,
            kind,
            exchange=describing.request_id_of(message),
            stream=describing.segment_of(message) or meaning.segment,
            fields={
                **describing.message_fields(message),
                **meaning.fields,
                **({"partials": event.partials} if event.partials else {}),
            },
            records=meaning.records,
            failure=describing.error_text_of(message) if sender is Sender.SERVER else "",
            event=message,
            answers=None if meaning.asked_ns is None else span.end_ns - meaning.asked_ns,
            carried=meaning.carried,
        )
