"""The state of one stream of a server that does not number its records.

`IndexedStream` has the end of the numbered records, and numbers more. Records get their numbers when an append is
acknowledged or when a scan finds them, whichever comes first. Both happen under one lock, and the numbers are durable
in the index before any client sees them.

`CatchingUp` numbers all records up to the tail, and ends even if clients append all the time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import trio

from penstock.backends.positions.columns import Sought
from penstock.backends.positions.index import Outrun, PositionIndex
from penstock.backends.sequence_numbering.in_flight import AppendsInFlight
from penstock.backends.sequence_numbering.numbered import (
    Draft,
    NumberedRecords,
    from_marks,
    records_before,
    without_records,
)
from penstock.backends.sequence_numbering.others import Announcements
from penstock.backends.sequence_numbering.recent import RecentBatches, RecentRoom
from penstock.backends.sequence_numbering.settings import IndexedSettings
from penstock.core.clock import Clock
from penstock.core.marks import Mark
from penstock.core.native import Native, Scanned
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_RECORDS
from penstock.model.operations import Capability, FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp
from penstock.model.records import StreamPosition, StreamRef
from penstock.net.retries import RetryPolicy, retrying

__all__ = ["CatchingUp", "IndexedStream", "is_beyond"]

_MOST_FEW: Final = 32
"""Number of consecutive scans with few records after which the tail at the start must have been passed. A
server may not say where the tail is, and return less than there is, but none is known that returns so little."""
T = TypeVar("T")
_ENDLESS: Final = 1_000_000


class CatchingUp:
    """Numbers the records of one stream up to its tail, for all tasks that ask."""

    def __init__(self, stream: IndexedStream) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self._begun = 0  # number of scans begun
        self._caught_up = 0  # the last scan that reached the tail
        self._failed: tuple[int, Failure] | None = None  # the last scan that failed

    async def until(self, sought: Sought | None) -> None:
        """Catch up as `IndexedStream.catch_up` does.

        Ends when a scan reaches the tail, or passes the tail that there was at the start: then an append that was sent
        after the start has a number, or the numbered bytes reach the length that the stream had. All tasks that wait
        for a scan fail with it, so that none waits for more than two scans.
        """
        stream, asked = self._stream, self._begun
        newest = stream.under_way.newest
        length: int | None = None
        few = 0
        while self._caught_up <= asked and stream.numbered <= newest and stream.is_sought(sought):
            if length is not None and stream.end.offset >= length:
                return
            async with self._lock:
                if self._caught_up > asked:
                    return
                if self._failed is not None and self._failed[0] > asked:
                    raise OperationFailed(self._failed[1])
                self._begun += 1
                begun = self._begun
                try:
                    scanned = await self._number_more()
                except OperationFailed as error:
                    self._failed = begun, error.failure
                    raise
                if scanned.at_tail or not scanned.bodies:
                    self._caught_up = begun
                    return
            few = few + 1 if scanned.few else 0
            if few >= _MOST_FEW:
                return
            if length is None and stream.has_offsets:
                length = (await stream.native.bounds(stream.ref)).end_offset

    async def _number_more(self) -> Scanned:
        """Scan once from the end of the numbered records, and number what is found."""
        stream = self._stream
        start, scanned = await stream.scan_end(stream.end)
        if scanned.bodies:
            numbered = await stream.extend(start, scanned)
            if len(numbered):
                stream.recent.add(numbered, stream.tail)
        return scanned


def is_beyond(start: Sought, end: Mark) -> bool:
    """Return whether no record before `end` is at or after `start`."""
    match start:
        case FromSeqNum(seq_num):
            return seq_num >= end.seq_num
        case FromTimestamp(timestamp):
            return end.seq_num == 0 or timestamp > end.timestamp
        case FromRecordId(record_id):
            return record_id >= end.record_id
        case FromByteOffset(offset):
            return offset >= end.offset


class IndexedStream:
    """The state of one stream. `numbering`: the lock for giving numbers. `others`: appends of other gateways."""

    def __init__(
        self,
        ref: StreamRef,
        native: Native,
        index: PositionIndex,
        settings: IndexedSettings,
        clock: Clock,
        others: Announcements,
        room: RecentRoom | None = None,
    ) -> None:
        self.ref = ref
        self.native = native
        self.index = index
        self.settings = settings
        self.clock = clock
        self.others = others
        self.numbering = trio.Lock()
        self.under_way = AppendsInFlight()
        self.recent = RecentBatches(settings.recent_bytes, room)
        self._gone = False
        self.has_offsets: bool | None = None  # None before the first scan
        self._end = index.end
        self._size = 0  # bytes of bodies since the last mark
        self.numbered = -1  # the newest ticket of an append whose records are numbered
        self._catching_up = CatchingUp(self)
        self._patience = RetryPolicy(attempts=_ENDLESS, total_seconds=settings.recover_seconds)

    @property
    def stamped_by_server(self) -> bool:
        """True if the server has timestamps and identifiers of its own."""
        return Capability.RECORD_IDS in self.native.capabilities

    @property
    def gone(self) -> bool:
        """True once the stream was deleted."""
        return self._gone or self.index.gone

    @property
    def end(self) -> Mark:
        """The end of the last record that has a number."""
        return max(self._end, self.index.end)

    @property
    def tail(self) -> StreamPosition:
        """The same position as clients see it."""
        end = self.end
        return StreamPosition(end.seq_num, end.timestamp)

    def check(self) -> None:
        """Raise STREAM_NOT_FOUND if the stream was deleted."""
        if self.gone:
            raise unknown_stream(self.ref)

    # ---- giving numbers; `numbering` is held ---------------------------------------------------------------------

    def draft(self) -> Draft:
        """Return a draft for numbering the next records, to be committed."""
        last = self.index.last_mark
        if last is not None and last < self.index.first:
            last = None
        size, end = self._size, self.end
        if self.index.shared is not None and last is not None and self.native.has_byte_offsets:
            size = end.offset - last.offset  # other gateways have numbered some of that
        return Draft(end, last, size, self.index.version)

    async def commit(self, draft: Draft) -> None:
        """Make a draft durable. For an exclusive stream, only marks and timestamps given here need to be written: its
        records can be counted again. Raises Outrun if another gateway has changed the index since."""
        self.check()
        if draft.marks or draft.stamped or not self.settings.exclusive:
            await self.index.add(draft.end, *draft.marks, version=draft.version)
        self._end = max(self._end, draft.end)
        self._size = draft.size

    # ---- finding records -----------------------------------------------------------------------------------------

    async def scan(self, start: Mark, max_records: int = MAX_BATCH_RECORDS, wait: float = 0.0) -> Scanned:
        """Return records from `start` on. Forgets the stream if the server does not have it. Raises OperationFailed."""
        self.check()
        try:
            scanned = await self.native.scan(
                self.ref, start, max_records=max_records, max_bytes=self.settings.scan_bytes, wait=wait
            )
            self.has_offsets = scanned.offsets is not None
            return scanned
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                await self.forget()
            offset = error.failure.details.get("offset")
            if (
                error.failure.code is FailureCode.OFFSET_TRUNCATED
                and isinstance(offset, int)
                and offset <= start.offset
            ):
                raise fail(FailureCode.OTHER, f"the server contradicts itself: {error.failure.message}") from None
            raise

    async def forget(self) -> None:
        """Delete all state of a stream that is gone. The caller may hold `numbering`."""
        if self.numbering.statistics().owner is trio.lowlevel.current_task():
            await self._forget()
            return
        async with self.numbering:
            await self._forget()

    async def _forget(self) -> None:
        if not self._gone:
            await self.index.forget()
            self._gone = True
            self.recent.clear()

    async def scan_end(self, start: Mark, wait: float = 0.0) -> tuple[Mark, Scanned]:
        """Return records from `start` on, the end or a place before it, together with the place where they begin.

        The place is the end of the numbered records, perhaps moved, if `start` was truncated by another client.
        """
        while True:
            try:
                return start, await self.scan(start, wait=wait)
            except OperationFailed as error:
                offset = error.failure.details.get("offset")
                if error.failure.code is not FailureCode.OFFSET_TRUNCATED or not isinstance(offset, int):
                    raise
            async with self.numbering:
                version = self.index.version
                if self.end.offset < offset:
                    with suppress(Outrun):
                        await self.index.trimmed(self.end._replace(offset=offset), version)
                start = self.end

    async def extend(self, start: Mark, scanned: Scanned) -> NumberedRecords:
        """Number the records of a scan from `start`, which was the stream's end or lies before it.

        Some of them may have numbers by now. Returns all of them, or only the new ones if records between were trimmed
        before they were counted.
        """
        if scanned.timestamps is None:
            await self._wait_for_appends(scanned)
        else:
            await self.index.refresh()  # what was trimmed before the scan, since such a server does not tell
        async with self.numbering:
            while True:
                self.check()
                end = self.end
                count = len(scanned.bodies)
                known = records_before(scanned, end)
                draft = self.draft()
                new = without_records(scanned, known)
                numbered = draft.number(new, count - known, self.clock())
                if known == count:
                    break
                with suppress(Outrun):
                    await self.commit(draft)
                    break
        if not known:
            return numbered
        if self.index.first.seq_num > start.seq_num:
            return numbered
        if end.seq_num - start.seq_num < known or (known < count and end.seq_num - start.seq_num != known):
            return numbered
        return await self.recall(start.seq_num, scanned, known, numbered)

    async def recall(
        self, first: int, scanned: Scanned, known: int, more: NumberedRecords | None = None
    ) -> NumberedRecords:
        """Return the records of a scan as numbered from `first` on: `known` that were numbered before, then `more`."""
        if scanned.timestamps is not None and scanned.places is not None:
            count = known + (0 if more is None else len(more))
            return NumberedRecords(first, scanned, scanned.timestamps[:count], scanned.places[:count])
        timestamps, places = from_marks(await self.index.between(first, first + known), first, known)
        if more is not None:
            timestamps += more.timestamps
            places += more.places
        return NumberedRecords(first, scanned, timestamps, places)

    async def _wait_for_appends(self, scanned: Scanned) -> None:
        """Wait until appends in flight have ended, up to `settle_seconds`, if a scan has unnumbered records.

        The records may be those of such appends, which determine their timestamps.
        """
        if self._has_all(scanned):
            return
        with trio.move_on_after(self.settings.settle_seconds) as scope:
            await self.under_way.settled()
            await self.numbered_by_others(lambda: self._has_all(scanned))
        if scope.cancelled_caught:
            self.others.missed(self.ref)

    def _has_all(self, scanned: Scanned) -> bool:
        return records_before(scanned, self.end) == len(scanned.bodies)

    async def numbered_by_others(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`, as long as other gateways may have appends in flight. Raises OperationFailed."""
        shared = self.index.shared
        if shared is None:
            return
        await self.index.refresh()
        while not reached() and self.others.expected(self.ref, self.settings.settle_seconds):
            self.check()
            await shared.news()
            if not shared.loaded:  # it is read again, and has not all rows of other gateways
                await self.index.refresh()

    async def patiently(self, attempt: Callable[[], Awaitable[T]], end_by: float = math.inf) -> T:
        """Return the result of `attempt`, for a client that has begun to read or whose append was acknowledged.

        Retries for `recover_seconds` if the server is lost, even while its circuit is open, and until
        `end_by` at most. Raises the last failure.
        """
        return await retrying(attempt, self._patience, idempotent=True, patient=True, end_by=end_by)

    async def catch_up(self, until: Sought | None = None) -> None:
        """Number all records up to the present tail, or until a record at or after `until` has a number.

        Callers during a scan wait for the next one and share it. Raises OperationFailed.
        """
        await self._catching_up.until(until)

    def is_sought(self, until: Sought | None) -> bool:
        """Return whether no record at or after `until` has a number yet; True if it is None."""
        return until is None or is_beyond(until, self.end)


def unknown_stream(ref: StreamRef) -> OperationFailed:
    """Return the error for a stream that does not exist."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist")
