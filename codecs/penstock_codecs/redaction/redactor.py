"""Rules applied to capture events, for all conversations of one recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Noted, Opened, Sender
from penstock_codecs.redaction.choice import Choice
from penstock_codecs.redaction.exchanges import Exchanges
from penstock_codecs.redaction.flow import Cut, Flow, NotUnderstood
from penstock_codecs.redaction.leaves import Leaves
from penstock_codecs.redaction.protocols import parser_of
from penstock_codecs.redaction.rules import RedactionRules
from penstock_codecs.redaction.secrets import Secrets
from penstock_codecs.redaction.text import stars
from penstock_codecs.redaction.unknown import unknown

__all__ = ["MOST_HELD", "MOST_HELD_IN_ALL", "Redactor"]

# Measured per chunk of 64 KiB with the default rules (Python 3.11, CPU time): a body of HTTP/1.1 0.4 us, with a chunk
# of its own 8 us; four frames of HTTP/2 12 us; a message of the segment protocol 4 us. With a pattern and a record
# header that are not there: text 33 us; S2S frames, and events of segments, 80 to 140 us; of S3P a record 5 us, of JSON
# 24 us.
MOST_HELD: Final = 16 * 1024 * 1024
"""The most bytes that one side of a conversation holds back: the largest messages, several of them in turn on one
HTTP/2 connection. What is held beyond that is blanked."""
MOST_HELD_IN_ALL: Final = 64 * 1024 * 1024
"""The most bytes that all conversations hold back."""


class _Side:
    """One side of a conversation, and who reads it now."""

    def __init__(self, flow: Flow, secrets: Secrets, choice: Choice, exchanges: Exchanges, mid: bool) -> None:
        self.flow = flow
        self._secrets = secrets
        self._parser = parser_of(flow, secrets, choice, exchanges, mid=mid)

    def run(self) -> None:
        """Decides about what has come, as far as that can be."""
        while True:
            try:
                next(self._parser)
                return
            except (NotUnderstood, StopIteration):
                self._fall()
            except Cut:
                self._fall()
                if not self.flow.available:
                    return

    def _fall(self) -> None:
        """Nobody knows what comes from here on."""
        self.flow.passing = 0
        for content in list(self.flow.holding):
            content.cut()
        self._forget()

    def _forget(self) -> None:
        self._parser = unknown(self.flow, self._secrets)

    def abandon(self) -> None:
        """Lets everything go on that is held back by contents, blanked."""
        for content in list(self.flow.holding):
            content.abandon()

    def fail(self) -> None:
        """Something in here is wrong: nothing goes on but blanked."""
        self.flow.blank_all()
        self._forget()

    def end(self) -> None:
        """There is no more of this side."""
        self.flow.ended = True
        self.run()


class _Sides:
    """Both sides of a conversation."""

    def __init__(self, opened: Opened) -> None:
        self.exchanges = Exchanges()
        self.by_sender: dict[Sender, _Side] = {}
        self.closed: set[Sender] = set()
        self.offsets = {Sender.CLIENT: opened.client_offset, Sender.SERVER: opened.server_offset}


class Redactor:
    """Events in, events out, with secrets blanked and every length and offset kept.

    Bytes whose meaning depends on what comes next are held back until more comes or the side ends: with the default
    rules an unfinished line, frame or header block, with patterns and record headers up to a whole message, at most
    MOST_HELD for each side of a conversation and MOST_HELD_IN_ALL. That the other side speaks lets nothing go, for a
    secret cut in two would be written. So a chunk may come out later, in other cuts, and with the time of the event
    that let it go; times never fall. Chunks that are not changed are given on as they are.

    What cannot be understood (a protocol that breaks its rules, the middle of a conversation) is searched for the
    patterns and for what looks like a header line, and HTTP/2 heads in it are blanked whole. Where that is not enough
    (bodies are looked into, or there are tokens) all of it is blanked.
    """

    def __init__(self, rules: RedactionRules) -> None:
        """Raises ValueError for a pattern that is no regular expression."""
        self._secrets = Secrets(rules)
        self._choice = Choice(self._secrets)
        self._leaves = Leaves(self._secrets)
        self._conversations: dict[Conversation, _Sides] = {}
        self._time_ns = 0  # of the last event
        self.held = 0
        """Bytes that are held back, of all conversations."""
        self.failures = 0
        """How often redaction itself failed, which is a fault of Penstock; what was at hand was blanked each time."""

    def redact(self, event: CaptureEvent) -> list[CaptureEvent]:
        """What may be written of it now. Never raises for what peers said."""
        self._time_ns = event.time_ns
        if isinstance(event, Chunk):
            return self._chunk(event)
        if isinstance(event, Opened):
            return self._opened(event)
        if isinstance(event, Lost):
            return [*self._lost(event), event]
        if isinstance(event, Closed):
            return [*self._closed(event), event]
        return [self._noted(event)]

    def flush(self) -> list[CaptureEvent]:
        """What is held back, of all conversations, redacted as it stands: the recording ends or pauses.

        What could only have been judged with the bytes to come is blanked whole. Conversations that go on are read on.
        """
        out: list[CaptureEvent] = []
        for sides in self._conversations.values():
            for side in sides.by_sender.values():
                if side.flow.held:
                    self.held -= side.flow.held
                    out += side.flow.give_up(self._time_ns)
        return out

    # ---- events --------------------------------------------------------------------------------------------------

    def _noted(self, event: Noted) -> Noted:
        """Names of streams are text like any other."""
        value = event.value.encode("utf-8", "surrogatepass")
        spans = self._leaves.spans(value, text=True)
        if not spans:
            return event
        blanked = bytearray(value)
        for start, end in spans:
            blanked[start:end] = stars(end - start)
        return replace(event, value=blanked.decode("utf-8", "surrogatepass"))

    def _opened(self, event: Opened) -> list[CaptureEvent]:
        known = self._conversations.get(event.conversation)
        if known is not None and all(
            known.by_sender[sender].flow.end == offset if sender in known.by_sender else known.offsets[sender] == offset
            for sender, offset in ((Sender.CLIENT, event.client_offset), (Sender.SERVER, event.server_offset))
        ):
            return [event]  # a new file, or the recording goes on
        out = self._forget(event.conversation, event.time_ns)
        self._conversations[event.conversation] = _Sides(event)
        return [*out, event]

    def _chunk(self, event: Chunk) -> list[CaptureEvent]:
        sides = self._conversations.get(event.conversation)
        if sides is None:
            opened = Opened(event.conversation, event.time_ns, 1, 1)
            sides = self._conversations[event.conversation] = _Sides(opened)
        side = sides.by_sender.get(event.sender)
        out: list[CaptureEvent] = []
        if side is None or side.flow.end != event.offset:
            if side is not None:
                out += self._end(side, event.time_ns)
            side = self._begin(sides, event)
        if side.flow.passes(event):
            out.append(event)
            return out
        return out + self._read(sides, side, event) if out else self._read(sides, side, event)

    def _begin(self, sides: _Sides, event: Chunk) -> _Side:
        mid = bool(event.offset)
        flow = Flow(event.conversation, event.sender, event.offset)
        side = sides.by_sender[event.sender] = _Side(flow, self._secrets, self._choice, sides.exchanges, mid)
        return side

    def _read(self, sides: _Sides, side: _Side, event: Chunk) -> list[CaptureEvent]:
        flow = side.flow
        before = flow.held
        flow.receive(event)
        try:
            side.run()
            if flow.held > MOST_HELD or self.held + flow.held - before > MOST_HELD_IN_ALL:
                side.abandon()
        except Exception:
            self.failures += 1
            side.fail()
        out: list[CaptureEvent] = [*flow.emit(event.time_ns, event)]
        self.held += flow.held - before
        other = sides.by_sender.get(event.sender.other)
        if other is not None and other.flow.held:
            before = other.flow.held
            out += other.flow.emit(event.time_ns)
            self.held += other.flow.held - before
        return out

    def _end(self, side: _Side, time_ns: int) -> list[Chunk]:
        before = side.flow.held
        try:
            side.end()
        except Exception:
            self.failures += 1
            side.fail()
        out = side.flow.emit(time_ns)
        self.held += side.flow.held - before
        return out

    def _lost(self, event: Lost) -> list[CaptureEvent]:
        sides = self._conversations.get(event.conversation)
        if event.length == 0:
            return self._forget(event.conversation, event.time_ns)
        side = None if sides is None else sides.by_sender.pop(event.sender, None)
        if sides is not None:
            sides.offsets[event.sender] = event.offset + event.length
        return [] if side is None else [*self._end(side, event.time_ns)]

    def _closed(self, event: Closed) -> list[CaptureEvent]:
        sides = self._conversations.get(event.conversation)
        if sides is None:
            return []
        sides.closed.add(event.sender)
        if event.reset or len(sides.closed) == len(Sender):
            return self._forget(event.conversation, event.time_ns)
        side = sides.by_sender.get(event.sender)
        return [] if side is None else [*self._end(side, event.time_ns)]

    def _forget(self, conversation: Conversation, time_ns: int) -> list[CaptureEvent]:
        sides = self._conversations.pop(conversation, None)
        if sides is None:
            return []
        return [chunk for side in sides.by_sender.values() for chunk in self._end(side, time_ns)]
