"""Statistics of a capture: by protocol, listener and stream, and over time.

Percentiles of durations are computed in memory that does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.capture.dialogue import APPENDED, Message, Problem
from penstock.capture.dialogue.failures import Failures
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation
from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.lines import utc

if TYPE_CHECKING:
    from penstock.capture.dialogue.dialogues import Dialogues

__all__ = [
    "MAX_GROUPS",
    "MAX_PERIODS",
    "OTHERS",
    "PERCENTILES",
    "CountKey",
    "GroupCounts",
    "Percentiles",
    "Period",
    "Statistics",
]

_STEPS: Final = 32
"""Classes per power of two: a percentile is at most 1/32 too large."""
MAX_GROUPS: Final = 10_000
"""Maximum number of groups; beyond it the rest is counted as one."""
MAX_PERIODS: Final = 60
"""Maximum number of periods; when exceeded, all periods become twice as long."""
OTHERS: Final = "(others)"
EVERYTHING: Final = CaptureFilter()
PERCENTILES: Final = (50, 90, 99)


class Percentiles:
    """A histogram of durations with at most 2,000 classes."""

    __slots__ = ("_classes", "count", "most")

    def __init__(self) -> None:
        self._classes: dict[int, int] = {}
        self.count = 0
        self.most = 0
        """The longest duration."""

    def add(self, value: int) -> None:
        """Count a duration, in any unit; negative ones count as 0."""
        value = max(0, value)
        self.count += 1
        self.most = max(self.most, value)
        bucket = _class_of(value)
        self._classes[bucket] = self._classes.get(bucket, 0) + 1

    def percentile(self, percent: float) -> int | None:
        """Return the value that `percent` of the durations do not exceed; None without durations."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._classes):
            seen += self._classes[bucket]
            if seen >= wanted:
                return min(_largest(bucket), self.most)
        return None


def _class_of(value: int) -> int:
    if value < 2 * _STEPS:
        return value
    shift = value.bit_length() - _STEPS.bit_length()
    return shift * _STEPS + (value >> shift)


def _largest(bucket: int) -> int:
    """Return the largest value of a class."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1


class CountKey(NamedTuple):
    """The key of a count. `stream`: "" for items that are not about a stream."""

    protocol: str
    name: str
    stream: str


class GroupCounts(msgspec.Struct):
    """Counts of one group. Sizes are those of messages, in bytes on the connection. Errors are problems and failed
    requests."""

    connections: int = 0
    messages: int = 0
    appended: int = 0
    delivered: int = 0
    size: int = 0
    errors: int = 0
    answers: Percentiles = msgspec.field(default_factory=Percentiles)

    def as_line(self) -> dict[str, Any]:
        """Return all counts for JSON; response times in ns."""
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


class Period(msgspec.Struct):
    """A span of time. `size`: bytes of both sides."""

    start_ns: int
    size: int = 0
    messages: int = 0
    records: int = 0


class Statistics:
    """Counts the items of a capture that a filter accepts."""

    def __init__(self, choice: CaptureFilter = EVERYTHING) -> None:
        self._choice = choice
        self.groups: dict[CountKey, GroupCounts] = {}
        self.total = GroupCounts()
        self.start_ns: int | None = None
        self.end_ns = 0
        self.size = 0
        """Bytes of both sides of all conversations."""
        self._seen: dict[Conversation, set[CountKey]] = {}
        self._failures = Failures()
        self._periods: dict[int, Period] = {}
        self._period_ns = 1_000_000_000

    def count(self, event: CaptureEvent, dialogues: Dialogues) -> None:
        """Count an event, and the messages that the dialogues decode from it."""
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
        """Count the messages that the end of the capture completes."""
        self._said(dialogues.end())

    def _said(self, items: Iterator[Message | Problem]) -> None:
        for item in items:
            if not self._choice.accepts(item):
                continue
            count = self._group(item)
            failed = self._failures.counts(item)
            for each in (count, self.total):
                each.errors += failed
                if isinstance(item, Message):
                    self._message(item, each)
            if isinstance(item, Problem):
                continue
            period = self._period(item.end_ns)
            period.messages += 1
            period.records += sum(record.acknowledged for record in item.records)

    def _message(self, message: Message, count: GroupCounts) -> None:
        count.messages += bool(message.length)
        count.size += message.length
        if message.answers is not None:
            count.answers.add(message.answers)
        if message.records:
            appended = sum(record.acknowledged and record.action == APPENDED for record in message.records)
            count.appended += appended
            count.delivered += sum(record.action != APPENDED for record in message.records)

    def _group(self, item: Message | Problem) -> GroupCounts:
        """Return the count that an item belongs to."""
        conversation = item.conversation
        stream = item.stream if isinstance(item, Message) else ""
        layer = item.layer if isinstance(item, Message) else ""
        group = CountKey(conversation.protocol or layer, conversation.name or str(conversation.server), stream)
        if group not in self.groups and len(self.groups) >= MAX_GROUPS:
            group = CountKey(OTHERS, OTHERS, OTHERS)
        count = self.groups.get(group)
        if count is None:
            count = self.groups[group] = GroupCounts()
        seen = self._seen.get(conversation)
        if seen is not None and group not in seen:
            seen.add(group)
            count.connections += 1
        return count

    # ---- over time -----------------------------------------------------------------------------------------------

    @property
    def periods(self) -> list[Period]:
        """Periods in order of time, without empty ones."""
        return [self._periods[number] for number in sorted(self._periods)]

    @property
    def period_ns(self) -> int:
        """Length of a period."""
        return self._period_ns

    def _period(self, time_ns: int) -> Period:
        number = time_ns // self._period_ns
        period = self._periods.get(number)
        if period is None:
            period = self._periods[number] = Period(number * self._period_ns)
            if len(self._periods) > MAX_PERIODS:
                self._lengthen()
                return self._period(time_ns)
        return period

    def _lengthen(self) -> None:
        """Double the length of periods until there are few enough."""
        old, self._periods = self._periods, {}
        self._period_ns *= 2
        for period in old.values():
            number = period.start_ns // self._period_ns
            new = self._periods.setdefault(number, Period(number * self._period_ns))
            new.size += period.size
            new.messages += period.messages
            new.records += period.records
        if len(self._periods) > MAX_PERIODS:
            self._lengthen()

    def as_line(self) -> dict[str, Any]:
        """Return all statistics for JSON."""
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
