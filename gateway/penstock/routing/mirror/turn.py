"""One turn of one stream: copy and compare it from its saved state until it has caught up and is idle.

It has two tasks: one reads the primary and appends to the secondary, the other reads back from the secondary and
compares. A few batches may be queued between them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import msgspec
import trio
from msgspec.structs import replace

from penstock.core.back import Following, ReadSession
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import Capability, FromSeqNum, Read
from penstock.model.records import Record, RecordBatch, metered_size
from penstock.routing.mirror.comparison import compare_records
from penstock.routing.mirror.settings import MirrorSettings, OnRefused
from penstock.routing.mirror.sides import NOT_THERE, MirrorReader, Sides, open_reader
from penstock.routing.mirror.state import MirrorDifference, MirroredStream

__all__ = ["MOVED", "Turn"]

_GATHER_SECONDS: Final = 0.1
"""Longest time that records wait for more to be appended with them: the primary may be lost meanwhile."""
_BETWEEN: Final = 2
_BATCHES_OF_A_TURN: Final = 64
"""Batches of a stream that are copied in one turn while other streams wait."""
_SAVE_SECONDS: Final = 1.0
"""Interval at which the state is saved during a turn; records compared since are compared again after a crash."""
MOVED: Final = NOT_THERE | {FailureCode.SEQ_NUM_MISMATCH}
"""Failures of a turn whose cause is that the secondary's stream has changed since it began; the next turn looks at it
again."""
_REFUSALS: Final = frozenset({FailureCode.NOT_REPRESENTABLE, FailureCode.INVALID, FailureCode.LIMIT_EXCEEDED})


class _Piece(msgspec.Struct, frozen=True):
    """Records that are on the secondary now, the first one at `secondary_seq`."""

    secondary_seq: int
    records: list[Record]


class _Gathered(NamedTuple):
    """Consecutive batches. `followed`: the read has then caught up. `failure`: the read has then failed."""

    batches: list[RecordBatch]
    followed: bool
    failure: OperationFailed | None


class Turn:
    """A turn of a stream. `save` writes a state to the table; `compared` is called with the state on all progress."""

    def __init__(
        self,
        sides: Sides,
        state: MirroredStream,
        settings: MirrorSettings,
        save: Callable[[MirroredStream], Awaitable[None]],
        compared: Callable[[MirroredStream], None],
    ) -> None:
        self.state = state
        self.caught_up = False
        """True once all of the primary's records are copied and compared."""
        self.gone = False
        """True if the primary has no such stream."""
        self._sides = sides
        self._settings = settings
        self._save = save
        self._compared = compared
        self._hurry = False
        self._idle: trio.CancelScope | None = None
        self._secondary_tail = 0
        self._saved_at = -math.inf

    def make_room(self) -> None:
        """End the turn when the stream has caught up, or after some batches, since others wait."""
        self._hurry = True
        if self._idle is not None:
            self._idle.cancel()

    async def run(self) -> None:
        """Copy and compare until the turn ends, and save `state`.

        Raises OperationFailed if a back fails; the state is saved in any case. A failure that a retry would not mend
        is not raised: it becomes the reason that the stream has `stopped`.
        """
        try:
            if not await self._begin():
                return
            failed: OperationFailed | None = None
            try:
                await self._copy_and_compare()
            except* OperationFailed as group:
                failed = _first(group)
            if failed is not None:
                raise failed
            await self._look_at_the_end()
        except OperationFailed as error:
            if error.failure.code in NOT_THERE and await self._sides.primary_tail() is None:
                self.gone = True
                return
            if error.failure.retryable or error.failure.code in MOVED:
                raise
            self.state = replace(self.state, stopped=error.failure.message)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _SAVE_SECONDS):
                await self._save(self.state)

    # ---- positions of both sides ---------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Find out where both sides stand. Return whether the primary has the stream."""
        primary_tail = await self._sides.primary_tail()
        if primary_tail is None:
            self.gone = True
            return False
        self._secondary_tail = await self._sides.secondary_tail()
        state = replace(self.state, stopped="", equal=False)
        began_anew = self._secondary_tail == 0 and state.compared > state.shift
        if began_anew or primary_tail < state.compared or await self._others(state):
            differences = {} if began_anew else state.differences
            state = replace(
                MirroredStream.fresh(state.primary, state.secondary, state.parts),
                by_bytes=state.by_bytes,
                restarts=state.restarts + 1,
                differences=differences,
                first_difference=state.first_difference if differences else None,
            )
        copied = self._secondary_tail + state.shift
        if copied < state.compared:
            lost = MirrorDifference("missing", copied, self._secondary_tail)
            state = state.with_difference(lost, state.compared - copied).rehashed_from(copied)
        self.state = _with_extra(state, primary_tail, self._secondary_tail)
        return True

    async def _others(self, state: MirroredStream) -> bool:
        """Return whether the stream of either side was replaced by another of the same name, by its last compared
        record: the length alone does not show that."""
        sides, last = self._sides, state.compared - 1
        there = last - state.shift
        if state.primary_last and await sides.is_another(sides.primary, last, state.primary_last, state.parts):
            return True
        if not state.secondary_last or there >= self._secondary_tail:
            return False
        return await sides.is_another(sides.secondary, there, state.secondary_last, state.parts)

    async def _look_at_the_end(self) -> None:
        """Check whether both sides end where the comparison stands, and update the state."""
        primary_tail, secondary_tail = await self._sides.primary_tail(), await self._sides.secondary_tail()
        if primary_tail is None:
            self.gone = True
            return
        self.state = _with_extra(self.state, primary_tail, secondary_tail)
        state = self.state
        equal = primary_tail == state.compared == secondary_tail + state.shift
        if equal and state.by_bytes:
            state = replace(state, byte_shift=await self._sides.byte_shift())
        if equal:
            await self._sides.copy_seal(state.by_bytes)
        self.state = replace(state, equal=equal)
        self.caught_up = self.caught_up and primary_tail == state.compared

    # ---- copying -------------------------------------------------------------------------------------------------

    async def _copy_and_compare(self) -> None:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[_Piece | trio.Event](_BETWEEN)
            nursery.start_soon(self._compare, receive)
            async with send:
                await self._copy(send)

    async def _copy(self, send: trio.MemorySendChannel[_Piece | trio.Event]) -> None:
        at = self.state.compared
        read = Read(self._sides.stream, FromSeqNum(at), wait=self._settings.idle_seconds, create_if_missing=False)
        batches = 0
        async with self._sides.primary.read_session(read) as session:
            while not (self._hurry and (self.caught_up or batches >= _BATCHES_OF_A_TURN)):
                event = await self._next(session)
                if event is None:
                    return
                if isinstance(event, Following):
                    self.caught_up = True
                    continue
                gathered = await _with_more(event, session)
                for records in _appendable(gathered.batches):
                    if records[0].seq_num > at:
                        await self._pass_over(at, records[0].seq_num, send)
                    if not await self._take(records, send):
                        return
                    at = records[-1].seq_num + 1
                if gathered.failure is not None:
                    await _settled(send)  # otherwise the records read before it would never be compared
                    raise gathered.failure
                batches += 1
                self.caught_up = gathered.followed or not session.behind()

    async def _next(self, session: ReadSession) -> RecordBatch | Following | None:
        """Return the next event of the read, or None if the stream is idle or others wait."""
        if not self.caught_up:
            return await session.next()
        with trio.CancelScope() as self._idle:
            return await session.next()
        return None

    async def _take(self, records: list[Record], send: trio.MemorySendChannel[_Piece | trio.Event]) -> bool:
        """Append records to the secondary unless they are there already, and hand them to the comparison. Return False
        if the copy stops here."""
        there = max(0, min(self._secondary_tail + self.state.shift - records[0].seq_num, len(records)))
        if there:
            await send.send(_Piece(records[0].seq_num - self.state.shift, records[:there]))
            records = records[there:]
        return not records or await self._append(records, send)

    async def _append(self, records: list[Record], send: trio.MemorySendChannel[_Piece | trio.Event]) -> bool:
        """Append records to the secondary, bisecting them to isolate a refused one. Return False if the copy stops
        here."""
        try:
            first = self._secondary_tail
            self._secondary_tail = await self._sides.append(records, first)
        except OperationFailed as error:
            if error.failure.code not in _REFUSALS:
                raise
            if len(records) == 1:
                return await self._refused(records[0], error.failure.message, send)
            half = len(records) // 2
            return await self._append(records[:half], send) and await self._append(records[half:], send)
        await send.send(_Piece(first, records))
        return True

    async def _refused(self, record: Record, message: str, send: trio.MemorySendChannel[_Piece | trio.Event]) -> bool:
        await _settled(send)
        refused = MirrorDifference("refused", record.seq_num, self._secondary_tail, message)
        if self._settings.on_refused is OnRefused.STOP:
            stopped = f"the secondary refuses record {record.seq_num}: {message}"
            self.state = replace(_with_refused(self.state, refused), stopped=stopped)
            return False
        state = _with_refused(self.state, refused)
        self.state = replace(state.passed_over(record.seq_num + 1), shift=state.shift + 1)
        await self._save(self.state)  # before any later record is appended
        return True

    async def _pass_over(self, at: int, to: int, send: trio.MemorySendChannel[_Piece | trio.Event]) -> None:
        """Pass over the primary's records from `at` up to `to`, which were trimmed before they were compared."""
        await _settled(send)
        there = self._secondary_tail + self.state.shift
        state = replace(self.state.passed_over(to), uncompared=self.state.uncompared + to - at)
        state = state if state.hashed else state.rehashed_from(to)
        self.state = replace(state, shift=state.shift + max(to - there, 0))
        await self._save(self.state)

    # ---- comparing -----------------------------------------------------------------------------------------------

    async def _compare(self, receive: trio.MemoryReceiveChannel[_Piece | trio.Event]) -> None:
        patience = self._settings.verify_seconds
        async with receive, open_reader(self._sides.secondary, self._sides.stream, patience) as reader:
            async for piece in receive:
                if isinstance(piece, trio.Event):
                    piece.set()
                else:
                    await self._compare_piece(piece, reader)
                if trio.current_time() - self._saved_at >= _SAVE_SECONDS:
                    self._saved_at = trio.current_time()
                    await self._save(self.state)

    async def _compare_piece(self, piece: _Piece, reader: MirrorReader) -> None:
        at, rest = piece.secondary_seq, piece.records
        while rest:
            copies = await reader.take(at, len(rest))
            trimmed = min(copies[0].seq_num - at, len(rest))
            if trimmed:  # on the secondary alone
                compared = rest[trimmed - 1].seq_num + 1
                self.state = replace(self.state.passed_over(compared), uncompared=self.state.uncompared + trimmed)
                at, rest = at + trimmed, rest[trimmed:]
                continue
            given_timestamps = self._sides.both(Capability.TIMESTAMPS)
            self.state = compare_records(self.state, rest[: len(copies)], copies, given_timestamps=given_timestamps)
            self._compared(self.state)
            at, rest = at + len(copies), rest[len(copies) :]


async def _settled(send: trio.MemorySendChannel[_Piece | trio.Event]) -> None:
    """Wait until all records that were handed over are compared."""
    done = trio.Event()
    await send.send(done)
    await done.wait()


def _with_extra(state: MirroredStream, primary_tail: int, secondary_tail: int) -> MirroredStream:
    """Count the records that the secondary has beyond the primary's end, each once."""
    first = max(primary_tail - state.shift, state.extra_until)
    if secondary_tail <= first:
        return state
    extra = MirrorDifference("extra", first + state.shift, first)
    return replace(state.with_difference(extra, secondary_tail - first), extra_until=secondary_tail)


def _with_refused(state: MirroredStream, refused: MirrorDifference) -> MirroredStream:
    """Count a refused record, once however often it is tried."""
    if refused.primary_seq_num < state.refused_until:
        return state
    return replace(state.with_difference(refused), refused_until=refused.primary_seq_num + 1)


async def _with_more(first: RecordBatch, session: ReadSession) -> _Gathered:
    """Gather the batches that are available already, for one append. Otherwise clients that append record by record
    would outrun the mirror, whose appends wait for one another."""
    batches = [first]
    records, size = first.count, first.metered
    with trio.move_on_after(_GATHER_SECONDS):
        while records < MAX_BATCH_RECORDS and size < MAX_BATCH_BYTES and session.behind():
            try:
                event = await session.next()
            except OperationFailed as error:
                return _Gathered(batches, False, error)
            if not isinstance(event, RecordBatch):
                return _Gathered(batches, event is not None, None)
            batches.append(event)
            records += event.count
            size += event.metered
    return _Gathered(batches, False, None)


def _appendable(batches: list[RecordBatch]) -> Iterator[list[Record]]:
    """Yield the records of consecutive batches, in portions without gaps that fit one append."""
    portion: list[Record] = []
    size = 0
    for record in chain.from_iterable(batch.records() for batch in batches):
        of_record = metered_size((record.body,), {0: tuple(record.headers)} if record.headers else {})
        full = len(portion) == MAX_BATCH_RECORDS or size + of_record > MAX_BATCH_BYTES
        if portion and (full or record.seq_num != portion[-1].seq_num + 1):
            yield portion
            portion, size = [], 0
        portion.append(record)
        size += of_record
    yield portion


def _first(group: BaseExceptionGroup[OperationFailed]) -> OperationFailed:
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, OperationFailed)
    return leaf
