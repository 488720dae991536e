"""One stream of a server that does not number its records: where it ends, and its records numbered as they are found.

Records get their numbers either because an append is acknowledged or because a scan finds them, whichever comes first.
Both happen under one lock, and the index has it on disk before anybody is told.
"""

from __future__ import annotations

import trio

from penstock.backs.indexed.catching_up import CatchingUp
from penstock.backs.indexed.numbered import Draft, Numbered, from_marks, records_before, without
from penstock.backs.indexed.recent import Recent, RecentRoom
from penstock.backs.indexed.settings import IndexedSettings
from penstock.backs.indexed.under_way import UnderWay
from penstock.backs.native import Native, Scanned
from penstock.clock import Clock
from penstock.positions.columns import Sought
from penstock.positions.index import PositionIndex
from penstock.positions.marks import Mark
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import S2_MAX_BATCH_RECORDS
from penstock_codecs.model import StreamPosition, StreamRef
from penstock_codecs.operations import Capability, FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp

__all__ = ["StreamState", "is_beyond"]


def is_beyond(start: Sought, end: Mark) -> bool:
    """Whether no record before `end` is at or after `start`."""
    match start:
        case FromSeqNum(seq_num):
            return seq_num >= end.seq_num
        case FromTimestamp(timestamp):
            return end.seq_num == 0 or timestamp > end.timestamp
        case FromRecordId(record_id):
            return record_id >= end.record_id
        case FromByteOffset(offset):
            return offset >= end.offset


class StreamState:
    """What is known of one stream. `numbering` is held by whoever gives numbers; `gone`: it was deleted."""

    def __init__(
        self,
        ref: StreamRef,
        native: Native,
        index: PositionIndex,
        settings: IndexedSettings,
        clock: Clock,
        room: RecentRoom | None = None,
    ) -> None:
        self.ref = ref
        self.native = native
        self.index = index
        self.settings = settings
        self.clock = clock
        self.numbering = trio.Lock()
        self.under_way = UnderWay()
        self.recent = Recent(settings.recent_bytes, room)
        self.gone = False
        self.has_offsets: bool | None = None  # None: no scan has told yet
        self._end = index.end
        self._size = 0  # bytes of bodies since the last mark
        self.numbered = -1  # the newest ticket of an append that has its numbers
        self._catching_up = CatchingUp(self)

    @property
    def stamped_by_server(self) -> bool:
        """Whether the server has timestamps and identifiers of its own."""
        return Capability.RECORD_IDS in self.native.capabilities

    @property
    def end(self) -> Mark:
        """Behind the last record that has a number."""
        return max(self._end, self.index.end)

    @property
    def tail(self) -> StreamPosition:
        """The same for clients."""
        end = self.end
        return StreamPosition(end.seq_num, end.timestamp)

    def check(self) -> None:
        """Raises STREAM_NOT_FOUND where it was deleted meanwhile."""
        if self.gone:
            raise unknown_stream(self.ref)

    # ---- giving numbers; `numbering` is held ---------------------------------------------------------------------

    def draft(self) -> Draft:
        """What comes next, to be committed."""
        last = self.index.last_mark
        if last is not None and last < self.index.first:
            last = None
        return Draft(self.end, last, self._size)

    async def commit(self, draft: Draft) -> None:
        """Make it durable. An exclusive stream's records can be counted again, so only its marks are written."""
        self.check()
        if draft.marks or draft.stamped or not self.settings.exclusive:
            await self.index.add(draft.end, *draft.marks)
        self._end = max(self._end, draft.end)
        self._size = draft.size

    # ---- finding records -----------------------------------------------------------------------------------------

    async def scan(self, start: Mark, max_records: int = S2_MAX_BATCH_RECORDS, wait: float = 0.0) -> Scanned:
        """Records from `start` on. Where the server says that there is no such stream, what was known of it is
        forgotten. Raises OperationFailed."""
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

    async def knows_offsets(self) -> bool:
        """Whether the server tells where bytes are; asks it where no scan has told yet. Raises OperationFailed."""
        if self.has_offsets is None:
            await self.catch_up()
        return bool(self.has_offsets)

    async def forget(self) -> None:
        """The stream is not there any more."""
        async with self.numbering:
            if not self.gone:
                await self.index.forget()
                self.gone = True
                self.recent.clear()

    async def scan_end(self, start: Mark, wait: float = 0.0) -> tuple[Mark, Scanned]:
        """Records from the end, or a place before it, on; what somebody else truncated there is passed. Also where it
        began to read."""
        while True:
            try:
                return start, await self.scan(start, wait=wait)
            except OperationFailed as error:
                offset = error.failure.details.get("offset")
                if error.failure.code is not FailureCode.OFFSET_TRUNCATED or not isinstance(offset, int):
                    raise
            async with self.numbering:
                if self.end.offset < offset:
                    await self.index.trimmed(self.end._replace(offset=offset))
                start = self.end

    async def extend(self, start: Mark, scanned: Scanned) -> Numbered:
        """Number what a scan from `start` found, which was the stream's end, or lies before it; some of it may have
        numbers by now. Gives all of it, or only what is new where records between went before they were counted."""
        if scanned.timestamps is None:
            await self._wait_for_own(scanned)
        async with self.numbering:
            self.check()
            end = self.end
            count = len(scanned.bodies)
            known = records_before(scanned, end)
            draft = self.draft()
            new = without(scanned, known)
            numbered = draft.number(new, count - known, self.clock())
            if known < count:
                await self.commit(draft)
        if not known:
            return numbered
        if end.seq_num - start.seq_num < known or (known < count and end.seq_num - start.seq_num != known):
            return numbered
        return await self.recall(start.seq_num, scanned, known, numbered)

    async def recall(self, first: int, scanned: Scanned, known: int, more: Numbered | None = None) -> Numbered:
        """Records with numbers from `first` on, of which the first `known` had them before, and `more` behind them."""
        if scanned.timestamps is not None and scanned.places is not None:
            count = known + (0 if more is None else len(more))
            return Numbered(first, scanned, scanned.timestamps[:count], scanned.places[:count])
        timestamps, places = from_marks(await self.index.between(first, first + known), first, known)
        if more is not None:
            timestamps += more.timestamps
            places += more.places
        return Numbered(first, scanned, timestamps, places)

    async def _wait_for_own(self, scanned: Scanned) -> None:
        """Records that nobody numbered yet may be those of appends under way, which say what their timestamps are."""
        if records_before(scanned, self.end) < len(scanned.bodies):
            with trio.move_on_after(self.settings.settle_seconds):
                await self.under_way.settled()

    async def catch_up(self, until: Sought | None = None) -> None:
        """Number what there is, up to the tail as it was when this was called, or until something at or after `until`
        has a number. Who asks while it happens waits for the next time, and shares it. Raises OperationFailed."""
        await self._catching_up.until(until)

    def is_sought(self, until: Sought | None) -> bool:
        """Whether nothing at or after `until` has a number yet."""
        return until is None or is_beyond(until, self.end)


def unknown_stream(ref: StreamRef) -> OperationFailed:
    """It is not there."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist")
