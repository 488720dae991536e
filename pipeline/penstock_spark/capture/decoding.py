"""One partition: a recording, or a group of its conversations, as Arrow batches of one table.

Reads the files twice where notes or damage are asked for, or files were read before: the first time only for these
(`survey`). Conversations of other groups are passed over, and so are those that ended before the new files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock_codecs.capture import CaptureEvent, Conversation
from penstock_codecs.dialogue import Message, Problem
from penstock_codecs.dialogue.failures import Failures
from penstock_codecs.dialogue.hearing import Dialogues
from penstock_codecs.dialogue.summaries import Summaries, Summary
from penstock_spark.capture import remembered
from penstock_spark.capture.connections import OF_DIALOGUES, ConnectionRows
from penstock_spark.capture.facts import Facts
from penstock_spark.capture.files import Place, plain_name
from penstock_spark.capture.grouping import TOGETHER, group_of
from penstock_spark.capture.messages import MessageRows
from penstock_spark.capture.notes import NO_NOTES
from penstock_spark.capture.reading import Reading
from penstock_spark.capture.recordings import Recording
from penstock_spark.capture.records import RecordRows
from penstock_spark.capture.survey import Survey

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
    columns of theirs. `keeps`: another batch may go on behind the last file. `begins`: behind which file the first one
    stands, if not at the recording's beginning.
    """

    recording: Recording
    table: str
    file: str
    group: int = 0
    groups: int = 1
    since: int = 0
    ends: bool = True
    keeps: bool = False
    begins: str = ""
    envelopes: bool = False
    skip_unreadable: bool = False
    only: Mapping[str, frozenset[Any]] = field(default_factory=dict)


def decode(part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows. `schema`: columns of the table, any of them in any order, names in any case. Raises Unreadable.

    With `keeps`, what the recording's conversations are in is remembered in this process, which may be given the next
    files too: then those before them need not be read again.
    """
    ours = pa.schema([field.with_name(field.name.lower()) for field in schema])
    done = remembered.take(_name(part, ours, part.since)) if part.since else None
    decoding = done if isinstance(done, Decoding) else _TABLES[part.table](part, ours)
    for batch in decoding.go_on(part, part.since if decoding is done else 0):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    if part.keeps and not part.ends:
        remembered.keep(_name(part, ours, len(part.recording.files)), decoding)


def _name(part: Part, schema: pa.Schema, files: int) -> tuple[Any, ...]:
    """What is decoded, up to so many of its files."""
    recording = part.recording
    read = recording.files[files - 1]
    same = part.table, part.file, part.begins, part.group, part.groups, part.envelopes, part.skip_unreadable
    return recording.key, plain_name(str(read)), tuple(schema.names), *same


def _chosen(part: Part) -> Callable[[Conversation], bool]:
    """Whether a conversation is of the part's group, and what it must be."""
    group, groups, only = part.group, part.groups, part.only

    def chosen(conversation: Conversation) -> bool:
        if groups > 1 and group_of(conversation, groups) != group:
            return False
        if not only:
            return True
        together = conversation.protocol in TOGETHER
        facts = Facts.of(conversation, NO_NOTES)
        return all(
            (name in _ALONE and together) or getattr(facts, name) in (None, *values) for name, values in only.items()
        )

    return chosen


_ALONE: Final = frozenset({"run", "conversation", "client", "client_host"})
"""What conversations with one server differ in."""


class Decoding:
    """What the tables have in common."""

    def __init__(self, part: Part, schema: pa.Schema) -> None:
        self._chosen = _chosen(part)
        self._surveyed = bool(part.since or part.keeps or _SURVEYED.intersection(schema.names))
        follows = bool(part.since or part.keeps)
        self._first = Survey(self._chosen, follows=follows, skip_unreadable=part.skip_unreadable)
        self._reading = Reading(skip_unreadable=part.skip_unreadable)
        self._constants: dict[str, str | None] = {"file": part.file, "damage": None}
        self._wanted: dict[Conversation, bool] = {}
        self._facts: dict[Conversation, Facts] = {}
        self._tells = part.skip_unreadable and part.group == 0
        self._new = True

    def wanted(self, conversation: Conversation) -> bool:
        """Whether anything of it is. What has ended before the new files is not, but where dialogues know of each
        other."""
        known = self._wanted.get(conversation)
        if known is None:
            if len(self._wanted) >= MOST_REMEMBERED:
                self._wanted.clear()
            goes_on = self._new or conversation.protocol in TOGETHER or self._first.is_open(conversation)
            known = self._wanted[conversation] = goes_on and self._chosen(conversation)
        return known

    def facts(self, conversation: Conversation) -> Facts:
        """What all its rows say."""
        known = self._facts.get(conversation)
        if known is None:
            if len(self._facts) >= MOST_REMEMBERED:
                self._facts.clear()
            known = self._facts[conversation] = Facts.of(conversation, self._first.notes(conversation))
        return known

    def go_on(self, part: Part, done: int) -> Iterator[pa.RecordBatch]:
        """The rows that new files make known; the first `done` files were read already."""
        files = part.recording.files
        if self._surveyed:
            for index in range(done, len(files)):
                self._first.look(files[index], new=index >= part.since)
        self._constants["damage"] = self._first.damage
        self._facts.clear()
        for index in range(done, len(files)):
            self._new = index >= part.since
            if index == part.since:
                self._reading.unreadable.clear()
            yield from self._file(files[index])
        if part.ends:
            self._new = True
            yield from self._events(self._reading.end())
            yield from self.end()
        yield from self.rest(self._reading.unreadable if self._tells else ())
        self._reading.unreadable.clear()
        if part.keeps:
            self._first.forget_ended()

    def _file(self, place: Place) -> Iterator[pa.RecordBatch]:
        for events in self._reading.file(place):
            yield from self._events(events)

    def _events(self, events: Iterator[CaptureEvent]) -> Iterator[pa.RecordBatch]:
        wanted, new = self.wanted, self._new
        for event in events:
            if wanted(event.conversation):
                yield from self.event(event, new)

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        """`new`: what it makes known is told."""
        raise NotImplementedError

    def end(self) -> Iterator[pa.RecordBatch]:
        """The recording has ended."""
        raise NotImplementedError

    def rest(self, unreadable: Sequence[tuple[Place, str]]) -> Iterator[pa.RecordBatch]:
        """What has not filled a batch, and files that were left out."""
        raise NotImplementedError


class _Records(Decoding):
    def __init__(self, part: Part, schema: pa.Schema) -> None:
        super().__init__(part, schema)
        self._rows = RecordRows(schema, self._constants, envelopes=part.envelopes)
        self._dialogues = Dialogues()

    def event(self, event: CaptureEvent, new: bool) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.receive(event):
            if new and isinstance(item, Message):
                yield from self._rows.add(item, self.facts(item.conversation))

    def end(self) -> Iterator[pa.RecordBatch]:
        for item in self._dialogues.end():
            if isinstance(item, Message):
                yield from self._rows.add(item, self.facts(item.conversation))

    def rest(self, unreadable: Sequence[tuple[Place, str]]) -> Iterator[pa.RecordBatch]:
        del unreadable
        yield from self._rows.rest()


class _Messages(Decoding):
    def __init__(self, part: Part, schema: pa.Schema) -> None:
        super().__init__(part, schema)
        self._rows = MessageRows(schema, self._constants)
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

    def rest(self, unreadable: Sequence[tuple[Place, str]]) -> Iterator[pa.RecordBatch]:
        del unreadable
        yield from self._rows.rest()


class _Connections(Decoding):
    def __init__(self, part: Part, schema: pa.Schema) -> None:
        super().__init__(part, schema)
        self._rows = ConnectionRows(schema, self._constants)
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

    def rest(self, unreadable: Sequence[tuple[Place, str]]) -> Iterator[pa.RecordBatch]:
        self._rows.unreadable(unreadable)
        yield from self._rows.rest()


_TABLES: Final = {"records": _Records, "messages": _Messages, "connections": _Connections}
