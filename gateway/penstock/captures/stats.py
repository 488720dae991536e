"""A capture in numbers: by protocol, listener and stream, and over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.captures.choosing import Choice
from penstock.captures.lines import utc
from penstock.captures.spread import Spread
from penstock_codecs.capture import CaptureEvent, Chunk, Conversation
from penstock_codecs.dialogue import APPENDED, Message, Problem
from penstock_codecs.dialogue.failures import Failures
from penstock_codecs.dialogue.hearing import Dialogues

__all__ = ["MAX_GROUPS", "MAX_PERIODS", "OTHERS", "PERCENTILES", "Count", "Group", "Period", "Statistics"]

MAX_GROUPS: Final = 10_000
"""Most groups; what belongs to more is counted together."""
MAX_PERIODS: Final = 60
"""Most periods of time; when there would be more, each becomes twice as long."""
OTHERS: Final = "(others)"
EVERYTHING: Final = Choice()
PERCENTILES: Final = (50, 90, 99)


class Group(NamedTuple):
    """What is counted together. `stream`: "" for what is about none."""

    protocol: str
    name: str
    stream: str


@dataclass(slots=True)
class Count:
    """What was counted. Bytes are those of messages, as they went over the connection. Errors: problems, and requests
    that failed."""

    connections: int = 0
    messages: int = 0
    appended: int = 0
    delivered: int = 0
    size: int = 0
    errors: int = 0
    answers: Spread = field(default_factory=Spread)

    def as_line(self) -> dict[str, Any]:
        """All of it, for JSON; answer times in ns."""
        line: dict[str, Any] = {
            "connections": self.connections,
            "messages": self.messages,
            "records_appended": self.appended,
            "records_delivered": self.delivered,
            "bytes": self.size,
            "errors": self.errors,
        }
        if self.answers.count:
            line["answers"] = {f"p{percent}": self.answers.percentile(percent) for percent in PERCENTILES}
            line["answers"] |= {"max": self.answers.most, "count": self.answers.count}
        return line


@dataclass(slots=True)
class Period:
    """A span of time. `size`: bytes of both sides."""

    start_ns: int
    size: int = 0
    messages: int = 0
    records: int = 0


class Statistics:
    """Counts what a capture says, as far as it is chosen."""

    def __init__(self, choice: Choice = EVERYTHING) -> None:
        self._choice = choice
        self.groups: dict[Group, Count] = {}
        self.total = Count()
        self.start_ns: int | None = None
        self.end_ns = 0
        self.size = 0
        """Bytes of both sides of all conversations."""
        self._seen: dict[Conversation, set[Group]] = {}
        self._failures = Failures()
        self._periods: dict[int, Period] = {}
        self._period_ns = 1_000_000_000

    def count(self, event: CaptureEvent, dialogues: Dialogues) -> None:
        """An event, and what the dialogues make of it."""
        conversation = event.conversation
        if self.start_ns is None:
            self.start_ns = event.time_ns
        self.end_ns = max(self.end_ns, event.time_ns)
        if conversation not in self._seen:
            self._seen[conversation] = set()
            self.total.connections += 1
        if isinstance(event, Chunk):
            self.size += len(event.data)
            self._period(event.time_ns).size += len(event.data)
        self._said(dialogues.receive(event))
        if conversation not in dialogues:
            self._seen.pop(conversation, None)
            self._failures.forget(conversation)

    def end(self, dialogues: Dialogues) -> None:
        """The capture has ended."""
        self._said(dialogues.end())

    def _said(self, items: Iterator[Message | Problem]) -> None:
        for item in items:
            if not self._choice.said(item):
                continue
            count = self._group(item)
            if isinstance(item, Problem):
                count.errors += 1
                self.total.errors += 1
                continue
            failed = self._failures.counts(item)
            for each in (count, self.total):
                self._message(item, each)
                each.errors += failed
            period = self._period(item.end_ns)
            period.messages += 1
            period.records += sum(record.acknowledged for record in item.records)

    def _message(self, message: Message, count: Count) -> None:
        count.messages += bool(message.length)
        count.size += message.length
        if message.answers is not None:
            count.answers.add(message.answers)
        if message.records:
            appended = sum(record.acknowledged and record.action == APPENDED for record in message.records)
            count.appended += appended
            count.delivered += sum(record.action != APPENDED for record in message.records)

    def _group(self, item: Message | Problem) -> Count:
        """Where an item is counted."""
        conversation = item.conversation
        stream = item.stream if isinstance(item, Message) else ""
        layer = item.layer if isinstance(item, Message) else ""
        group = Group(conversation.protocol or layer, conversation.name or str(conversation.server), stream)
        if group not in self.groups and len(self.groups) >= MAX_GROUPS:
            group = Group(OTHERS, OTHERS, OTHERS)
        count = self.groups.get(group)
        if count is None:
            count = self.groups[group] = Count()
        seen = self._seen.get(conversation)
        if seen is not None and group not in seen:
            seen.add(group)
            count.connections += 1
        return count

    # ---- over time -----------------------------------------------------------------------------------------------

    @property
    def periods(self) -> list[Period]:
        """In order of time; those without anything are left out."""
        return [self._periods[place] for place in sorted(self._periods)]

    @property
    def period_ns(self) -> int:
        """How long each is."""
        return self._period_ns

    def _period(self, time_ns: int) -> Period:
        place = time_ns // self._period_ns
        period = self._periods.get(place)
        if period is None:
            period = self._periods[place] = Period(place * self._period_ns)
            if len(self._periods) > MAX_PERIODS:
                self._lengthen()
                return self._period(time_ns)
        return period

    def _lengthen(self) -> None:
        """Twice as long, until there are few enough."""
        old, self._periods = self._periods, {}
        self._period_ns *= 2
        for period in old.values():
            place = period.start_ns // self._period_ns
            new = self._periods.setdefault(place, Period(place * self._period_ns))
            new.size += period.size
            new.messages += period.messages
            new.records += period.records
        if len(self._periods) > MAX_PERIODS:
            self._lengthen()

    def as_line(self) -> dict[str, Any]:
        """All of it, for JSON."""
        start = self.start_ns
        return {
            "start": None if start is None else utc(start),
            "duration_ns": 0 if start is None else self.end_ns - start,
            "bytes": self.size,
            "total": self.total.as_line(),
            "groups": [{**group._asdict(), **count.as_line()} for group, count in self.groups.items()],
            "period_ns": self._period_ns,
            "periods": [
                {"time": utc(each.start_ns), "bytes": each.size, "messages": each.messages, "records": each.records}
                for each in self.periods
            ],
        }
