"""Moves the write-ahead log into the file, so that commits never have to, and keeps its length within bounds.

A passive checkpoint runs beside commits. It cannot finish while they go on, and SQLite restarts a log only after all of
it was moved. So when the log has grown long, passes follow one another, each with less to do than the one before, until
the last one is so short that it can run between two transactions. If the disk cannot keep up, transactions wait.

The bounds apply to the log's real length, in pages: one record of one byte takes two. Any amount, however little, is
moved after a few seconds.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import structlog
import trio

from penstock.model.limits import MIB
from penstock.store.committer import Committer
from penstock.store.wal import WriteAheadLog, is_failed_sync, sync

__all__ = ["Checkpointer"]

log = structlog.get_logger()

FINISH_BYTES: Final = 2 * MIB
"""Most bytes moved while commits wait: this takes 1.5 to 2 ms, where a whole log of 64 MiB took 20 to 36 ms."""
MOST_PASSES: Final = 6
READERS_MS: Final = 100
"""Milliseconds to wait, before a log restarts, for transactions that still read from it. Commits wait too; reads take a
few ms each. A passive checkpoint does not wait, and with overlapping reads of 20 ms the log never restarted."""


class Checkpointer:
    """The task that checkpoints, with a connection of its own. `file`: a descriptor of the database file, for syncs."""

    def __init__(
        self,
        db: sqlite3.Connection,
        file: int,
        lengths: WriteAheadLog,
        committer: Committer,
        checkpoint_bytes: int,
        checkpoint_seconds: float,
        log_bytes: int,
    ) -> None:
        self._db = db
        self._file = file
        self._log = lengths
        self._committer = committer
        self._checkpoint_bytes = checkpoint_bytes
        self._seconds = checkpoint_seconds
        self._log_bytes = log_bytes
        self._tried = 0  # the log's length at the last pass
        # The log's length when it could not restart: a reader stays in it (a SQLite shell), or the disk is full.
        self._held_up = 0
        self._some, self._much = trio.Event(), trio.Event()
        self._running = False
        committer.after_commit = self._look
        committer.must_wait = self._must_wait

    def _look(self) -> None:
        """Measure the log, and wake `run` if there is something to move, at once or later."""
        written, moved = self._log.lengths()
        if written < self._tried:  # it has restarted
            self._tried = self._held_up = 0
        if written > moved:
            self._some.set()
            if written - max(moved, self._tried) >= self._checkpoint_bytes or written >= self._restart_at_bytes:
                self._much.set()

    @property
    def _restart_at_bytes(self) -> int:
        """Length in bytes at which the log is to restart: half of its bound."""
        return self._held_up + self._log_bytes // 2

    def _must_wait(self) -> bool:
        """Return whether transactions must wait: a quarter of the log's bound is reserved for the largest transaction.

        They need not wait once all of the log is moved: then the next transaction restarts it.
        """
        written, moved = self._log.lengths()
        return self._running and written > moved and written >= self._held_up + self._log_bytes * 3 // 4

    async def run(self) -> None:
        """Checkpoint until cancelled. Raises StoreFailed if a sync fails."""
        self._running = True
        try:
            while True:
                self._look()
                await self._some.wait()
                with trio.move_on_after(self._seconds):
                    await self._much.wait()
                self._some, self._much = trio.Event(), trio.Event()
                await self._move()
        finally:
            self._running = False
            self._committer.go_on()

    async def _move(self) -> None:
        try:
            await self._pass()
            if self._log.lengths()[0] >= self._restart_at_bytes:
                begun = await self._restart_log()
                self._held_up = 0 if begun else self._log.lengths()[0]
        except (sqlite3.Error, OSError) as error:
            if is_failed_sync(error):
                raise self._committer.fail(error) from error
            self._held_up = self._log.lengths()[0]
            log.error("checkpoint_failed", error=str(error))  # tried again, as after one that a reader held up
        self._committer.go_on()

    async def _pass(self) -> None:
        self._tried = self._log.lengths()[0]
        await trio.to_thread.run_sync(self._checkpoint_and_sync)

    def _checkpoint_and_sync(self) -> None:
        """Move all that can be moved without waiting for readers or writers, and sync the file."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # SQLite syncs the file only when a pass has moved everything. If only the last pass, between two commits, did
        # that, its sync would cover all that the passes before it wrote: 30 ms for 64 MiB instead of 3.
        sync(self._file)

    async def _restart_log(self) -> bool:
        """Finish the checkpoint between two commits; return whether the next commit restarts the log."""
        for _ in range(MOST_PASSES):
            written, moved = self._log.lengths()
            if written - moved <= FINISH_BYTES or self._must_wait():
                break
            await self._pass()
        return await self._committer.between_commits(_restart)


def _restart(db: sqlite3.Connection) -> bool:
    """Move the rest of the log, and wait up to READERS_MS for its readers; return whether there are none left."""
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout={READERS_MS}")
    try:
        busy, _pages, _moved = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout={patience}")
    return not busy
