"""Feed one side of a conversation to a reader: find where it can be read, and report faults and gaps.

On a side whose first bytes were not recorded, or that lost some, reading begins again at the first chunk that begins
like a message. The skipped bytes are one Problem. Since that chunk may have been the content of another message, bytes
there that break the protocol do not end the side: reading begins again in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from penstock.capture.dialogue.messages import Problem
from penstock.capture.dialogue.places import ChunkPlaces, TimedSpan
from penstock.capture.pcapng import Conversation, Sender

__all__ = ["Begins", "DialogueSide", "PlacedEvent", "SideReader", "TimedEvent", "UnreadableBytes"]

Begins = Callable[[bytes], bool | None]
"""Test whether bytes begin like a message; None: too few to tell, which 64 never are."""


class PlacedEvent(NamedTuple):
    """A decoded message, and its place in its sender's bytes: from `start` to before `end`."""

    event: Any
    start: int
    end: int


class TimedEvent(NamedTuple):
    """A decoded message of a side, with its place and times."""

    event: Any
    span: TimedSpan


class UnreadableBytes(Exception):
    """Bytes that break the protocol: the rule, its clause, and the offset of the first wrong byte.

    `fatal`: the bytes that follow cannot be read; otherwise the reader continues behind it.
    """

    def __init__(self, rule: str, clause: str, at: int, *, fatal: bool = True) -> None:
        super().__init__(rule)
        self.rule = rule
        self.clause = clause
        self.at = at
        self.fatal = fatal


class SideReader(Protocol):
    """Decoder of one side's bytes from the offset at which it was made. All its offsets are the sender's."""

    def receive(self, data: bytes) -> None:
        """Take the bytes that follow."""

    def next(self) -> PlacedEvent | None:
        """Return the next message, or None if more bytes are needed. Raises Unreadable."""

    @property
    def begun(self) -> int:
        """Offset of the incomplete message, or the end of the bytes read if there is none."""


class DialogueSide:
    """One sender's half of a conversation. `make` makes a reader that begins at an offset."""

    def __init__(
        self, conversation: Conversation, sender: Sender, make: Callable[[int], SideReader], begins: Begins
    ) -> None:
        self.places = ChunkPlaces()
        self._conversation = conversation
        self._sender = sender
        self._make = make
        self._begins = begins
        self._reader: SideReader | None = make(0)
        self._seeking = False
        self._late = False  # reading has begun at a guess at least once
        self._certain = True  # False: it began at a guess, and nothing was understood yet
        self._skipped: Problem | None = None  # of the bytes since it began to seek
        self._candidates: list[bytes] = []
        self._candidate = 0  # where the first of these begins
        self._unfinished_reported = False

    @property
    def fresh(self) -> bool:
        """True if no bytes have arrived yet."""
        return self.places.end == 0 and not self._seeking

    @property
    def seeking(self) -> bool:
        """True while the beginning of a message is searched for."""
        return self._seeking

    @property
    def over(self) -> bool:
        """True if nothing more will be read."""
        return self._reader is None and not self._seeking

    @property
    def waiting(self) -> bool:
        """True if a message has begun and is incomplete."""
        return self._reader is not None and self._reader.begun < self.places.end

    def seek(self, offset: int) -> None:
        """Search for the beginning of a message from this offset on: the bytes before it are missing."""
        self.places.restart(offset)
        self._candidates.clear()
        self._late = True
        self._seek(offset)

    def _seek(self, offset: int) -> None:
        self._reader = None
        self._seeking, self._certain = True, False
        self._skipped = None
        self._candidate = offset

    def stop(self) -> None:
        """Read nothing more."""
        self._reader = None
        self._seeking = False
        self._candidates.clear()

    def receive(self, time_ns: int, data: bytes | bytearray | memoryview) -> Iterator[TimedEvent | Problem]:
        """Yield the items that these bytes complete."""
        if self.over:
            return
        kept = self.places.add(time_ns, data)
        if self._seeking:
            if self._skipped is None:
                self._skipped = self.problem(self._candidate, "", fatal=False)
            remaining = self._sought(kept)
            if remaining is None:
                self.places.trim()
                return
            kept = remaining
            self._seeking = False
            self._reader = self._make(self._candidate)
            self.places.forget(self._candidate)
        if self._reader is not None:
            self._reader.receive(kept)
            yield from self._read()
        self.places.trim()

    def _sought(self, data: bytes) -> bytes | None:
        """Return the bytes from the first chunk on that begins like a message."""
        self._candidates.append(data)
        while self._candidates:
            start = b"".join(self._candidates)
            begins = self._begins(start)
            if begins is None:
                return None
            if begins:
                self._candidates.clear()
                return start
            self._candidate += len(self._candidates.pop(0))
        return None

    def _read(self) -> Iterator[TimedEvent | Problem]:
        while self._reader is not None:
            try:
                placed = self._reader.next()
            except UnreadableBytes as fault:
                yield from self._refuse(fault)
                continue
            if placed is None:
                return
            yield from self._skip(self._candidate)
            yield TimedEvent(placed.event, self.places.span(placed.start, placed.end))
            if self._reader is not None:
                self.places.forget(self._reader.begun)

    def _refuse(self, fault: UnreadableBytes) -> Iterator[Problem]:
        if fault.fatal:
            self._reader = None
        if fault.fatal and not self._certain:  # it only looked like a message
            self._seeking = True
            self._candidate = self.places.end
            return
        yield from self._skip(self._candidate)
        yield self.problem(fault.at, fault.rule, fault.clause, fatal=fault.fatal and not self._late)
        if fault.fatal and self._late:
            self._seek(self.places.end)

    def _skip(self, to: int) -> Iterator[Problem]:
        """Report skipped bytes as a Problem, once a later message was decoded."""
        problem, self._skipped = self._skipped, None
        self._certain = True
        if problem is not None and to > problem.offset:
            problem.rule = f"{to - problem.offset} bytes of a message whose beginning is not recorded are skipped"
            yield problem

    def finish(self, what: str) -> Iterator[Problem]:
        """End the side for the reason `what`. An incomplete message is a Problem that is not fatal, reported once."""
        if self._unfinished_reported or self.over:
            return
        self._unfinished_reported = True
        if self._seeking:
            yield from self._skip(self.places.end)
        elif self.waiting and self._reader is not None:
            begun = self._reader.begun
            rule = f"{what} {self.places.end - begun} bytes into a message"
            yield self.problem(self.places.end, rule, fatal=False, around=begun)

    def excuse(self) -> None:
        """Note that the incomplete message has been reported already."""
        self._unfinished_reported = True

    def problem(
        self,
        offset: int,
        rule: str,
        clause: str = "",
        *,
        fatal: bool,
        exchange: int | None = None,
        around: int | None = None,
    ) -> Problem:
        """Return a Problem with the bytes of this side; its context is `around` another offset if that helps more."""
        context, context_offset = self.places.context(offset if around is None else around)
        return Problem(
            self._conversation,
            self._sender,
            self.places.time(offset),
            offset,
            rule,
            clause,
            context,
            context_offset,
            exchange,
            fatal,
        )
