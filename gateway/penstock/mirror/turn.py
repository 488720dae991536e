"""One turn of one stream: it is copied and compared from where it stands, until it has caught up and is idle.

Two tasks: one reads the primary and appends to the secondary, the other reads back from the secondary and compares. A
few batches may be between them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import trio
from msgspec.structs import replace

from penstock.backs.base import Following, ReadSession
from penstock.mirror.comparison import compare
from penstock.mirror.settings import MirrorSettings, OnRefused
from penstock.mirror.sides import NOT_THERE, Reader, Sides, reading
from penstock.mirror.state import Difference, StreamState
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.limits import MIB
from penstock_codecs.model import Record, RecordBatch, metered_size
from penstock_codecs.operations import FromSeqNum, Read

__all__ = ["MOVED", "Turn"]

_MOST_RECORDS: Final = 1000
_MOST_BYTES: Final = 1 * MIB
"""Of one append: what S2 takes (S2 fact sheet, 5.1)."""
_GATHER_SECONDS: Final = 0.1
"""Records that were read do not wait longer for more to go with them: their server may be lost meanwhile."""
_BETWEEN: Final = 2
_BATCHES_OF_A_TURN: Final = 64
"""So many batches of a stream are copied while others wait; then it is their turn."""
_SAVE_SECONDS: Final = 1.0
"""How often the state is written down while a turn goes on; what was compared since is compared again after a crash."""
MOVED: Final = NOT_THERE | {FailureCode.SEQ_NUM_MISMATCH}
"""Failures of a turn that found the secondary's stream other than it was when it began: the next one begins there."""
_REFUSALS: Final = frozenset({FailureCode.NOT_REPRESENTABLE, FailureCode.INVALID, FailureCode.LIMIT_EXCEEDED})


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records that are on the secondary now, from this number of its own on."""

    secondary_seq: int
    records: list[Record]


class _Gathered(NamedTuple):
    """Consecutive batches; whether the read has then caught up, or why it failed."""

    batches: list[RecordBatch]
    followed: bool
    failure: OperationFailed | None


class Turn:
    """See the module. `save(state)` writes the state down; `compared(state)` is told of every progress."""

    def __init__(
        self,
        sides: Sides,
        state: StreamState,
        settings: MirrorSettings,
        save: Callable[[StreamState], Awaitable[None]],
        compared: Callable[[StreamState], None],
    ) -> None:
        self.state = state
        self.caught_up = False
        """Whether all that the primary had is copied and compared."""
        self.gone = False
        """Whether the primary has no such stream."""
        self._sides = sides
        self._settings = settings
        self._save = save
        self._compared = compared
        self._hurry = False
        self._idle: trio.CancelScope | None = None
        self._secondary_tail = 0
        self._saved_at = -math.inf

    def make_room(self) -> None:
        """Others wait: end when it has caught up, or after some batches."""
        self._hurry = True
        if self._idle is not None:
            self._idle.cancel()

    async def run(self) -> None:
        """Raises OperationFailed where a back fails; `state` is what is known all the same, and written down.

        What no further attempt would mend is no failure of the back: it is why the stream has `stopped`.
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

    # ---- where both stand ----------------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Find out where both sides stand; whether there is a stream."""
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
                StreamState.fresh(state.primary, state.secondary, state.timestamps),
                by_bytes=state.by_bytes,
                restarts=state.restarts + 1,
                differences=differences,
                first_difference=state.first_difference if differences else None,
            )
        copied = self._secondary_tail + state.shift
        if copied < state.compared:
            lost = Difference("missing", copied, self._secondary_tail)
            state = state.with_difference(lost, state.compared - copied).rehashed_from(copied)
        self.state = _with_extra(state, primary_tail, self._secondary_tail)
        return True

    async def _others(self, state: StreamState) -> bool:
        """Whether either side's stream is another one of the same name, which is as long: the last record tells."""
        sides, last = self._sides, state.compared - 1
        there = last - state.shift
        if state.primary_last and await sides.is_another(sides.primary, last, state.primary_last, state.timestamps):
            return True
        if not state.secondary_last or there >= self._secondary_tail:
            return False
        return await sides.is_another(sides.secondary, there, state.secondary_last, state.timestamps)

    async def _look_at_the_end(self) -> None:
        """Whether both sides end where the comparison stands."""
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
                    await _settled(send)  # else what was read before would never be done with
                    raise gathered.failure
                batches += 1
                self.caught_up = gathered.followed or not session.behind()

    async def _next(self, session: ReadSession) -> RecordBatch | Following | None:
        """None where the stream is idle, or others wait."""
        if not self.caught_up:
            return await session.next()
        with trio.CancelScope() as self._idle:
            return await session.next()
        return None

    async def _take(self, records: list[Record], send: trio.MemorySendChannel[_Piece | trio.Event]) -> bool:
        """Hand records to the comparison, once they are on the secondary; False where the copy ends here."""
        there = max(0, min(self._secondary_tail + self.state.shift - records[0].seq_num, len(records)))
        if there:
            await send.send(_Piece(records[0].seq_num - self.state.shift, records[:there]))
            records = records[there:]
        return not records or await self._append(records, send)

    async def _append(self, records: list[Record], send: trio.MemorySendChannel[_Piece | trio.Event]) -> bool:
        """Append records to the secondary, one refused record apart from the others."""
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
        refused = Difference("refused", record.seq_num, self._secondary_tail, message)
        if self._settings.on_refused is OnRefused.STOP:
            stopped = f"the secondary refuses record {record.seq_num}: {message}"
            self.state = replace(_with_refused(self.state, refused), stopped=stopped)
            return False
        state = _with_refused(self.state, refused)
        self.state = replace(state.passed_over(record.seq_num + 1), shift=state.shift + 1)
        await self._save(self.state)  # before anything that is behind it is appended
        return True

    async def _pass_over(self, at: int, to: int, send: trio.MemorySendChannel[_Piece | trio.Event]) -> None:
        """The primary's records from `at` up to `to` were trimmed before they were compared."""
        await _settled(send)
        there = self._secondary_tail + self.state.shift
        state = replace(self.state.passed_over(to), uncompared=self.state.uncompared + to - at)
        state = state if state.hashed else state.rehashed_from(to)
        self.state = replace(state, shift=state.shift + max(to - there, 0))
        await self._save(self.state)

    # ---- comparing -----------------------------------------------------------------------------------------------

    async def _compare(self, receive: trio.MemoryReceiveChannel[_Piece | trio.Event]) -> None:
        patience = self._settings.verify_seconds
        async with receive, reading(self._sides.secondary, self._sides.stream, patience) as reader:
            async for piece in receive:
                if isinstance(piece, trio.Event):
                    piece.set()
                else:
                    await self._compare_piece(piece, reader)
                if trio.current_time() - self._saved_at >= _SAVE_SECONDS:
                    self._saved_at = trio.current_time()
                    await self._save(self.state)

    async def _compare_piece(self, piece: _Piece, reader: Reader) -> None:
        at, rest = piece.secondary_seq, piece.records
        while rest:
            found = await reader.take(at, len(rest))
            trimmed = min(found[0].seq_num - at, len(rest))
            if trimmed:  # on the secondary alone
                compared = rest[trimmed - 1].seq_num + 1
                self.state = replace(self.state.passed_over(compared), uncompared=self.state.uncompared + trimmed)
                at, rest = at + trimmed, rest[trimmed:]
                continue
            self.state = compare(self.state, rest[: len(found)], found)
            self._compared(self.state)
            at, rest = at + len(found), rest[len(found) :]


async def _settled(send: trio.MemorySendChannel[_Piece | trio.Event]) -> None:
    """All that was handed over has been compared."""
    done = trio.Event()
    await send.send(done)
    await done.wait()


def _with_extra(state: StreamState, primary_tail: int, secondary_tail: int) -> StreamState:
    """With the records counted that the secondary has behind the primary's end, each once."""
    first = max(primary_tail - state.shift, state.extra_until)
    if secondary_tail <= first:
        return state
    extra = Difference("extra", first + state.shift, first)
    return replace(state.with_difference(extra, secondary_tail - first), extra_until=secondary_tail)


def _with_refused(state: StreamState, refused: Difference) -> StreamState:
    """With a refused record counted, once however often it is tried."""
    if refused.primary_seq_num < state.refused_until:
        return state
    return replace(state.with_difference(refused), refused_until=refused.primary_seq_num + 1)


async def _with_more(first: RecordBatch, session: ReadSession) -> _Gathered:
    """What else is there already, for the same append: clients that append record by record would else be faster than
    the mirror, whose appends wait for each other."""
    batches = [first]
    records, size = first.count, first.metered
    with trio.move_on_after(_GATHER_SECONDS):
        while records < _MOST_RECORDS and size < _MOST_BYTES and session.behind():
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
    """The records of consecutive batches, in portions without a gap that one append may have."""
    portion: list[Record] = []
    size = 0
    for record in chain.from_iterable(batch.records() for batch in batches):
        of_record = metered_size((record.body,), {0: tuple(record.headers)} if record.headers else {})
        full = len(portion) == _MOST_RECORDS or size + of_record > _MOST_BYTES
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
