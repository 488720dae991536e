"""Group commit: whatever was decided while one transaction ran is the next one.

A *change* is a decision on its way to the disk. One task takes all that are pending, executes their statements in
one transaction in one thread hop, and then publishes them in order. If the transaction fails, the group and
everything that was decided on top of it is undone, newest first, and fails; the store lives on.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, Generic, TypeVar

import structlog
import trio

from penstock.metrics.families import (
    STORE_COMMIT_BYTES,
    STORE_COMMIT_CHANGES,
    STORE_COMMIT_FAILURES,
    STORE_COMMIT_SECONDS,
    STORE_COMMITS,
    STORE_SYNC_SECONDS,
)
from penstock_codecs.failures import Failure, FailureCode, OperationFailed

__all__ = ["CLOSED", "Change", "Committer", "Outcome", "Statement", "Ticket"]

log = structlog.get_logger()

GATHER_PASSES: Final = 3
"""A group is committed once so many passes of the scheduler have brought nothing new: what has reached the sockets by
then (two passes from socket to here) shares the transaction. Measured with one record in flight per connection, one
pair of runs on a shared machine, CPU us per append without and with it: 8 connections 345 to 399 and 299 to 357, 32
connections 278 and 233; one connection, where three passes are all it costs, 707 and 715."""
MOST_PASSES: Final = 16
"""Then it is committed all the same."""

MOST_CHANGES: Final = 512
"""Most changes of one group, however small: publishing them, in one go, takes about 10 us each."""

_COMMITS: Final = STORE_COMMITS.child()
_COMMIT_BYTES: Final = STORE_COMMIT_BYTES.child()
_COMMIT_CHANGES: Final = STORE_COMMIT_CHANGES.child()
_COMMIT_SECONDS: Final = STORE_COMMIT_SECONDS.child()
_SYNC_SECONDS: Final = STORE_SYNC_SECONDS.child()

T = TypeVar("T")
Statement = tuple[str, Sequence[object]]

CLOSED: Final = Failure(FailureCode.SERVER_DRAINING, "the store is closing")


class Ticket(Generic[T]):
    """The outcome of something that is under way. `on_settled`, if any, is called when there is one."""

    __slots__ = ("_event", "_is_settled", "_on_settled", "_result", "failure")

    def __init__(self, on_settled: Callable[[], object] | None = None) -> None:
        self._event: trio.Event | None = None  # made for the first who waits; for the appends of a session nobody does
        self._is_settled = False
        self._on_settled = on_settled
        self._result: T | None = None
        self.failure: Failure | None = None

    def resolve(self, result: T) -> None:
        """It was carried out."""
        self._result = result
        self._settle()

    def fail(self, failure: Failure) -> None:
        """It was not, or it is not known to have been."""
        self.failure = failure
        self._settle()

    def _settle(self) -> None:
        self._is_settled = True
        if self._event is not None:
            self._event.set()
        if self._on_settled is not None:
            self._on_settled()

    @property
    def result(self) -> T | None:
        """What came of it; None while it is under way, and where it failed."""
        return self._result

    async def wait(self) -> T:
        """The outcome. May be cancelled and called again. Raises OperationFailed."""
        if self._is_settled:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:  # an event has no truth value
                self._event = trio.Event()
            await self._event.wait()
        if self.failure is not None:
            raise OperationFailed(self.failure)
        return self._result  # type: ignore[return-value]  # T may include None


class Change:
    """A decision on its way to the disk; without statements, one that only waits for those before it."""

    __slots__ = ("size", "statements")

    def __init__(self, statements: Sequence[Statement] = (), size: int = 0) -> None:
        self.statements = statements
        self.size = size  # bytes to be written, about

    def commit(self) -> None:
        """It is on disk: move the durable view. Called for the whole group before any `publish`."""

    def publish(self) -> None:
        """Tell those who wait for it."""

    def undo(self) -> None:
        """It never happened: restore what it changed in memory. Called newest first, before any `reject`."""

    def reject(self, failure: Failure) -> None:
        """Tell those who wait for it."""


class Outcome(Change, Generic[T]):
    """A result or failure that must not be told before it, and everything decided earlier, is durable."""

    __slots__ = ("_outcome", "ticket")

    def __init__(self, outcome: T | Failure, statements: Sequence[Statement] = (), size: int = 0) -> None:
        super().__init__(statements, size)
        self._outcome = outcome
        self.ticket: Ticket[T] = Ticket()

    def publish(self) -> None:
        if isinstance(self._outcome, Failure):
            self.ticket.fail(self._outcome)
        else:
            self.ticket.resolve(self._outcome)

    def reject(self, failure: Failure) -> None:
        self.ticket.fail(failure)


class Committer:
    """The one writer. `written` counts bytes that it has committed, about."""

    def __init__(self, db: sqlite3.Connection, group_bytes: int) -> None:
        self.written = 0
        self.after_commit: Callable[[], None] = lambda: None
        self._db = db
        self._group_bytes = group_bytes
        self._pending: list[Change] = []
        self._group: list[Change] = []
        self._wake = trio.Event()
        self._lock = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._closed = False

    def add(self, change: Change) -> None:
        """Hand over a decision. It is undone and rejected if it does not become durable."""
        if self._closed:
            change.undo()
            change.reject(CLOSED)
            return
        self._pending.append(change)
        self._wake.set()

    async def settle(self, outcome: T | Failure, statements: Sequence[Statement] = (), size: int = 0) -> T:
        """Tell `outcome` when it and everything that was decided before it is durable. Raises OperationFailed.

        `statements`: what makes it durable; `size`: the bytes that they write, about.
        """
        change: Outcome[T] = Outcome(outcome, statements, size)
        self.add(change)
        return await change.ticket.wait()

    @property
    def pending(self) -> int:
        """How many changes wait for the next transaction."""
        return len(self._pending)

    @property
    def busy(self) -> bool:
        """Whether something is on its way to the disk."""
        return bool(self._pending or self._group)

    async def run(self) -> None:
        """Commit until cancelled, then what is pending, and nothing any more: some may not stop waiting before that."""
        try:
            while True:
                await self._wake.wait()
                await self._gather()
                await self.commit_group()
        finally:
            with trio.CancelScope(shield=True):
                await self.close()

    async def _gather(self) -> None:
        """Let what has reached the sockets already join the group; see GATHER_PASSES."""
        quiet, pending = 0, len(self._pending)
        for _ in range(MOST_PASSES):
            await trio.lowlevel.checkpoint()
            quiet = quiet + 1 if len(self._pending) == pending else 0
            if quiet == GATHER_PASSES:
                return
            pending = len(self._pending)

    async def between_commits(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """`function(connection)` in a thread while no transaction runs; the next one waits for it."""
        async with self._lock:
            return await trio.to_thread.run_sync(function, self._db, limiter=self._thread)

    async def close(self) -> None:
        """Commit what is pending, then nothing any more."""
        while self._pending:
            await self.commit_group()
        self._closed = True

    async def commit_group(self) -> None:
        """One transaction of what is pending, up to the bounds of a group."""
        group = self._group = self._take_group()
        if not self._pending:
            self._wake = trio.Event()
        statements = [statement for change in group for statement in change.statements]
        if statements:
            with trio.CancelScope(shield=True):
                async with self._lock:
                    began = perf_counter()
                    outcome = await trio.to_thread.run_sync(_execute, self._db, statements, limiter=self._thread)
            if isinstance(outcome, Exception):
                self._undo(outcome)
                return
            _measure(len(group), perf_counter() - began, outcome)
        written = sum(change.size for change in group)
        self.written += written
        _COMMIT_BYTES.value += written
        for change in group:
            change.commit()
        self._group = []
        for change in group:
            change.publish()
        self.after_commit()

    def _take_group(self) -> list[Change]:
        size = 0
        for index, change in enumerate(self._pending, 1):
            size += change.size
            if size >= self._group_bytes or index == MOST_CHANGES:
                group, self._pending = self._pending[:index], self._pending[index:]
                return group
        group, self._pending = self._pending, []
        return group

    def _undo(self, error: Exception) -> None:
        lost = self._group + self._pending
        self._group, self._pending = [], []
        self._wake = trio.Event()
        STORE_COMMIT_FAILURES.child().inc()
        log.error("commit_failed", error=str(error), code=getattr(error, "sqlite_errorname", None), changes=len(lost))
        for change in reversed(lost):
            change.undo()
        failure = Failure(FailureCode.STORAGE, f"the store could not write: {error}")
        for change in lost:
            change.reject(failure)


def _measure(changes: int, seconds: float, sync_seconds: float) -> None:
    _COMMITS.value += 1
    _COMMIT_CHANGES.observe(changes)
    _COMMIT_SECONDS.observe(seconds)
    _SYNC_SECONDS.observe(sync_seconds)


def _execute(db: sqlite3.Connection, statements: Sequence[Statement]) -> Exception | float:
    """One transaction; gives for how many seconds it was made durable, or why it failed: then nothing of it remains."""
    try:
        db.execute("BEGIN IMMEDIATE")
        for sql, parameters in statements:
            db.execute(sql, parameters)
        began = perf_counter()
        db.execute("COMMIT")
        return perf_counter() - began
    except Exception as error:  # whatever it is, it must not end the store: nobody's ack depends on it but the group's
        with contextlib.suppress(sqlite3.Error):  # then it is rolled back before the next one
            if db.in_transaction:
                db.execute("ROLLBACK")
        return error
