"""One partition: a recording, or a group of its conversations, as Arrow batches of one table.

Reads the files twice where notes or damage are asked for, or files were read before: the first time only for these
(`survey`). Conversations of other groups are passed over, and so are those of which the new files say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock_codecs.capture import CaptureEvent, Conversation
from penstock_codecs.dialogue import Message, Problem
from penstock_codecs.dialogue.failures import Failures
from penstock_codecs.dialogue.hearing import Dialogues
from penstock_codecs.dialogue.summaries import Summaries, Summary
from penstock_spark.capture.connections import OF_DIALOGUES, ConnectionRows
from penstock_spark.capture.facts import Facts
from penstock_spark.capture.grouping import group_of
from penstock_spark.capture.messages import MessageRows
from penstock_spark.capture.notes import NO_NOTES
from penstock_spark.capture.reading import Reading
from penstock_spark.capture.recordings import Recording
from penstock_spark.capture.records import RecordRows
from penstock_spark.capture.survey import Survey, survey

__all__ = ["Part", "decode"]

MOST_REMEMBERED: Final = 20_000
"""Of so many conversations it is remembered what all their rows say."""
_SURVEYED: Final = frozenset({"identity", "route", "notes", "damage"})
"""Columns that need a first look."""


@dataclass(frozen=True)
class Part:
    """What one task decodes.

    `since`: the first file that is new; what is said in those before it was told by an earlier batch. `ends`: the
    recording is over with its last file, and what was left unsaid is told. `only`: what conversations must be, by
    columns of theirs.
    """

    recording: Recording
    table: str
    file: str
    group: int = 0
    groups: int = 1
    since: int = 0
    ends: bool = True
    envelopes: bool = False
    skip_unreadable: bool = False
    only: Mapping[str, frozenset[Any]] = field(default_factory=dict)


def decode(part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows. `schema`: columns of the table, any of them in any order. Raises Unreadable."""
    asked = set(schema.names)
    first = Survey()
    if part.since or asked & _SURVEYED:
        first = survey(part.recording, _chosen(part, None), part.since, skip_unreadable=part.skip_unreadable)
    constants = {"file": part.file, "damage": first.damage}
    reading = Reading(part.recording, skip_unreadable=part.skip_unreadable)
    yield from _TABLES[part.table](part, schema, constants, first).batches(reading)


def _chosen(part: Part, first: Survey | None) -> Callable[[Conversation], bool]:
    """Whether anything of a conversation is wanted."""
    group, groups, only = part.group, part.groups, part.only

    passes = first is not None and not part.ends

    def chosen(conversation: Conversation) -> bool:
        if groups > 1 and group_of(conversation, groups) != group:
            return False
        together = conversation.protocol in ("", "segment")  # such dialogues know of each other
        if passes and first is not None and not together and not first.goes_on(conversation):
            return False
        if not only:
            return True
        facts = Facts.of(conversation, NO_NOTES)
        return all(
            (name in _ALONE and together) or getattr(facts, name) in (None, *values) for name, values in only.items()
        )

    return chosen


_ALONE: Final = frozenset({"run", "conversation", "client", "client_host"})
"""What conversations with one server differ in."""


class _Decoding:
    """What the tables have in common."""

    def __init__(self, part: Part, first: Survey) -> None:
        self._part = part
        self._first = first
        self._chosen = _chosen(part, first)
        self._wanted: dict[Conversation, bool] = {}
        self._facts: dict[Conversation, Facts] = {}
        self._unreadable = part.skip_unreadable and part.group == 0

    def wanted(self, conversation: Conversation) -> bool:
        """Whether anything of it is."""
        known = self._wanted.get(conversation)
        if known is None:
            if len(self._wanted) >= MOST_REMEMBERED:
                self._wanted.clear()
            known = self._wanted[conversation] = self._chosen(conversation)
        return known

    def facts(self, conversation: Conversation) -> Facts:
        """What all its rows say."""
        known = self._facts.get(conversation)
        if known is None:
            if len(self._facts) >= MOST_REMEMBERED:
                self._facts.clear()
            known = self._facts[conversation] = Facts.of(conversation, self._first.notes(conversation))
        return known

    def batches(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """All rows."""
        wanted = self.wanted
        for index in range(len(self._part.recording.files)):
            new = index >= self._part.since
            for events in reading.file(index):
                for event in events:
                    if wanted(event.conversation):
                        yield from self.event(event, new)
        if self._part.ends:
            for event in reading.end():
                if wanted(event.conversation):
                    yield from self.event(event, True)
            yield from self.end()
        yield from self.rest(reading)

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        """`new`: what it makes known is told."""
        raise NotImplementedError

    def end(self) -> Iterator[pa.RecordBatch]:
        """The recording has ended."""
        raise NotImplementedError

    def rest(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """What has not filled a batch."""
        raise NotImplementedError


class _Records(_Decoding):
    def __init__(self, part: Part, schema: pa.Schema, constants: dict[str, str | None], first: Survey) -> None:
        super().__init__(part, first)
        self._rows = RecordRows(schema, constants, envelopes=part.envelopes)
        self._dialogues = Dialogues()

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.receive(event):
            if new and isinstance(item, Message):
                yield from self._rows.add(item, self.facts(item.conversation))

    def end(self) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.end():
            if isinstance(item, Message):
                yield from self._rows.add(item, self.facts(item.conversation))

    def rest(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        del reading
        yield from self._rows.rest()


class _Messages(_Decoding):
    def __init__(self, part: Part, schema: pa.Schema, constants: dict[str, str | None], first: Survey) -> None:
        super().__init__(part, first)
        self._rows = MessageRows(schema, constants)
        self._dialogues = Dialogues()
        self._failures = Failures()

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.receive(event):
            yield from self._said(item, new)
        if event.conversation not in self._dialogues:
            self._failures.forget(event.conversation)

    def _said(self, item: Message | Problem, new: bool) -> Iterator[pa.RecordBatch]:
        failed = isinstance(item, Message) and self._failures.counts(item)
        if new:
            yield from self._rows.add(item, self.facts(item.conversation), failed)

    def end(self) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.end():
            yield from self._said(item, True)

    def rest(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        del reading
        yield from self._rows.rest()


class _Connections(_Decoding):
    def __init__(self, part: Part, schema: pa.Schema, constants: dict[str, str | None], first: Survey) -> None:
        super().__init__(part, first)
        self._rows = ConnectionRows(schema, constants)
        decoded = OF_DIALOGUES.intersection(schema.names)
        self._dialogues = Dialogues() if decoded else None
        self._summaries = Summaries(records=bool({"appended", "delivered"} & decoded))

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        self._summaries.event(event)
        if self._dialogues is not None:
            for item in self._dialogues.receive(event):
                self._summaries.said(item)
        for summary in self._summaries.ended(event.conversation):
            yield from self._ended(summary, new)

    def _ended(self, summary: Summary, new: bool) -> Iterator[pa.RecordBatch]:
        if new:
            yield from self._rows.add(summary, self.facts(summary.conversation))

    def end(self) -> Iterator[pa.RecordBatch]:
        if self._dialogues is not None:
            for item in self._dialogues.end():
                self._summaries.said(item)
        for summary in self._summaries.rest():
            yield from self._ended(summary, True)

    def rest(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        if self._unreadable:
            self._rows.unreadable(reading.unreadable)
        yield from self._rows.rest()


_TABLES: Final = {"records": _Records, "messages": _Messages, "connections": _Connections}
