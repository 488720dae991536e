"""Summarize conversations: subjects, amounts and durations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.capture.dialogue.failures import Failures
from penstock.capture.dialogue.messages import APPENDED, Message, Problem
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Lost, Noted, Opened, Sender

__all__ = ["Summaries", "Summary"]

MAX_NOTES: Final = 16
"""Most routes, streams and so on that are listed of one conversation."""


class Summary(msgspec.Struct):
    """Totals of one conversation so far. Times in ns, sizes in bytes."""

    conversation: Conversation
    start_ns: int
    end_ns: int
    sent: dict[Sender, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Sender, 0))
    chunks: dict[Sender, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Sender, 0))
    lost: int = 0
    messages: int = 0
    problems: int = 0
    failures: int = 0
    appended: int = 0
    """Records that were acknowledged; where they are counted."""
    delivered: int = 0
    notes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    ends: list[str] = msgspec.field(default_factory=list)
    reset: bool = False
    whole: bool = True
    chosen: bool = False
    """True if one of its items matched the filter."""

    @property
    def ended(self) -> str:
        """End of the conversation: the side that closed it first, or reset it; `open` if the capture ended before."""
        return self.ends[0] if self.ends else "open"

    @property
    def over(self) -> bool:
        """True if no more events can follow."""
        return len(self.ends) == len(Sender) or any("reset" in end or "lost" in end for end in self.ends)


class Summaries:
    """Totals of conversations; each is forgotten once it has ended."""

    def __init__(self, *, records: bool = False) -> None:
        """Create the totals. `records`: count records too, which makes an object of each."""
        self._records = records
        self._open: dict[Conversation, Summary] = {}
        self._failures = Failures()

    def event(self, event: CaptureEvent) -> None:
        """Count an event, before the items of its dialogue."""
        summary = self._open.get(event.conversation)
        if summary is None:
            summary = Summary(event.conversation, event.time_ns, event.time_ns)
            self._open[event.conversation] = summary
            summary.whole = isinstance(event, Opened) and not (event.client_offset or event.server_offset)
        summary.end_ns = max(summary.end_ns, event.time_ns)
        if isinstance(event, Chunk):
            summary.sent[event.sender] += len(event.data)
            summary.chunks[event.sender] += 1
        elif isinstance(event, Noted):
            known = summary.notes.setdefault(event.key, [])
            if event.value not in known and len(known) < MAX_NOTES:
                known.append(event.value)
        elif isinstance(event, Lost):
            summary.lost += event.length
            summary.whole = False
            if not event.length:
                summary.ends.append(f"lost: {event.reason}")
        elif isinstance(event, Closed):
            summary.ends.append(f"{event.sender.value} {'reset' if event.reset else 'closed'}")
            summary.reset |= event.reset

    def add(self, item: Message | Problem, chosen: bool = False) -> None:
        """Count an item of a dialogue. `chosen`: it matches the filter."""
        summary = self._open.get(item.conversation)
        if summary is None:
            return
        summary.chosen |= chosen
        failed = self._failures.counts(item)
        if isinstance(item, Problem):
            summary.problems += not item.withheld
        else:
            summary.messages += 1
            summary.failures += failed
            if self._records:
                for record in item.records:
                    if record.action != APPENDED:
                        summary.delivered += 1
                    elif record.acknowledged:
                        summary.appended += 1

    def ended(self, conversation: Conversation) -> Iterator[Summary]:
        """Return the conversation's totals if it has ended."""
        summary = self._open.get(conversation)
        if summary is not None and summary.over:
            self._failures.forget(conversation)
            yield self._open.pop(conversation)

    def rest(self) -> Iterator[Summary]:
        """Return the totals of the conversations that were still open when the capture ended."""
        while self._open:
            yield self._open.pop(next(iter(self._open)))
