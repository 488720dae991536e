"""From a server's acknowledgements to positions: numbering appended records, and those of others before them.

Several acknowledgements that are ready at the same time, of one session or many, are numbered together, in the order
of their records at the server, and share one write of the index. If other gateways may have appended what stands before
a record, its number waits for theirs.

If an acknowledgement does not say where its records are, they are searched behind the last numbered record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import trio

from penstock.backends.positions.index import Outrun
from penstock.backends.sequence_numbering.history import cursor_at, cursor_in, read
from penstock.backends.sequence_numbering.numbered import (
    Draft,
    behind,
    end_of,
    join_scans,
    records_before,
    without_records,
)
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.backends.sequence_numbering.trimmed import truncated_at
from penstock.core.marks import Mark
from penstock.core.native import NativeAck, Scanned
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, FromByteOffset, FromRecordId, FromSeqNum
from penstock.model.records import U64_MAX, RecordId, StreamPosition

__all__ = ["NumberAssigner", "SentAppend", "Unnumbered", "index_of"]


class Unnumbered:
    """Records that have no numbers yet, read once for all acknowledgements whose records are searched among them."""

    def __init__(self, stream: IndexedStream) -> None:
        self._stream = stream
        self._held = Scanned([])

    async def behind(self, draft: Draft, count: int) -> Scanned:
        """Return records from the end of `draft` on, at least `count` or all that there are.

        Moves the draft's end past records that another client truncated there. Raises OperationFailed.
        """
        held = self._held
        if held.bodies:
            held = without_records(held, records_before(held, draft.end))
        while len(held.bodies) < count:
            at = end_of(held) if held.bodies else draft.end
            try:
                more = await self._stream.scan(at)
            except OperationFailed as error:
                draft.end = draft.end._replace(offset=truncated_at(error))
                held = Scanned([])
                continue
            if not more.bodies:
                break
            held = join_scans(held, more) if held.bodies else more
        self._held = held
        return held


def index_of(wanted: list[bytes], bodies: list[bytes]) -> int | None:
    """Return the index at which `bodies` contains `wanted` as a contiguous run, or None."""
    for at in range(len(bodies) - len(wanted) + 1):
        if bodies[at] == wanted[0] and bodies[at : at + len(wanted)] == wanted:
            return at
    return None


class SentAppend(NamedTuple):
    """An append that was sent to the server: its ticket (`AppendsInFlight`), the timestamps that its records will get,
    and the end of the stream at that time."""

    append: Append
    ticket: int
    timestamps: Sequence[int]
    after: Mark


class _Settled(NamedTuple):
    """The positions of the first and last record of an append."""

    first: Mark
    last: Mark


class _Work:
    """One acknowledgement whose records are to be numbered.

    Once `settled`, it has a `result`; if that is None, its records had been numbered before. `fills`: this gateway may
    number what stands before it.
    """

    __slots__ = ("ack", "fills", "handed", "result", "settled")

    def __init__(self, handed: SentAppend, ack: NativeAck, *, fills: bool) -> None:
        self.handed = handed
        self.ack = ack
        self.fills = fills
        self.settled = False
        self.result: _Settled | None = None

    @property
    def begin(self) -> Mark | None:
        """The place of its first record, without its number; None if the acknowledgement does not tell."""
        ack = self.ack
        if ack.last is not None:
            if ack.last[1] < ack.count - 1:
                return None  # its records' identifiers span several milliseconds
            return Mark(0, ack.last[0], ack.last[1] - ack.count + 1, 0)
        if ack.end_offset is not None and ack.length is not None:
            return Mark(0, 0, 0, ack.end_offset - ack.length)
        return None

    def place(self) -> tuple[int, int, int]:
        """Return the sort key by place, for when all acknowledgements tell theirs."""
        begin = self.begin
        assert begin is not None, "said"
        return begin.timestamp, begin.place, begin.offset

    def turn(self) -> int:
        """Return the sort key by order of sending: a server that does not always tell the place keeps that order."""
        return self.handed.ticket


class NumberAssigner:
    """Numbers the acknowledged appends of one stream."""

    def __init__(self, stream: IndexedStream) -> None:
        self._stream = stream
        self._queue: list[_Work] = []

    async def settle(self, pairs: Sequence[tuple[SentAppend, NativeAck]]) -> list[Appended]:
        """Return the positions of appends that the server has acknowledged.

        Retries for `recover_seconds` if the server is lost. Raises UNAVAILABLE if the positions cannot be found out;
        the records are at the server in any case.
        """
        stream = self._stream
        alone = stream.stamped_by_server or stream.index.shared is None
        work = [_Work(handed, ack, fills=alone) for handed, ack in pairs]
        self._queue += work
        for work_item in work:
            stream.under_way.acknowledged(work_item.handed.ticket)
        try:
            placed = not alone and all(work_item.begin is not None for work_item in work)
            # Appends sent before it determine their own timestamps. With several gateways, only those behind a gap
            # wait, and for what stands before them: else gateways could wait for each other.
            if work and not stream.stamped_by_server and not placed:
                with trio.move_on_after(stream.settings.settle_seconds):
                    await stream.under_way.acknowledged_before(work[-1].handed.ticket)
            end_by = trio.current_time() + stream.settings.recover_seconds
            await stream.patiently(partial(self._number_all, work), end_by)
            self._end(work)  # a search below must not wait for these appends
            return [await self._told(work_item, end_by) for work_item in work]
        except OperationFailed as error:
            self._queue = [work_item for work_item in self._queue if work_item not in work]
            reason = error.failure.message
            message = f"the batch was appended to stream {stream.ref}, but its position is unknown: {reason}"
            raise fail(FailureCode.UNAVAILABLE, message) from None
        finally:
            self._end(work)

    def _end(self, work: Sequence[_Work]) -> None:
        for work_item in work:
            self._stream.under_way.end(work_item.handed.ticket)

    async def _number_all(self, work: Sequence[_Work]) -> None:
        while not all(work_item.settled for work_item in work):
            async with self._stream.numbering:
                with suppress(Outrun):
                    await self._settle_queue()
            waiting = [work_item for work_item in work if not work_item.settled and not work_item.fills]
            if waiting:
                await self._wait_for_others(min(waiting, key=_Work.place))

    async def _settle_queue(self) -> None:
        """Number what is in the queue, but nothing behind a gap that another gateway may number.

        What one append may fill, those before it may fill too: else they would be numbered as those of others.
        """
        taken, self._queue = self._queue, []
        draft, unnumbered = self._stream.draft(), Unnumbered(self._stream)
        told = all(work_item.begin is not None for work_item in taken)
        ordered = sorted(taken, key=_Work.place if told else _Work.turn)
        filled = max(
            (work_item.begin.offset for work_item in taken if work_item.fills and work_item.begin is not None),
            default=0,
        )
        done: list[_Work] = []
        left: list[_Work] = []
        try:
            for work_item in ordered:
                begin = work_item.begin
                if not work_item.fills and begin is not None and begin.offset > max(draft.end.offset, filled):
                    left.append(work_item)
                    continue
                await self._number(draft, work_item, unnumbered)
                done.append(work_item)
            if done:
                await self._stream.commit(draft)
        except BaseException:
            self._queue[:0] = taken  # still to be numbered: by another attempt, or by the other tasks
            for work_item in taken:
                work_item.result = None
            raise
        self._queue[:0] = left
        for work_item in done:
            work_item.settled = True
            if work_item.result is not None:
                self._stream.numbered = max(self._stream.numbered, work_item.handed.ticket)

    async def _wait_for_others(self, work_item: _Work) -> None:
        """Wait until what stands before an append is numbered, or until that is for this gateway to do."""
        stream, begin = self._stream, work_item.begin
        assert begin is not None, "such a server tells the place"
        with trio.move_on_after(stream.settings.settle_seconds) as scope:
            await stream.under_way.acknowledged_before(work_item.handed.ticket)
            await stream.numbered_by_others(lambda: work_item.settled or stream.end.offset >= begin.offset)
        if scope.cancelled_caught:
            stream.others.missed(stream.ref)
        work_item.fills = True

    async def _number(self, draft: Draft, work_item: _Work, unnumbered: Unnumbered) -> None:
        begin = work_item.begin
        if begin is None:
            await self._number_by_bodies(draft, work_item, unnumbered)
            return
        if _is_before(begin, draft.end, work_item.ack):
            return
        await self._fill_gap(draft, begin, work_item)
        ack, timestamps = work_item.ack, work_item.handed.timestamps
        if ack.last is not None:
            ms, place = ack.last
            first = Mark(draft.end.seq_num, begin.timestamp, begin.place, 0)
            last = Mark(first.seq_num + ack.count - 1, ms, place, 0)
            draft.number_acknowledged(first, Mark(last.seq_num + 1, *behind(ms, place), 0), _size(work_item))
        else:
            assert ack.end_offset is not None
            draft.stamped = True
            stamps = draft.stamp(timestamps, 0)
            if stamps[0] != stamps[-1]:
                work_item.result = await self._number_by_scan(draft, work_item, ack.end_offset)
                return
            places = draft.place(stamps)
            first = Mark(draft.end.seq_num, stamps[0], places[0], begin.offset)
            last = Mark(first.seq_num + ack.count - 1, stamps[-1], places[-1], begin.offset)
            end = Mark(last.seq_num + 1, *behind(stamps[-1], places[-1]), ack.end_offset)
            draft.number_acknowledged(first, end, _size(work_item))
        work_item.result = _Settled(first, last)

    async def _number_by_scan(self, draft: Draft, work_item: _Work, end_offset: int) -> _Settled:
        """Number an append whose records have different timestamps: it gets marks inside, with offsets from a scan."""
        wanted = deque(work_item.handed.timestamps)
        first: Mark | None = None
        while draft.end.offset < end_offset:
            scanned = await self._stream.scan(draft.end)
            count = records_before(scanned, draft.end._replace(offset=end_offset))
            if not count or count > len(wanted):
                raise fail(FailureCode.OTHER, "the server returns other records than were appended")
            numbered = draft.number(scanned, count, 0, [wanted.popleft() for _ in range(count)])
            first = first or numbered.mark(0)
            last = numbered.mark(count - 1)
        assert first is not None
        return _Settled(first, last)

    async def _number_by_bodies(self, draft: Draft, work_item: _Work, unnumbered: Unnumbered) -> None:
        """Number an append whose place the server did not tell: it is the next run of records with the same bodies.

        The records before that run are those of others. If there is no such run, the append's records have numbers by
        now, and are searched afterwards.
        """
        wanted, timestamps = self._comparable(work_item.handed.append.bodies), work_item.handed.timestamps
        limit = min(self._stream.clock(), *timestamps[:1] or [U64_MAX])
        while True:
            records = await unnumbered.behind(draft, len(wanted))
            at = index_of(wanted, self._comparable(records.bodies))
            others = len(records.bodies) - len(wanted) + 1 if at is None else at
            if others <= 0 and at is None:
                return
            draft.number(records, others, limit)
            if at is not None:
                break
        numbered = draft.number(without_records(records, at), len(wanted), 0, timestamps or None)
        work_item.result = _Settled(numbered.mark(0), numbered.mark(len(wanted) - 1))

    async def _fill_gap(self, draft: Draft, begin: Mark, work_item: _Work) -> None:
        """Number the records that others appended before `begin`."""
        by_offset = work_item.ack.last is None
        if not by_offset and (self._stream.settings.exclusive or begin.record_id == draft.end.record_id):
            return
        limit = work_item.handed.timestamps[0] if work_item.handed.timestamps else self._stream.clock()
        most = 1000 if by_offset else 1
        while not by_offset or draft.end.offset < begin.offset:
            try:
                scanned = await self._stream.scan(draft.end, most)
            except OperationFailed as error:
                draft.end = draft.end._replace(offset=min(truncated_at(error), begin.offset))
                continue
            count = records_before(scanned, begin)
            draft.number(scanned, count, min(self._stream.clock(), limit))
            if count < len(scanned.bodies) or not count:
                break
            most = 1000
        if by_offset:
            draft.end = draft.end._replace(offset=begin.offset)

    # ---- those that were numbered before -------------------------------------------------------------------------

    async def _told(self, work_item: _Work, end_by: float) -> Appended:
        settled = work_item.result
        if settled is None:
            settled = await self._stream.patiently(partial(self._look_up, work_item), end_by)
        first, last = settled
        ms, place = last.timestamp, last.place
        return Appended(
            StreamPosition(first.seq_num, first.timestamp),
            StreamPosition(last.seq_num + 1, ms),
            self._stream.tail,
            RecordId(ms, place),
            work_item.ack.end_offset,
        )

    async def _look_up(self, work_item: _Work) -> _Settled:
        stream, begin = self._stream, work_item.begin
        if begin is None:
            return await self._search(work_item.handed)
        seq_num = stream.recent.seq_num_of(begin)
        first = None if seq_num is None else stream.recent.mark_of(seq_num)
        if first is None:
            by_id = work_item.ack.last is not None
            start = FromRecordId(begin.record_id) if by_id else FromByteOffset(begin.offset)
            first = (await cursor_at(stream, start)).at
            if (first.record_id != begin.record_id) if by_id else (first.offset != begin.offset):
                raise _trimmed()
        number = first.seq_num + work_item.ack.count - 1
        if work_item.ack.last is not None:
            return _Settled(first, Mark(number, *work_item.ack.last, 0))
        last = stream.recent.mark_of(number) or (await cursor_at(stream, FromSeqNum(number))).at
        if last.seq_num != number:
            raise _trimmed()
        return _Settled(first, last)

    async def _search(self, handed: SentAppend) -> _Settled:
        """Find an append whose place the server did not tell: the first run with its bodies behind `handed.after`."""
        stream, wanted = self._stream, self._comparable(handed.append.bodies)
        await stream.catch_up()
        cursor = await cursor_at(stream, FromSeqNum(handed.after.seq_num))
        bodies: deque[bytes] = deque(maxlen=len(wanted))
        marks: deque[Mark] = deque(maxlen=len(wanted))
        while len(numbered := await read(stream, cursor)):
            for index in range(len(numbered)):
                bodies.append(stream.native.comparable(stream.ref, numbered.records.bodies[index]))
                marks.append(numbered.mark(index))
                if bodies[0] == wanted[0] and len(bodies) == len(wanted) and list(bodies) == wanted:
                    return _Settled(marks[0], marks[-1])
            cursor = cursor_in(stream, numbered, len(numbered))
        raise fail(FailureCode.OTHER, "its records are not there")

    def _comparable(self, bodies: list[bytes]) -> list[bytes]:
        return [self._stream.native.comparable(self._stream.ref, body) for body in bodies]


def _trimmed() -> OperationFailed:
    return fail(FailureCode.OTHER, "its records are not there any more")


def _size(work_item: _Work) -> int:
    return sum(map(len, work_item.handed.append.bodies))


def _is_before(begin: Mark, end: Mark, ack: NativeAck) -> bool:
    return begin.record_id < end.record_id if ack.last is not None else begin.offset < end.offset
