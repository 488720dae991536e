"""Apply redaction rules to the capture events of all conversations of one recording."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Lost, Noted, Opened, Sender
from penstock.capture.redaction.choice import ContentChooser
from penstock.capture.redaction.flow import Flow, NotUnderstood, Truncated
from penstock.capture.redaction.protocols import parser_of
from penstock.capture.redaction.requests import OpenRequests
from penstock.capture.redaction.rules import RedactionRules
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import changed
from penstock.capture.redaction.unknown import unknown

__all__ = ["MOST_HELD", "MOST_HELD_IN_ALL", "Redactor"]

# Measured per chunk of 64 KiB with the default rules (Python 3.11, CPU time): a body of HTTP/1.1 0.4 us, with a chunk
# of its own 8 us; four frames of HTTP/2 5 us; a message of the segment protocol 4 us. With a pattern and a record
# header that are not there: text 33 us; S2S frames, and events of segments, 80 to 140 us; of S3P a record 5 us, of JSON
# 24 us.
MOST_HELD: Final = 16 * 1024 * 1024
"""The most bytes that one side of a conversation holds back: the largest messages, several of them in turn on one
HTTP/2 connection. What is held beyond that is blanked."""
MOST_HELD_IN_ALL: Final = 64 * 1024 * 1024
"""The most bytes that all conversations hold back."""


class _Side:
    """One side of a conversation, and its current parser."""

    def __init__(self, flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests, mid: bool) -> None:
        self.flow = flow
        self._secrets = secrets
        self._parser = parser_of(flow, secrets, chooser, pending, mid=mid)

    def run(self) -> None:
        """Decide about the received bytes as far as possible."""
        while True:
            try:
                next(self._parser)
                return
            except (NotUnderstood, StopIteration):
                self._fall()
            except Truncated:
                self._fall()
                if not self.flow.available:
                    return

    def _fall(self) -> None:
        """Stop parsing: the meaning of all later bytes is unknown."""
        self.flow.passing = 0
        for content in list(self.flow.holding):
            content.cut()
        self._forget()

    def _forget(self) -> None:
        self._parser = unknown(self.flow, self._secrets)

    def abandon(self) -> None:
        """Release all bytes that contents hold back, blanked."""
        for content in list(self.flow.holding):
            content.abandon()

    def fail(self) -> None:
        """Blank all bytes from here on, after an internal error."""
        self.flow.blank_all()
        self._forget()

    def end(self) -> None:
        """Finish: the side has ended."""
        self.flow.ended = True
        self.run()


class _Sides:
    """Both sides of a conversation."""

    def __init__(self, opened: Opened) -> None:
        self.pending = OpenRequests()
        self.by_sender: dict[Sender, _Side] = {}
        self.closed: set[Sender] = set()
        self.offsets = {Sender.CLIENT: opened.client_offset, Sender.SERVER: opened.server_offset}
        self.memory: dict[str, Any] = {}
        """See `Flow.memory`."""


class Redactor:
    """Capture events in, redacted events out; every length and offset is kept.

    Bytes whose meaning depends on the next ones are held back until these arrive or the side ends: with the default
    rules an unfinished line, frame or header block, with patterns and record headers up to a whole message; at most
    MOST_HELD for each side of a conversation and MOST_HELD_IN_ALL. Bytes of the other side release nothing, for a
    secret cut in two would be written. So a chunk may be emitted later, cut differently, and with the time of the event
    that released it; times never decrease. Unchanged chunks are passed on as they are.

    Bytes that cannot be parsed (a peer breaks its protocol, the middle of a conversation) are searched for the patterns
    and for text that looks like a header line, and HTTP/2 heads in them are blanked whole. Where that is not enough
    (bodies are inspected, or there are tokens) all of them are blanked.
    """

    def __init__(self, rules: RedactionRules) -> None:
        """Compile the rules. Raises ValueError for a pattern that is not a regular expression."""
        self._secrets = Secrets(rules)
        self._chooser = ContentChooser(self._secrets)
        self._conversations: dict[Conversation, _Sides] = {}
        self._time_ns = 0  # of the last event
        self.held = 0
        """Bytes that are held back, of all conversations."""
        self.failures = 0
        """Internal errors of redaction so far, faults of Penstock; the bytes at hand were blanked each time."""

    def redact(self, event: CaptureEvent) -> list[CaptureEvent]:
        """Take an event; return those that may be written now. Never raises because of bytes that peers sent."""
        self._time_ns = event.time_ns
        if isinstance(event, Chunk):
            return self._chunk(event)
        if isinstance(event, Opened):
            return self._opened(event)
        if isinstance(event, Lost):
            return [*self._lost(event), event]
        if isinstance(event, Closed):
            return [*self._closed(event), event]
        if isinstance(event, Joined):
            return self._joined(event)
        return [self._noted(event)] if isinstance(event, Noted) else [event]

    def flush(self) -> list[CaptureEvent]:
        """Return the bytes held back of all conversations, redacted as they are, when the recording ends or pauses.

        Bytes that could only be judged together with later ones are blanked whole. Parsing of open conversations goes
        on.
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
        """Redact a note: names of streams are text like any other."""
        value = event.value.encode("utf-8", "surrogatepass")
        edits = self._secrets.leaves.leaf(value, text=True)
        return replace(event, value=changed(value, edits).decode("utf-8", "surrogatepass")) if edits else event

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

    def _joined(self, event: Joined) -> list[CaptureEvent]:
        """Redact and read preludes like sent bytes, so that the bytes behind them can be parsed. They are dropped if
        they cannot be blanked at once."""
        conversation, time_ns = event.conversation, event.time_ns
        out: list[CaptureEvent] = [*self._forget(conversation, time_ns)]
        opened = Opened(conversation, time_ns, event.client_offset, event.server_offset)
        sides = self._conversations[conversation] = _Sides(opened)
        sides.pending.joining = True
        blanked = dict.fromkeys(Sender, b"")
        for sender, data in ((Sender.CLIENT, event.client), (Sender.SERVER, event.server)):
            flow = Flow(conversation, sender, sides.offsets[sender] - len(data), sides.memory)
            side = sides.by_sender[sender] = _Side(flow, self._secrets, self._chooser, sides.pending, mid=False)
            for chunk in self._read(sides, side, Chunk(conversation, time_ns, sender, flow.end, data)) if data else ():
                if isinstance(chunk, Chunk):
                    blanked[chunk.sender] += bytes(chunk.data)
        sides.pending.joining = False
        if any(
            len(blanked[sender]) != len(data) for sender, data in zip(Sender, (event.client, event.server), strict=True)
        ):
            self._forget(conversation, time_ns)
            self._conversations[conversation] = _Sides(opened)
            return out
        out.append(replace(event, client=blanked[Sender.CLIENT], server=blanked[Sender.SERVER]))
        return out

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
        flow = Flow(event.conversation, event.sender, event.offset, sides.memory)
        side = sides.by_sender[event.sender] = _Side(flow, self._secrets, self._chooser, sides.pending, mid)
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

    def _end(self, side: _Side, time_ns: int) -> list[CaptureEvent]:
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
