"""Who appends to which segment, and which appends wait for their acknowledgement (segment fact sheet, 1.4 and 2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from penstock_codecs.byte_layout import MOST_EMPTY
from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue.messages import APPENDED, SeenRecord
from penstock_codecs.dialogue.waiting import MOST_WAITING, Waiting
from penstock_codecs.limits import SegmentLimits
from penstock_codecs.segment.events import EVENT_HEADER_BYTES, split_events

__all__ = ["Answered", "Appends", "Stored"]

MOST_WRITERS: Final = SegmentLimits().max_writers


class Stored(NamedTuple):
    """What an append stores: bodies of events. `raw`: it is no events, but bytes in one piece."""

    bodies: list[bytes]
    size: int
    raw: bool

    @classmethod
    def of(cls, data: bytes) -> Stored:
        """The events in an append; anything else, as byte streams have it, is one body. So are zeros: they look like
        events without a body, of which nobody writes so many."""
        try:
            bodies = split_events(data)
        except ValueError:
            return cls([data], len(data), True)
        raw = bodies.count(b"") > MOST_EMPTY
        return cls([data] if raw else bodies, len(data), raw)


class Answered(NamedTuple):
    """What a reply settles: records, the segment, and when the append was complete that it answers last."""

    records: list[SeenRecord]
    segment: str = ""
    asked_ns: int | None = None


@dataclass(slots=True)
class _Append:
    """An append that waits. `number`: of its last event, or the connection offset behind it; `ticket` 0: no records."""

    number: int
    request_id: int | None
    end_ns: int
    ticket: int = 0
    size: int = 0


@dataclass(slots=True)
class _Writer:
    segment: str
    request_id: int | None
    appends: deque[_Append] = field(default_factory=deque)


class Appends:
    """The writers of one conversation, or in the draft its connection ids. Bounded in all."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._waiting = Waiting()
        self._writers: dict[UUID, _Writer] = {}
        self._count = 0  # appends that wait, of all writers

    def set_up(self, writer_id: UUID, segment: str, request_id: int | None) -> None:
        """Who will append to which segment, or was found to."""
        writer = self._writer(writer_id)
        writer.segment, writer.request_id = segment, request_id

    def segment(self, writer_id: UUID) -> str:
        """The segment that a writer appends to; "" where that was not heard."""
        writer = self._writers.get(writer_id)
        return "" if writer is None else writer.segment

    def _writer(self, writer_id: UUID) -> _Writer:
        writer = self._writers.get(writer_id)
        if writer is None:
            if len(self._writers) >= MOST_WRITERS:
                self._count -= len(self._writers.pop(next(iter(self._writers))).appends)
            writer = self._writers[writer_id] = _Writer("", None)
        return writer

    def add(
        self, writer_id: UUID, number: int, request_id: int | None, end_ns: int, stored: Stored | None
    ) -> list[SeenRecord]:
        """An append; None: its records are not known. Gives records that are given up for it."""
        writer = self._writer(writer_id)
        append = _Append(number, request_id, end_ns)
        given_up: list[SeenRecord] = []
        if stored is not None:
            records = [
                SeenRecord(APPENDED, writer.segment, body, time_ns=end_ns, conversation=self._conversation)
                for body in stored.bodies
            ]
            append.ticket, given_up = self._waiting.add(records)
            append.size = stored.size
        writer.appends.append(append)
        self._count += 1
        if self._count > MOST_WAITING:
            given_up += self._forget(writer)
        return given_up

    def _forget(self, writer: _Writer) -> list[SeenRecord]:
        """The oldest append of this writer, or where it has only the one of another, waits no longer."""
        others = (each for each in self._writers.values() if each.appends)
        forgotten = writer if len(writer.appends) > 1 else next(others)
        self._count -= 1
        return self._waiting.refuse(forgotten.appends.popleft().ticket, "")

    def acknowledge(self, writer_id: UUID, number: int, write_offset: int | None) -> Answered:
        """Everything of this writer up to `number` is stored; the last of it ends at `write_offset`, where known.

        Whatever stands between two appends that one acknowledgement covers is not known, so only the last of them
        gets its offsets.
        """
        writer = self._writers.get(writer_id)
        if writer is None:
            return Answered([])
        records: list[SeenRecord] = []
        last: _Append | None = None
        while writer.appends and writer.appends[0].number <= number:
            last = writer.appends.popleft()
            self._count -= 1
            found = self._waiting.take(last.ticket)
            if write_offset is not None and last.number == number:
                place = write_offset - last.size
                for record in found:
                    record.offset = place
                    place += EVENT_HEADER_BYTES + len(record.body)
            records += found
        return Answered(records, writer.segment, None if last is None else last.end_ns)

    def refuse(self, failure: str, writer_id: UUID, number: int) -> Answered:
        """This writer's append that ends with this number was not stored."""
        writer = self._writers.get(writer_id)
        return Answered([]) if writer is None else self._refuse(failure, writer, lambda each: each.number == number)

    def refuse_request(self, failure: str, request_id: int) -> Answered:
        """Nothing is stored of what waits with this request id, which all appends of a writer may share."""
        for writer in self._writers.values():
            if writer.request_id == request_id or any(each.request_id == request_id for each in writer.appends):
                return self._refuse(failure, writer, lambda each: each.request_id == request_id)
        return Answered([])

    def refuse_segment(self, failure: str, segment: str) -> Answered:
        """Nothing is stored of what waits for this segment: the draft has no request ids."""
        all_of_them = [writer for writer in self._writers.values() if writer.segment == segment]
        refused = [self._refuse(failure, writer, lambda _: True) for writer in all_of_them]
        records = [record for each in refused for record in each.records]
        return Answered(records, segment, next((each.asked_ns for each in refused), None))

    def _refuse(self, failure: str, writer: _Writer, which: Callable[[_Append], bool]) -> Answered:
        refused = [each for each in writer.appends if which(each)]
        if refused:
            writer.appends = deque(each for each in writer.appends if not which(each))
            self._count -= len(refused)
        records = [record for append in refused for record in self._waiting.refuse(append.ticket, failure)]
        return Answered(records, writer.segment, refused[0].end_ns if refused else None)

    def rest(self) -> list[SeenRecord]:
        """The records that nobody acknowledged."""
        return self._waiting.rest()
