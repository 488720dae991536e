"""The back of tables on a log: one task follows it, one appends changes, and one asks for its end.

Changes that wait while one batch is in flight are decided together for the next, unless they touch the same records.
"""

from __future__ import annotations

import random
import secrets
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

import structlog
import trio

from penstock.backends.background import background
from penstock.backends.logged_tables.state import LoggedBatch, TableChange, TableDecision, TableState, sizes_of
from penstock.core.back import AppendSession, Back, ReadSession
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import Capability, Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.model.table_operations import ListTable, TableItem
from penstock.net.retries import RetryPolicy, worth_retrying
from penstock.net.upstream import doubtful

__all__ = ["ChangeLog", "LogLost", "LogNews", "LoggedTables", "open_logged_tables"]

log = structlog.get_logger()

R = TypeVar("R")

_TOGETHER_BYTES: Final = 1 * MIB
"""Bytes of changes up to which operations share a batch."""
_TOGETHER: Final = 1000
"""Operations that share a batch."""
_IN_A_ROW: Final = 64
"""Batches in a row after which a gateway rests, so that others get their turn: one whose requests take longer would
always come too late."""
_REST: Final = 4
"""Length of a rest, as a multiple of the time that the last batch took: a gateway that lost its turn needs the time of
two, and may be slower."""
_REMEMBERED: Final = 128
"""Number of times at which it is remembered how much had been read, up to two in each second."""
_PAUSES: Final = RetryPolicy()
_STOPS: Final = Failure(FailureCode.HOT_SERVER, "the gateway stops, and its state is no longer at hand")


class LogNews(NamedTuple):
    """New records of a log. `end`: the position behind them. `restarted`: they are its first ones, and everything read
    before is void."""

    batches: Sequence[LoggedBatch]
    end: int
    restarted: bool = False


class LogLost(OperationFailed):
    """The log is missing, or is another one than was read: what it had is in the memory of the gateways alone."""

    def __init__(self, where: str, reason: str) -> None:
        word = "the gateway keeps the state that it has read, and neither shows nor changes it until it is restarted"
        super().__init__(Failure(FailureCode.HOT_SERVER, f"{where}: {reason}; {word}"))


class ChangeLog(ABC):
    """A log of one order to which several gateways append batches of records. One task reads it.

    `where` names it in messages. Methods raise OperationFailed.
    """

    where: str
    recover_seconds: float
    """Time for which a lost server is asked again before operations fail."""
    max_bytes: int
    """Most bytes of keys and values in one batch."""
    trouble: str | None = None
    """The reason not to be ready although the log can be read: it loses records, or has lost some."""

    def note_trouble(self, reason: str | None) -> None:
        """Set `trouble`, None if there is none any more; log it if it is new."""
        if reason is not None and self.trouble is None:
            log.error("state_endangered", where=self.where, reason=reason)
        self.trouble = None if reason is None else f"{self.where}: {reason}"

    @abstractmethod
    async def read(self) -> LogNews:
        """Return the next records, from the beginning on; may return after a while that there are none. After a
        failure it goes on at the same place. Raises LogLost as long as the log does not have that place any more."""

    @abstractmethod
    async def end(self) -> int:
        """Return the position behind all records that were acknowledged to any gateway before the call; `read` has
        returned before."""

    @abstractmethod
    async def append(self, author: bytes, changes: Sequence[TableChange], state: TableState) -> int | None:
        """Append a batch directly behind what `read` has returned when this is called, or not at all. `state`: what
        was read has made it; a log that is not compacted by its server does that by it.

        Returns the position of its last record, or None if something else is there now; it may be this batch, if
        it was sent before. The caller looks for `author` in the log in either case. After a failure it may be in the
        log, or come there later, but only if nothing else comes there first.
        """

    @abstractmethod
    def begin_again(self) -> None:
        """Take note that `append` returned None although nothing new is in the log."""


class _Look:
    """A question for the end of the log, which several operations share."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.result: Any = None
        self.failure: Failure | None = None

    def end(self, result: object = None, failure: Failure | None = None) -> None:
        self.result, self.failure = result, failure
        self.over.set()


class _Change(_Look):
    """An operation that changes tables and waits for its outcome."""

    def __init__(self, operation: Operation[Any]) -> None:
        super().__init__()
        self.operation = operation


class LoggedTables(Back):
    """A back that has tables and nothing else. Made by `open_logged_tables`."""

    def __init__(self, changes: ChangeLog, max_bytes: int) -> None:
        self.gateway = secrets.token_hex(8)
        """The id of this gateway among those with the same log; another one after a restart."""
        self._log = changes
        self._max_bytes = max_bytes
        self._state = TableState(max_bytes)
        self._end = -1  # the log was never read
        self._ends: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)  # times, and `_end` since then
        self._news = trio.lowlevel.ParkingLot()
        self.batches_read = 0
        """Number of batches that have been read so far, and of times that reading began."""
        self._loaded = False  # the log was read to an end that it had
        self._author, self._found = b"", -1  # of the batch in flight, and its position once it was read
        self._in_a_row, self._rested_at = 0, 0.0  # batches since another gateway's or a rest; when the next one is over
        self._queue: deque[_Change] = deque()
        self._some = trio.Event()
        self._look, self._asked = _Look(), trio.Event()
        self._failing: tuple[float, Failure] | None = None  # since when, and why, the log cannot be read
        self._lost = False  # that is for a person to mend
        self._awaited: Counter[_Look] = Counter()
        self._stopped = False

    @property
    def trouble(self) -> str | None:
        """The reason not to be ready: the log was not yet read to its end, not at all for `recover_seconds`, is lost,
        or loses records."""
        return self._outdated() or self._log.trouble

    def _outdated(self) -> str | None:
        """Return the reason why what was read may be outdated, or not all there is."""
        if self._failing is None:
            return None if self._loaded else f"the gateway's state is being read from {self._log.where}"
        recent = trio.current_time() - self._failing[0] < self._log.recover_seconds
        return None if self._loaded and recent and not self._lost else _unread(self._failing[1])

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Tables."""
        return frozenset({Capability.TABLES})

    async def perform(self, operation: Operation[R]) -> R:
        if self._state.reads(operation):
            await self._fresh()
            found: R = self._state.read(operation)
            return found
        if not self._state.changes(operation):
            raise self._no_streams(type(operation).__name__)
        change = _Change(operation)
        self._queue.append(change)
        self._some.set()
        result: R = await self._outcome(change)
        return result

    async def _outcome(self, of: _Look) -> Any:
        """Wait until a question or a change is over; return its result. Raises its failure, UNAVAILABLE when the
        gateway stops, and HOT_SERVER after that: tasks that wait in spite of cancellation would do so for ever."""
        if self._stopped:
            raise OperationFailed(_STOPS)
        self._awaited[of] += 1
        try:
            await of.over.wait()
        finally:
            self._awaited[of] -= 1
            if not self._awaited[of]:
                del self._awaited[of]
        if of.failure is not None:
            raise OperationFailed(of.failure)
        return of.result

    @property
    def loaded(self) -> bool:
        """True once the log was read to an end that it had; False again while it is read from its beginning again."""
        return self._loaded

    def changes(self, operation: Operation[Any]) -> bool:
        """Return whether this is an operation that changes tables."""
        return self._state.changes(operation)

    def peek(self, operation: Operation[R]) -> R:
        """Return the result of an operation that reads tables, as far as the log has been read; never waits."""
        result: R = self._state.read(operation)
        return result

    def recent(self, operation: Operation[R]) -> R:
        """Return the result of an operation that reads tables, without asking the log for its end; never waits. Raises
        HOT_SERVER while what was read may be outdated, or not all there is."""
        if (trouble := self._outdated()) is not None:
            raise fail(FailureCode.HOT_SERVER, trouble)
        return self.peek(operation)

    def peek_items(
        self, table: str, *, first: bytes | None = None, last: bytes | None = None, prefix: bytes = b""
    ) -> list[TableItem]:
        """Return the items of a table as `ListTable` does, all of them, as far as the log has been read; never waits.
        A missing table counts as an empty one."""
        items: list[TableItem] = []
        after, more = None, True
        while more:
            try:
                page = self.peek(ListTable(table, after=after, first=first, last=last, prefix=prefix))
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                    raise
                return []
            items += page.items
            more = page.has_more
            after = items[-1].key if more else None
        return items

    async def news(self, seen: int | None = None) -> None:
        """Wait until more than `seen` batches have been read; None: more than now."""
        seen = self.batches_read if seen is None else seen
        while self.batches_read <= seen:
            await self._news.park()

    async def is_silent(self, look: Callable[[], object], seconds: float) -> bool:
        """Wait as long as `look`, a view of what has been read, returns the same; True after `seconds` of that.

        Half of them must come after the log was read to its end, and pass while this gateway runs and reads: one that
        was paused or cut off has not read what the others wrote meanwhile. Raises HOT_SERVER if the end cannot be read.
        """
        before, at_end = look(), False
        while True:
            began = trio.current_time()
            with trio.move_on_after(seconds / 2):
                while look() == before:
                    await self.news()
                return False
            await self._fresh()
            if look() != before:
                return False
            if at_end and trio.current_time() - began < seconds:
                return True
            at_end = True

    def read_before(self, seconds: float) -> int:
        """Return a position in the log before which all was read at least so long ago, since reading began; about the
        last one, 0 if none is known."""
        latest = trio.current_time() - seconds
        return next((end for time, end in reversed(self._ends) if time <= latest), 0)

    def append_session(
        self,
        stream: StreamRef,
        create_config: StreamConfig | None = None,  # noqa: ARG002
        *,
        create_if_missing: bool = True,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[AppendSession]:
        raise self._no_streams(f"append to {stream}")

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        raise self._no_streams(f"read {read.stream}")

    def _no_streams(self, what: str) -> OperationFailed:
        reason = "the gateway has no embedded store, since its state is there"
        return fail(
            FailureCode.NOT_IMPLEMENTED, f"{self._log.where} has tables and no streams, and cannot {what}: {reason}"
        )

    # ---- following ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the log and make changes, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow)
                nursery.start_soon(self._look_for_end)
                nursery.start_soon(self._make_changes)
        finally:
            self._stopped = True
            for awaited in self._awaited:
                if not awaited.over.is_set():
                    awaited.end(failure=doubtful(_STOPS))  # it may be in the log, or come there

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                news = await self._log.read()
            except OperationFailed as error:
                failures += 1
                since, before = self._failing or (trio.current_time(), None)
                lost = isinstance(error, LogLost)
                if lost and not self._lost:
                    log.error("state_lost", where=self._log.where, reason=error.failure.message)
                elif before is None or before.code is not error.failure.code:
                    log.warning("waiting_for_state", where=self._log.where, reason=str(error.failure))
                self._failing, self._lost = (since, error.failure), lost
                self._news.unpark_all()
                await trio.sleep(_PAUSES.pause(failures, random.random()))
                continue
            if self._failing is not None:
                log.info("state_reached", where=self._log.where)
            failures, self._failing, self._lost = 0, None, False
            if news.restarted:
                self._state, self._end, self._loaded = TableState(self._max_bytes), 0, False
                self._ends.clear()
                self.batches_read += 1
                self._asked.set()  # look for the end now: the gateway is ready once it has read so far
            for batch in news.batches:
                self.batches_read += 1
                for position, change in batch.changes:
                    self._state.apply(position, change)
                if batch.author != self._author:
                    self._in_a_row = 0
                elif batch.changes:
                    self._found = batch.changes[0][0]
            self._end = news.end
            self._remember_end()
            self._news.unpark_all()

    def _remember_end(self) -> None:
        ends = self._ends
        if ends and ends[-1][1] == self._end:
            return
        now = trio.current_time()
        if len(ends) > 1 and now - ends[-2][0] < 1:
            ends.pop()
        ends.append((now, self._end))

    async def _reached(self, end: int) -> None:
        """Wait until the log has been read up to a position. Raises HOT_SERVER after `recover_seconds`, and if the log
        is lost."""
        with trio.move_on_after(self._log.recover_seconds):
            while self._end < end and not self._lost:
                await self._news.park()
            if not self._lost:
                return
        reason = (
            _unread(self._failing[1])
            if self._failing
            else f"it was read up to {self._end} of {end} in {self._log.recover_seconds:g} s"
        )
        raise fail(FailureCode.HOT_SERVER, f"{self._log.where}: {reason}")

    async def _look_for_end(self) -> None:
        while True:
            await self._asked.wait()
            look, self._look, self._asked = self._look, _Look(), trio.Event()
            try:
                await self._reached(0)
                state: TableState | None = None
                while state is not self._state:  # it was read from its beginning again meanwhile
                    state = self._state
                    await self._reached(await self._log.end())
            except OperationFailed as error:
                look.end(failure=error.failure)
            else:
                self._loaded = True
                look.end()
            if not self._loaded:
                await trio.sleep(_PAUSES.pause(1, random.random()))
                self._asked.set()

    async def _fresh(self) -> None:
        """Wait until everything has been read that was acknowledged to any gateway before the call, also if the log is
        read from its beginning again meanwhile."""
        loaded = False
        while not loaded:
            self._asked.set()
            await self._outcome(self._look)
            loaded = self._loaded  # it may have been lost just after its end was reached

    # ---- changes -----------------------------------------------------------------------------------------------------

    async def _make_changes(self) -> None:
        while True:
            await self._some.wait()
            waiting = [self._queue.popleft() for _ in range(min(_TOGETHER, len(self._queue)))]
            if not self._queue:
                self._some = trio.Event()
            fresh = False
            while waiting:
                try:
                    await self._rest()
                    fresh, waiting = await self._make(waiting, fresh=fresh)
                except OperationFailed as error:
                    for change in waiting:
                        change.end(failure=error.failure)
                    waiting = []

    async def _rest(self) -> None:
        """Give way to other gateways, if this one has made `_IN_A_ROW` batches without a rest."""
        now = trio.current_time()
        if now < self._rested_at and self._in_a_row >= _IN_A_ROW:
            await trio.sleep_until(self._rested_at)
            now = self._rested_at
        if now >= self._rested_at:
            self._in_a_row = 0

    async def _make(self, waiting: list[_Change], *, fresh: bool) -> tuple[bool, list[_Change]]:
        """Carry out as many changes as go together. `fresh`: all that was acknowledged before they were asked for has
        been read. Returns whether that is so now, and the changes that are left. Raises what none of them survives."""
        if not self._loaded:
            await self._fresh()
            return True, waiting
        together: list[tuple[_Change, TableDecision]] = []
        left: list[_Change] = []
        exclusive: set[bytes] = set()
        shared: set[bytes] = set()
        size = 0
        for change in waiting:
            try:
                decision = self._state.decide(change.operation)
                self._check_size(decision)
            except OperationFailed as error:
                if not fresh:
                    await self._fresh()
                    return True, waiting
                change.end(failure=error.failure)
                continue
            if not decision.changes:
                if not fresh:
                    await self._fresh()
                    return True, waiting
                change.end(() if decision.versions is not None else None)
                continue
            size += sizes_of(decision.changes)
            alone = exclusive.isdisjoint(decision.exclusive | decision.shared) and shared.isdisjoint(decision.exclusive)
            if together and (not alone or size > _TOGETHER_BYTES):
                left.append(change)
                continue
            together.append((change, decision))
            exclusive |= decision.exclusive
            shared |= decision.shared
        if not together:
            return fresh, left
        changes = [table_change for _, decision in together for table_change in decision.changes]
        position = await self._append([*changes, *(self._state.leftovers() if size < _TOGETHER_BYTES else ())])
        if position is None:
            return fresh, [*(change for change, _ in together), *left]
        for change, decision in together:
            versions = decision.versions
            change.end(None if versions is None else tuple(range(position, position + versions)))
            position += len(decision.changes)
        return fresh, left

    def _check_size(self, decision: TableDecision) -> None:
        size, most = sizes_of(decision.changes), self._log.max_bytes
        if size > most:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"a change of {size} bytes, at most {most} can be made at once")

    async def _append(self, changes: Sequence[TableChange]) -> int | None:
        """Append a batch and read it back. Returns the position of its first record, or None if other records came
        first, on which the changes must be decided again. Raises UNAVAILABLE if it is not known after
        `recover_seconds` whether the batch is in the log, or will be."""
        self._author, self._found = secrets.token_bytes(8), -1
        before, failures, began = self.batches_read, 0, trio.current_time()
        give_up = began + self._log.recover_seconds
        while True:
            last: int | None = -1
            in_doubt = failures > 0
            try:
                await self._reached(0)
                last = await self._log.append(self._author, changes, self._state)
                in_doubt = in_doubt or last is not None
                await (self._fresh() if last is None else self._reached(last + 1))
            except OperationFailed as error:
                failures += 1
                if self._lost or not worth_retrying(error.failure) or trio.current_time() >= give_up:
                    raise (OperationFailed(doubtful(error.failure)) if in_doubt else error) from error
                await trio.sleep(_PAUSES.pause(failures, random.random()))
                last = -1
            if self.batches_read != before and not self._loaded:
                await self._read_again()
            if self._found >= 0:
                now = trio.current_time()
                self._in_a_row, self._rested_at = self._in_a_row + 1, now + _REST * (now - began)
                return self._found
            if self.batches_read != before:
                return None
            if last is None:
                self._log.begin_again()

    async def _read_again(self) -> None:
        """Wait until a log that is read from its beginning again was read to its end: the batch may be further on.
        Raises UNAVAILABLE after `recover_seconds`."""
        try:
            await self._fresh()
        except OperationFailed as error:
            raise OperationFailed(doubtful(error.failure)) from error


@asynccontextmanager
async def open_logged_tables(changes: ChangeLog, max_bytes: int) -> AsyncIterator[LoggedTables]:
    """Open tables on a log until the block ends. `max_bytes`: memory above which changes that need more are refused."""
    tables = LoggedTables(changes, max_bytes)
    async with background() as nursery:
        nursery.start_soon(tables.run)
        yield tables


def _unread(failure: Failure) -> str:
    return f"the gateway's state cannot be read: {failure.message}"
