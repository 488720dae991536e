"""Track writers, their segments, and appends that wait for their acknowledgement (segment fact sheet, 1.4 and 2)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from penstock.capture.dialogue.messages import APPENDED, SeenRecord
from penstock.capture.dialogue.waiting import MOST_WAITING, PendingBatches
from penstock.capture.pcapng import Conversation
from penstock.model.byte_events import EVENT_HEADER_BYTES, split_events
from penstock.model.byte_layout import MOST_EMPTY
from penstock_pravega.codec.limits import SegmentLimits

__all__ = ["Answered", "StoredEvents", "WriterAppends"]

MOST_WRITERS: Final = SegmentLimits().max_writers


class StoredEvents(NamedTuple):
    """Bodies of the events that an append stores. `raw`: the bytes are not events, but one body."""

    bodies: list[bytes]
    size: int
    raw: bool

    @classmethod
    def of(cls, data: bytes) -> StoredEvents:
        """Split an append into events; anything else, as on byte streams, is one body. So are zeros: they look like
        events without a body, but no writer sends that many of those."""
        try:
            bodies = split_events(data)
        except ValueError:
            return cls([data], len(data), True)
        raw = bodies.count(b"") > MOST_EMPTY
        return cls([data] if raw else bodies, len(data), raw)


class Answered(NamedTuple):
    """Result of a reply: the records that it settles, the segment, and the time at which the last append that it
    answers was complete."""

    records: list[SeenRecord]
    segment: str = ""
    asked_ns: int | None = None


class _Append(msgspec.Struct):
    """A pending append. `number`: of its last event, or the connection offset behind it; `ticket` 0: no records, and no
    `size`. `expected`: the offset at which it is stored if at all. `after`: the segment's length when it was requested;
    -1: unknown."""

    number: int
    request_id: int | None
    end_ns: int
    expected: int | None
    after: int
    ticket: int = 0
    size: int | None = None


class _Writer(msgspec.Struct):
    segment: str
    request_id: int | None
    appends: deque[_Append] = msgspec.field(default_factory=deque)
    stored: int = -1
    """Length of the segment when the last of its appends was acknowledged; -1: unknown."""


class WriterAppends:
    """Pending appends of the writers of one conversation, or in the draft of its connection ids. Bounded in all."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._waiting = PendingBatches()
        self._writers: dict[UUID, _Writer] = {}
        self._lengths: dict[str, int] = {}  # of segments, as far as they are known
        self._count = 0  # appends that wait, of all writers
        self._ids: Counter[int | None] = Counter()  # how many of them have which request id

    def set_up(self, writer_id: UUID, segment: str, request_id: int | None) -> None:
        """Set the segment of a writer."""
        writer = self._writer(writer_id)
        writer.segment, writer.request_id = segment, request_id

    def segment(self, writer_id: UUID) -> str:
        """Return the segment that a writer appends to, or "" if it is unknown."""
        writer = self._writers.get(writer_id)
        return "" if writer is None else writer.segment

    def _writer(self, writer_id: UUID) -> _Writer:
        writer = self._writers.get(writer_id)
        if writer is None:
            if len(self._writers) >= MOST_WRITERS:
                self._forgotten(self._writers.pop(next(iter(self._writers))).appends)
            writer = self._writers[writer_id] = _Writer("", None)
        return writer

    def reaches(self, segment: str, length: int) -> None:
        """Note that a segment has at least that many bytes."""
        if length > self._lengths.get(segment, -1):
            self._lengths[segment] = length
            if len(self._lengths) > MOST_WRITERS:
                del self._lengths[next(iter(self._lengths))]

    def add(
        self,
        writer_id: UUID,
        number: int,
        request_id: int | None,
        end_ns: int,
        stored: StoredEvents | None,
        expected: int | None = None,
    ) -> tuple[list[SeenRecord], list[SeenRecord]]:
        """Add an append; None: its records are unknown. `expected`: the offset at which it is stored if at all. Return
        its records, and those that are given up for it."""
        writer = self._writer(writer_id)
        append = _Append(number, request_id, end_ns, expected, self._lengths.get(writer.segment, -1))
        given_up: list[SeenRecord] = []
        records: list[SeenRecord] = []
        if stored is not None:
            records = [
                SeenRecord(APPENDED, writer.segment, body, time_ns=end_ns, conversation=self._conversation)
                for body in stored.bodies
            ]
            append.ticket, given_up = self._waiting.add(records)
            append.size = stored.size
        writer.appends.append(append)
        self._count += 1
        self._ids[request_id] += 1
        if self._count > MOST_WAITING:
            given_up += self._forget(writer)
        return records, given_up

    def _forgotten(self, appends: Iterable[_Append]) -> None:
        """Remove these appends."""
        for each in appends:
            self._count -= 1
            self._ids[each.request_id] -= 1
            if not self._ids[each.request_id]:
                del self._ids[each.request_id]

    def _forget(self, writer: _Writer) -> list[SeenRecord]:
        """Remove the oldest append of this writer, or of another if this one has only one."""
        others = (each for each in self._writers.values() if each.appends)
        forgotten = writer if len(writer.appends) > 1 else next(others)
        append = forgotten.appends.popleft()
        self._forgotten([append])
        return self._waiting.refuse(append.ticket, "")

    def acknowledge(self, writer_id: UUID, number: int, write_offset: int | None) -> Answered:
        """Settle this writer's appends up to `number` as stored; the last ends at `write_offset`, if that is known."""
        writer = self._writers.get(writer_id)
        if writer is None:
            return Answered([])
        covered: list[_Append] = []
        while writer.appends and writer.appends[0].number <= number:
            covered.append(writer.appends.popleft())
        self._forgotten(covered)
        end = write_offset if covered and covered[-1].number == number else None
        records: list[SeenRecord] = []
        for append, place in zip(covered, _places(covered, writer.stored, end), strict=True):
            acknowledged = self._waiting.take(append.ticket)
            if place is not None:
                for record in acknowledged:
                    record.offset = place
                    place += EVENT_HEADER_BYTES + len(record.body)
            records += acknowledged
        if write_offset is not None:
            writer.stored = write_offset
            if writer.segment:
                self.reaches(writer.segment, write_offset)
        return Answered(records, writer.segment, covered[-1].end_ns if covered else None)

    def refuse(self, failure: str, writer_id: UUID, number: int) -> Answered:
        """Settle this writer's append that ends with this number as not stored."""
        writer = self._writers.get(writer_id)
        if writer is None:
            return Answered([])
        appends = writer.appends
        at = bisect_left(appends, number, key=lambda each: each.number)
        if at == len(appends) or appends[at].number != number:
            return Answered([], writer.segment)
        append = appends[at]
        del appends[at]
        self._forgotten([append])
        return Answered(self._waiting.refuse(append.ticket, failure), writer.segment, append.end_ns)

    def refuse_request(self, failure: str, request_id: int) -> Answered:
        """Settle all appends with this request id, which all appends of a writer may share, as not stored."""
        waits = request_id in self._ids
        for writer in self._writers.values():
            ids = (each.request_id for each in writer.appends) if waits else (writer.request_id,)
            if request_id in ids:
                return self._refuse(failure, writer, lambda each: each.request_id == request_id)
        return Answered([])

    def refuse_segment(self, failure: str, segment: str) -> Answered:
        """Settle all appends to this segment as not stored: the draft has no request ids."""
        all_of_them = [writer for writer in self._writers.values() if writer.segment == segment]
        refused = [self._refuse(failure, writer, lambda _: True) for writer in all_of_them]
        records = [record for each in refused for record in each.records]
        return Answered(records, segment, next((each.asked_ns for each in refused), None))

    def _refuse(self, failure: str, writer: _Writer, which: Callable[[_Append], bool]) -> Answered:
        refused = [each for each in writer.appends if which(each)]
        if refused:
            writer.appends = deque(each for each in writer.appends if not which(each))
            self._forgotten(refused)
        records = [record for append in refused for record in self._waiting.refuse(append.ticket, failure)]
        return Answered(records, writer.segment, refused[0].end_ns if refused else None)

    def rest(self) -> list[SeenRecord]:
        """Return the records that were not acknowledged."""
        return self._waiting.rest()


def _places(covered: Sequence[_Append], stored: int, end: int | None) -> list[int | None]:
    """Return the offsets of the appends that one acknowledgement covers, the last of which ends at `end`; None:
    unknown.

    `stored`: the length of their segment when the writer's append before them was acknowledged. Other writers' bytes
    may be between any two of them. But if all from one on, put together, reach back from the end to the earliest offset
    at which that one can begin, there are none.
    """
    places = [each.expected for each in covered]
    begins: list[int | None] = []
    begin, known = end, 0
    for each in reversed(covered):
        if begin is None or each.size is None or each.size > begin:
            break
        begin -= each.size
        if each.expected not in (None, begin):
            break
        begins.append(begin)
        if not known or begin in (each.expected, max(each.after, stored)):
            known = len(begins)
    return places[: len(places) - known] + begins[:known][::-1]
