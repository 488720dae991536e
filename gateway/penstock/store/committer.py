"""Group commit: all changes that were decided while one transaction ran form the next one.

A *change* is a decision that is not durable yet. One task takes all pending changes, executes their statements in one
transaction in one thread hop, and then publishes them in order. If the transaction fails, the group and everything that
was decided on top of it is undone, newest first, and rejected; the store goes on. It stops only if a sync fails: Linux
reports that once, and from then on regards pages as written that are not on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, Generic, TypeVar

import structlog
import trio

from penstock.core.errors import StoreFailed
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import KIB
from penstock.observe.metrics.families import (
    STORE_COMMIT_BYTES,
    STORE_COMMIT_CHANGES,
    STORE_COMMIT_FAILURES,
    STORE_COMMIT_SECONDS,
    STORE_COMMITS,
    STORE_SYNC_SECONDS,
)
from penstock.store.commit_thread import CommitThread
from penstock.store.payload_files import PayloadFiles
from penstock.store.schema import TOUCH
from penstock.store.wal import is_failed_sync

__all__ = ["CLOSED", "Change", "CommitOutcome", "Committer", "Statement", "Ticket"]

log = structlog.get_logger()

GATHER_PASSES: Final = 3
"""Passes of the scheduler without a new change after which a group is committed: so appends that have reached the
sockets by then (two passes from socket to here) share the transaction. Measured with one record in flight per
connection, one pair of runs on a shared machine, CPU us per append without and with it: 8 connections 345 to 399 and
299 to 357, 32 connections 278 and 233. One connection would gain nothing: after a group of one change, during whose
commit no other came, the next group is committed at once."""
MOST_PASSES: Final = 16
"""Passes after which a group is committed in any case."""

MOST_CHANGES: Final = 512
"""Most changes of one group, however small: publishing them, without a checkpoint between, takes about 10 us each."""

PROBE_SECONDS: Final = 1.0
"""Interval of trial transactions after one that failed. Without them there might be none: clients stay away
from a gateway that is not ready."""
PROBE_BYTES: Final = 256 * KIB
"""Bytes of free space required beyond those that the disk refused, before a trial transaction."""

_COMMITS: Final = STORE_COMMITS.child()
_COMMIT_BYTES: Final = STORE_COMMIT_BYTES.child()
_COMMIT_CHANGES: Final = STORE_COMMIT_CHANGES.child()
_COMMIT_SECONDS: Final = STORE_COMMIT_SECONDS.child()
_SYNC_SECONDS: Final = STORE_SYNC_SECONDS.child()

T = TypeVar("T")
Statement = tuple[str, Sequence[object]]

CLOSED: Final = Failure(FailureCode.SERVER_DRAINING, "the store is closing")


class Ticket(Generic[T]):
    """The future outcome of an operation. `on_settled`, if any, is called when there is one."""

    __slots__ = ("_event", "_is_settled", "_on_settled", "_result", "failure")

    def __init__(self, on_settled: Callable[[], object] | None = None) -> None:
        self._event: trio.Event | None = None  # made by the first `wait`; appends of a session are not waited for
        self._is_settled = False
        self._on_settled = on_settled
        self._result: T | None = None
        self.failure: Failure | None = None

    def resolve(self, result: T) -> None:
        """Settle the ticket with a result."""
        self._result = result
        self._settle()

    def fail(self, failure: Failure) -> None:
        """Settle the ticket with a failure: the operation was not executed, or that is unknown."""
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
        """The result; None while there is none, and after a failure."""
        return self._result

    async def wait(self) -> T:
        """Wait for the outcome and return the result. May be cancelled and called again. Raises OperationFailed."""
        if self._is_settled:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:  # not `or`: events define no truth value
                self._event = trio.Event()
            await self._event.wait()
        if self.failure is not None:
            raise OperationFailed(self.failure)
        return self._result  # type: ignore[return-value]  # T may include None


class Change:
    """A decision to be made durable. Without statements, it only waits for those before it."""

    __slots__ = ("size", "statements")

    def __init__(self, statements: Sequence[Statement] = (), size: int = 0) -> None:
        self.statements = statements
        self.size = size  # approximate bytes to be written

    def commit(self) -> None:
        """Update the durable state in memory: the change is on disk. Called for a whole group before any `publish`."""

    def publish(self) -> None:
        """Report success to waiting tasks."""

    def undo(self) -> None:
        """Restore the decided state in memory: the change failed. Called newest first, before any `reject`."""

    def reject(self, failure: Failure) -> None:
        """Report the failure to waiting tasks."""


class CommitOutcome(Change, Generic[T]):
    """A result or failure that is reported only when it, and everything decided earlier, is durable."""

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
    """The only writer of the file.

    `after_commit` is called after each transaction. While `must_wait` returns True, none begins; `go_on` makes the
    committer check again. `trouble`: the reason why the last transaction failed; None if it did not.
    """

    def __init__(self, db: sqlite3.Connection, files: PayloadFiles, directory: Path, group_bytes: int) -> None:
        """Commit to `db`, a connection to the database in `directory`, in groups of about `group_bytes`; large payloads
        go to `files`."""
        self._files = files
        self.after_commit: Callable[[], None] = lambda: None
        self.must_wait: Callable[[], bool] = lambda: False
        self.trouble: str | None = None
        self._refused_bytes = 0  # size of the largest transaction that failed since the last success
        self._directory = directory
        self._held = trio.lowlevel.ParkingLot()
        self._failed: StoreFailed | None = None
        self._db = db
        self._group_bytes = group_bytes
        self._pending: list[Change] = []
        self._group: list[Change] = []
        self._alone = False  # the last group had one change, and no other came during its commit
        self._wake = trio.Event()
        self._thread = CommitThread()
        self._closed = False

    def add(self, change: Change) -> None:
        """Queue a change for the next group. It is undone and rejected if it does not become durable."""
        if self._closed:
            change.undo()
            change.reject(CLOSED if self._failed is None else _storage(self._failed))
            return
        self._pending.append(change)
        self._wake.set()

    async def settle(self, outcome: T | Failure, statements: Sequence[Statement] = (), size: int = 0) -> T:
        """Return `outcome`, or raise it if it is a Failure, once it and everything decided before it is durable.

        `statements` make it durable; `size`: approximate bytes that they write. Raises OperationFailed.
        """
        change: CommitOutcome[T] = CommitOutcome(outcome, statements, size)
        self.add(change)
        return await change.ticket.wait()

    @property
    def pending(self) -> int:
        """Number of changes that wait for the next transaction."""
        return len(self._pending)

    @property
    def failed(self) -> StoreFailed | None:
        """The reason why the committer has stopped for good; None if it has not."""
        return self._failed

    @property
    def busy(self) -> bool:
        """True if there are changes that are not durable yet."""
        return bool(self._pending or self._group)

    async def run(self) -> None:
        """Commit until cancelled, then commit the pending changes and close: some tasks wait, shielded, for theirs.

        Raises StoreFailed once a sync has failed, here or in the checkpointer.
        """
        try:
            while True:
                if self.trouble is not None:
                    with trio.move_on_after(PROBE_SECONDS) as patience:
                        await self._wake.wait()
                    if patience.cancelled_caught:
                        if not await trio.to_thread.run_sync(_has_room, self._directory, self._refused_bytes):
                            continue
                        self.add(Change([(TOUCH, ())]))
                await self._wake.wait()
                if not self._alone:
                    await self._gather()
                await self.commit_group()
                if self._failed is not None:
                    raise self._failed
        finally:
            with trio.CancelScope(shield=True):
                await self.close()

    async def _gather(self) -> None:
        """Wait for appends that have reached the sockets already, to join the group; see GATHER_PASSES."""
        quiet, pending = 0, len(self._pending)
        for _ in range(MOST_PASSES):
            await trio.lowlevel.checkpoint()
            quiet = quiet + 1 if len(self._pending) == pending else 0
            if quiet == GATHER_PASSES:
                return
            pending = len(self._pending)

    async def between_commits(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function(connection)` in the thread between two transactions, and return its result."""
        return await self._thread.run(partial(function, self._db))

    def go_on(self) -> None:
        """Make a waiting committer call `must_wait` again."""
        self._held.unpark_all()

    def fail(self, error: Exception) -> StoreFailed:
        """Stop for good after a failed sync: reject all changes from now on. Return the exception to raise."""
        if self._failed is None:
            self._failed = StoreFailed(f"the store stops, because its last writes may not be on disk: {error}")
            self.trouble = str(self._failed)
            self._closed = True
            log.critical("store_failed", reason=str(self._failed))
            lost, self._pending = self._pending, []  # the group in progress is rejected when its thread returns
            _take_back(lost, self._failed)
            self._wake.set()
            self.go_on()
        return self._failed

    async def close(self) -> None:
        """Commit the pending changes, and reject later ones."""
        while self._pending:
            await self.commit_group()
        self._closed = True

    def end_thread(self) -> None:
        """End the thread that commits, once the store is closed."""
        self._thread.end()

    async def commit_group(self) -> None:
        """Commit pending changes, up to the bounds of a group, in one transaction."""
        while self.must_wait():
            await self._held.park()
        group = self._group = self._take_group()
        if not self._pending:
            self._wake = trio.Event()
        statements = [statement for change in group for statement in change.statements]
        if statements:
            began = perf_counter()
            outcome = await self._thread.run(partial(_execute, self._db, self._files, statements))
            if isinstance(outcome, Exception) or self._failed is not None:
                self._undo(outcome)
                return
            _measure(len(group), perf_counter() - began, outcome)
            self._alone = len(group) == 1 and not self._pending
            if self.trouble is not None:
                log.info("commits_resumed", after=self.trouble)
                self.trouble = None
                self._refused_bytes = 0
        _COMMIT_BYTES.value += sum(change.size for change in group)
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

    def _undo(self, outcome: Exception | float) -> None:
        """Undo and reject the group and everything that was decided on top of it."""
        if isinstance(outcome, Exception):
            STORE_COMMIT_FAILURES.child().inc()
            changes = len(self._group) + len(self._pending)
            code = getattr(outcome, "sqlite_errorname", None)
            log.error("commit_failed", error=str(outcome), code=code, changes=changes)
            if is_failed_sync(outcome):
                self.fail(outcome)
        size = sum(change.size for change in self._group)
        lost, self._group, self._pending = self._group + self._pending, [], []
        if self._failed is not None:
            _take_back(lost, self._failed)
        elif isinstance(outcome, Exception):
            self._refused_bytes = max(self._refused_bytes, size)
            self.trouble = f"the store cannot write: {outcome}"
            self._wake = trio.Event()
            _take_back(lost, outcome)


def _has_room(directory: Path, size: int) -> bool:
    """Return whether the disk has room for `size` bytes, those that it refused, and PROBE_BYTES more.

    A small transaction is no test: what SQLite could write before it failed stays in the log's file, so that there is
    room for a small one on a full disk.
    """
    try:
        file = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, size + PROBE_BYTES)
        finally:
            os.close(file)
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)  # the transaction will report any other trouble
    return True


def _storage(error: Exception) -> Failure:
    return Failure(FailureCode.STORAGE, f"the store could not write: {error}")


def _take_back(lost: Sequence[Change], error: Exception) -> None:
    """Undo changes, newest first, then reject them."""
    for change in reversed(lost):
        change.undo()
    failure = _storage(error)
    for change in lost:
        change.reject(failure)


def _measure(changes: int, seconds: float, sync_seconds: float) -> None:
    _COMMITS.value += 1
    _COMMIT_CHANGES.observe(changes)
    _COMMIT_SECONDS.observe(seconds)
    _SYNC_SECONDS.observe(sync_seconds)


def _execute(db: sqlite3.Connection, files: PayloadFiles, statements: Sequence[Statement]) -> Exception | float:
    """Run one transaction. Return the seconds that its syncs took, or the error; then all of it is rolled back."""
    try:
        began = perf_counter()
        more = files.take(statements)
        syncing = perf_counter() - began if more else 0.0
        before = db.total_changes
        with _transaction(db):
            for sql, parameters in (*statements, *more):
                db.execute(sql, parameters)
            began = perf_counter()
        syncing += perf_counter() - began
        if db.total_changes > before:
            files.accept()
        return syncing
    except Exception as error:  # no error may end the store: only the acks of this group depend on the transaction
        return error if is_failed_sync(error) else _give_back(db, files) or error


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction, all of which is rolled back if anything fails."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    finally:
        with contextlib.suppress(sqlite3.Error):  # if this fails, SQLite rolls back before the next transaction
            if db.in_transaction:
                db.execute("ROLLBACK")


def _give_back(db: sqlite3.Connection, files: PayloadFiles) -> Exception | None:
    """Give back the space of payloads whose transactions failed, by a small one that takes their place in the log: it
    may be what the disk lacks. Return the error if a sync of it failed."""
    if not files.refuse():
        return None
    try:
        with _transaction(db):
            db.execute(TOUCH)
        files.accept()
    except sqlite3.Error as error:  # the next transaction that succeeds does it
        return error if is_failed_sync(error) else None
    return None
