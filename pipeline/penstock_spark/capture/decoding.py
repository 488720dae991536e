"""Decode one partition: a recording, or a group of its conversations, to Arrow batches of one table or of all.

Files are read twice if notes or damage are requested, or if files were read before: the first pass is only for these
(`Survey`). Conversations of other groups are skipped, and so are those that ended before the new files.

Between two micro-batches a process keeps the states of conversations (`keep`, `take`). Spark gives a task to any
worker, so this only saves work: a process without the state reads the earlier files again. `take` removes the state, so
that a task that fails halfway leaves none behind.

`ConnectionRows` makes the table `connections`: a row with the totals of each conversation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.dialogue.failures import Failures
from penstock.capture.dialogue.summaries import Summaries, Summary
from penstock.capture.pcapng import CaptureEvent, Closed, Conversation, Lost, Noted, Sender
from penstock_spark.capture.facts import FACTS, Facts
from penstock_spark.capture.files import FileInfo, plain_name
from penstock_spark.capture.grouping import RecordingPart, group_of, stays_together
from penstock_spark.capture.messages import MessageRows
from penstock_spark.capture.notes import NO_NOTES, Notes
from penstock_spark.capture.reading import Reading
from penstock_spark.capture.records import RecordRows
from penstock_spark.capture.values import as_times, column_of, in_us
from penstock_spark.schemas import ALL_TABLES

__all__ = ["MOST", "OF_DIALOGUES", "ConnectionRows", "Survey", "decode_rows", "keep", "take"]

MOST: Final = 8
"""Maximum number of recordings, or groups of one, whose states are kept; the least recently used are dropped. Each
state is as large as the open conversations of a batch query."""
_kept: OrderedDict[Hashable, object] = OrderedDict()
Key = tuple[str, int]
BATCH_ROWS: Final = 10_000
"""Rows per batch."""
OF_DIALOGUES: Final = frozenset({"messages", "problems", "failures", "appended", "delivered"})
"""Columns that require decoding messages."""
_OF_SUMMARIES: Final[dict[str, Callable[[Summary], Any]]] = {
    "server": lambda summary: str(summary.conversation.server),
    "tls": lambda summary: summary.conversation.tls,
    "start": lambda summary: in_us(summary.start_ns),
    "end": lambda summary: in_us(summary.end_ns),
    "ended": lambda summary: summary.ended,
    "reset": lambda summary: summary.reset,
    "whole": lambda summary: summary.whole,
    "client_bytes": lambda summary: summary.sent[Sender.CLIENT],
    "server_bytes": lambda summary: summary.sent[Sender.SERVER],
    "client_chunks": lambda summary: summary.chunks[Sender.CLIENT],
    "server_chunks": lambda summary: summary.chunks[Sender.SERVER],
    "lost_bytes": lambda summary: summary.lost,
    "messages": lambda summary: summary.messages,
    "problems": lambda summary: summary.problems,
    "failures": lambda summary: summary.failures,
    "appended": lambda summary: summary.appended,
    "delivered": lambda summary: summary.delivered,
}
_OF_FACTS: Final[dict[str, Callable[[Facts], Any]]] = {
    **{name: attrgetter(name) for name in (*FACTS, "protocol")},
    "route": lambda facts: facts.notes.route,
    "notes": lambda facts: facts.notes.values,
}
MOST_REMEMBERED: Final = 20_000
"""Maximum number of conversations for which the columns common to all their rows are cached."""
_SURVEYED: Final = frozenset({"identity", "route", "notes", "damage"})
"""Columns that need a first pass."""


def take(name: Hashable) -> object | None:
    """Remove and return the state kept under a name; None if there is none."""
    return _kept.pop(name, None)


def keep(name: Hashable, state: object) -> None:
    """Keep a state for the next micro-batch."""
    _kept[name] = state
    while len(_kept) > MOST:
        _kept.popitem(last=False)


class Survey:
    """A first pass over a recording: the notes of each conversation, the ones open when the new files began, and
    damage.

    It takes a tenth of the time of decoding. Memory is about 300 bytes per conversation with notes, and per open one.
    """

    def __init__(
        self, wanted: Callable[[Conversation], bool], *, follows: bool = False, skip_unreadable: bool = False
    ) -> None:
        """`wanted`: selects the conversations whose notes are kept. `follows`: track open conversations, too."""
        self._wanted = wanted
        self._follows = follows
        self._reading = Reading(skip_unreadable=skip_unreadable)
        self._notes: dict[Key, Notes] = {}
        self._open: dict[Key, set[Sender]] = {}
        """Open conversations, with the senders of each that have finished."""
        self._open_before: frozenset[Key] | None = None

    @property
    def damage(self) -> str | None:
        """Descriptions of all damage, each with its file."""
        return "; ".join(self._reading.damage) or None

    def notes(self, conversation: Conversation) -> Notes:
        """Return the notes of a conversation in all files read so far."""
        return self._notes.get(_key(conversation), NO_NOTES)

    def is_open(self, conversation: Conversation) -> bool:
        """Return whether the conversation was still open when the new files began."""
        key = _key(conversation)
        return key in self._open if self._open_before is None else key in self._open_before

    def forget_ended(self) -> None:
        """Drop the notes of conversations that have ended."""
        self._notes = {key: notes for key, notes in self._notes.items() if key in self._open}

    def look(self, place: FileInfo, *, new: bool) -> None:
        """Read the next file. Raises Unreadable as `Reading` does."""
        if new and self._open_before is None:
            self._open_before = frozenset(self._open)
        for events in self._reading.file(place):
            for event in events:
                if type(event) is Noted and self._wanted(event.conversation):
                    self._note(event)
                if self._follows:
                    self._follow(event)

    def _note(self, event: Noted) -> None:
        key = _key(event.conversation)
        notes = self._notes.get(key)
        if notes is None:
            notes = self._notes[key] = Notes()
        notes.add(event.key, event.value)

    def _follow(self, event: CaptureEvent) -> None:
        key = _key(event.conversation)
        if type(event) is Closed:
            closed = self._open.get(key, set())
            closed.add(event.sender)
            if event.reset or len(closed) == len(Sender):
                self._open.pop(key, None)
        elif type(event) is Lost and not event.length:
            self._open.pop(key, None)
        elif key not in self._open:
            self._open[key] = set()


def _key(conversation: Conversation) -> Key:
    return conversation.run, conversation.number


class ConnectionRows:
    """Gathers rows of the table `connections` into batches of BATCH_ROWS."""

    def __init__(self, schema: pa.Schema, constants: dict[str, str | None]) -> None:
        """`schema`: the requested columns, any of the table's. `constants`: `file` and `damage`."""
        self._schema = schema
        self._constants = constants
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._rows = 0

    def add(self, summary: Summary, facts: Facts) -> Iterator[pa.RecordBatch]:
        """Add a conversation that has ended, or is cut off by the end of the recording; yield full batches."""
        for name, values in self._columns.items():
            if name in self._constants:
                values.append(self._constants[name])
            elif name in _OF_FACTS:
                values.append(_OF_FACTS[name](facts))
            else:
                values.append(_OF_SUMMARIES[name](summary))
        self._rows += 1
        if self._rows >= BATCH_ROWS:
            yield self._take()

    def unreadable(self, files: Iterable[tuple[FileInfo, str]]) -> None:
        """Add rows for files that were skipped: `file` and `damage`, and nothing else."""
        for place, reason in files:
            fields = {"file": plain_name(str(place)), "damage": reason}
            for name, values in self._columns.items():
                values.append(fields.get(name))
            self._rows += 1

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an incomplete batch."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        arrays = [
            as_times(self._columns[field.name], field.type)
            if field.name in ("start", "end")
            else column_of(self._columns[field.name], field.type)
            for field in self._schema
        ]
        for values in self._columns.values():
            values.clear()
        self._rows = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def decode_rows(part: RecordingPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows. `schema`: columns of the table, any of them in any order, names in any case. Raises Unreadable.

    With `keeps`, this process keeps the states of the recording's conversations: if it is given the next files, too,
    those before them need not be read again.
    """
    ours = pa.schema([field.with_name(field.name.lower()) for field in schema])
    done = take(_name(part, ours, part.since)) if part.since else None
    decoding = done if isinstance(done, Decoding) else Decoding(part, ours)
    for batch in decoding.go_on(part, part.since if decoding is done else 0):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    if part.keeps and not part.ends:
        keep(_name(part, ours, len(part.recording.files)), decoding)


def _name(part: RecordingPart, schema: pa.Schema, files: int) -> tuple[Any, ...]:
    """Return the name under which the state after the first `files` files is kept."""
    recording = part.recording
    read = recording.files[files - 1]
    same = part.table, part.file, part.begins, part.group, part.groups, part.envelopes, part.skip_unreadable
    return recording.key, plain_name(str(read)), tuple(schema.names), *same


def _chosen(part: RecordingPart) -> Callable[[Conversation], bool]:
    """Return a predicate for conversations of the part's group."""
    group, groups = part.group, part.groups
    return lambda conversation: groups == 1 or group_of(conversation, groups) == group


class Decoding:
    """Decodes conversations once, for one table or for all of them."""

    def __init__(self, part: RecordingPart, schema: pa.Schema) -> None:
        tables = _tables(part.table, schema)
        column_names = {name for columns in tables.values() for name in columns.names}
        self._chosen = _chosen(part)
        self._surveyed = bool(part.since or part.keeps or _SURVEYED & column_names)
        follows = bool(part.since or part.keeps)
        self._first = Survey(self._chosen, follows=follows, skip_unreadable=part.skip_unreadable)
        self._reading = Reading(skip_unreadable=part.skip_unreadable)
        self._constants: dict[str, str | None] = {"file": part.file, "damage": None}
        self._wanted: dict[Conversation, bool] = {}
        self._facts: dict[Conversation, Facts] = {}
        self._reports_unreadable = part.skip_unreadable and part.group == 0
        self._new = True
        self._schema = schema
        self._whole = part.table == ALL_TABLES
        self._connections = self._messages = self._records = None
        if "connections" in tables:
            self._connections = ConnectionRows(tables["connections"], self._constants)
        if "messages" in tables:
            self._messages = MessageRows(tables["messages"], self._constants)
        if "records" in tables:
            self._records = RecordRows(tables["records"], self._constants, envelopes=part.envelopes)
        summed = OF_DIALOGUES.intersection(tables["connections"].names) if "connections" in tables else frozenset()
        self._summaries = Summaries(records=bool({"appended", "delivered"} & summed))
        self._summed = bool(summed)
        self._dialogues = Dialogues() if self._messages or self._records or summed else None
        self._failures = Failures()

    def wanted(self, conversation: Conversation) -> bool:
        """Return whether to decode a conversation. One that ended before the new files is skipped, unless others of its
        protocol need it to be decoded."""
        known = self._wanted.get(conversation)
        if known is None:
            if len(self._wanted) >= MOST_REMEMBERED:
                self._wanted.clear()
            goes_on = self._new or stays_together(conversation) or self._first.is_open(conversation)
            known = self._wanted[conversation] = goes_on and self._chosen(conversation)
        return known

    def facts(self, conversation: Conversation) -> Facts:
        """Return the properties of a conversation, cached."""
        known = self._facts.get(conversation)
        if known is None:
            if len(self._facts) >= MOST_REMEMBERED:
                self._facts.clear()
            known = self._facts[conversation] = Facts.of(conversation, self._first.notes(conversation))
        return known

    def go_on(self, part: RecordingPart, done: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that new files complete; the first `done` files were read already."""
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
            for events in self._reading.file(files[index]):
                yield from self._events(events)
        if part.ends:
            self._new = True
            yield from self._events(self._reading.end())
            yield from self._end()
        yield from self._rest()
        self._reading.unreadable.clear()
        if part.keeps:
            self._first.forget_ended()

    def _events(self, events: Iterator[CaptureEvent]) -> Iterator[pa.RecordBatch]:
        wanted, new, dialogues, connections = self.wanted, self._new, self._dialogues, self._connections
        for event in events:
            conversation = event.conversation
            if not wanted(conversation):
                continue
            if connections is not None:
                self._summaries.event(event)
            if dialogues is not None:
                for item in dialogues.receive(event):
                    yield from self._said(item, new)
                if self._messages is not None and conversation not in dialogues:
                    self._failures.forget(conversation)
            if connections is not None:
                for summary in self._summaries.ended(conversation):
                    yield from self._ended(summary, new)

    def _said(self, item: Message | Problem, new: bool) -> Iterator[pa.RecordBatch]:
        """Add a message or a problem to the tables; yield its rows only if it is `new`."""
        if self._summed:
            self._summaries.add(item)
        if self._messages is not None:
            failed = isinstance(item, Message) and self._failures.counts(item)
            if new:
                for batch in self._messages.add(item, self.facts(item.conversation), failed):
                    yield self._as("messages", batch)
        if self._records is not None and new and isinstance(item, Message):
            for batch in self._records.add(item, self.facts(item.conversation)):
                yield self._as("records", batch)

    def _ended(self, summary: Summary, new: bool) -> Iterator[pa.RecordBatch]:
        if new and self._connections is not None:
            for batch in self._connections.add(summary, self.facts(summary.conversation)):
                yield self._as("connections", batch)

    def _end(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows at the end of the recording."""
        if self._dialogues is not None:
            for item in self._dialogues.end():
                yield from self._said(item, True)
        if self._connections is not None:
            for summary in self._summaries.rest():
                yield from self._ended(summary, True)

    def _rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of incomplete batches, and rows of files that were skipped."""
        if self._connections is not None and self._reports_unreadable:
            self._connections.unreadable(self._reading.unreadable)
        for name, rows in (
            ("connections", self._connections),
            ("messages", self._messages),
            ("records", self._records),
        ):
            if rows is not None:
                for batch in rows.rest():
                    yield self._as(name, batch)

    def _as(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of one table in the requested schema."""
        if not self._whole:
            return batch
        row = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        columns = [row if field.name == name else pa.nulls(batch.num_rows, field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _tables(table: str, schema: pa.Schema) -> dict[str, pa.Schema]:
    """Return the requested columns of each table."""
    return {field.name: pa.schema(list(field.type)) for field in schema} if table == ALL_TABLES else {table: schema}
