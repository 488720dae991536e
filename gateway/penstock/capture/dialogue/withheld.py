"""Dialogues of conversations of which redaction withheld bytes: their messages are marked, and not judged.

A withheld byte has a place, and no meaning: the codecs refuse it, though its sender may have kept every rule. So a
problem at withheld bytes is not one of the sender, nor is a later one in the same exchange, or behind bytes with which
a side becomes unreadable, which may only follow from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from penstock.capture.dialogue.messages import Dialogue, Message, Problem
from penstock.capture.pcapng import CaptureEvent, Sender, Withheld

__all__ = ["RedactedDialogue"]

MAX_RANGES: Final = 1000
"""Most ranges of withheld bytes that are remembered of each side: messages of that many, if each has one."""
MAX_EXCHANGES: Final = 1000
"""Most exchanges with withheld bytes that are remembered."""


class RedactedDialogue:
    """Dialogue that passes events to another, and judges no withheld bytes."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self._ranges: dict[Sender, deque[tuple[int, int]]] = {}
        self._unjudged: dict[int | None, None] = {}  # exchanges

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event completes."""
        if isinstance(event, Withheld):
            ranges = self._ranges.setdefault(event.sender, deque(maxlen=MAX_RANGES))
            start = ranges.pop()[0] if ranges and ranges[-1][1] == event.offset else event.offset
            ranges.append((start, event.offset + event.length))
            return
        yield from self._marked(self.dialogue.receive(event))

    def end(self) -> Iterator[Message | Problem]:
        """Yield the last items at the end of the recording."""
        yield from self._marked(self.dialogue.end())

    def _marked(self, items: Iterator[Message | Problem]) -> Iterator[Message | Problem]:
        for item in items:
            if not self._ranges:
                yield item
            elif isinstance(item, Message):
                item.withheld = self._overlap(item.sender, item.offset, item.offset + item.length)
                yield item
            else:
                yield from self._unjudged_problem(item)

    def _overlap(self, sender: Sender, start: int, end: int) -> int:
        """Return how many bytes of a stretch are withheld."""
        return sum(max(0, min(high, end) - max(low, start)) for low, high in self._ranges.get(sender, ()))

    def _unjudged_problem(self, problem: Problem) -> Iterator[Problem]:
        """Yield a problem, unless it is behind withheld bytes in its exchange; if it is at them, as no fault."""
        if problem.exchange in self._unjudged or None in self._unjudged:
            return
        for low, high in self._ranges.get(problem.sender, ()):
            if low <= problem.offset <= high:
                if problem.fatal or problem.exchange is not None:
                    self._unjudged[problem.exchange] = None
                while len(self._unjudged) > MAX_EXCHANGES:
                    del self._unjudged[next(iter(self._unjudged))]
                rule = f"{high - low} bytes are withheld by redaction"
                yield replace(problem, rule=rule, clause="", offset=low, withheld=high - low)
                return
        yield problem
