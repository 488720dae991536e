"""Moves the write-ahead log into the file, so that commits never have to.

A passive checkpoint runs beside commits. It cannot finish while they go on, and a log that is never finished
never begins anew. So when the log has grown long, passes follow one another, each with less to do than the one
before, until one can be run between two transactions without holding them up.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

import structlog
import trio

from penstock.store.committer import Committer
from penstock_codecs.limits import MIB

__all__ = ["Checkpointer"]

log = structlog.get_logger()

FINISH_BYTES: Final = 2 * MIB
"""So much may be left to move while commits wait: 1.5 to 2 ms, where a whole log of 64 MiB took 20 to 36 ms."""
MOST_PASSES: Final = 6
READERS_MS: Final = 100
"""How long a log may wait for those who still read from it to begin anew, while commits wait too: reads take a few ms
each. A passive checkpoint does not wait, and under reads of 20 ms that overlapped the log kept all that was written."""


class Checkpointer:
    """One task, with a connection of its own. `file` is a descriptor of the database file, to sync it."""

    def __init__(
        self,
        db: sqlite3.Connection,
        file: int,
        committer: Committer,
        checkpoint_bytes: int,
        log_reset_bytes: int,
    ) -> None:
        self._db = db
        self._file = file
        self._committer = committer
        self._checkpoint_bytes = checkpoint_bytes
        page_bytes: int = db.execute("PRAGMA page_size").fetchone()[0]
        self._reset_pages = self._next_reset = log_reset_bytes // page_bytes
        self._written = 0
        self._wake = trio.Event()
        committer.after_commit = self._after_commit

    def _after_commit(self) -> None:
        if self._committer.written - self._written >= self._checkpoint_bytes:
            self._wake.set()

    async def run(self) -> None:
        """Checkpoint until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            try:
                pages = await self._pass()
                if pages >= self._next_reset:
                    # A reader that stays (somebody's SQLite shell) holds commits up only each time as much was added.
                    self._next_reset = self._reset_pages + (0 if await self._begin_anew() else pages)
            except (sqlite3.Error, OSError) as error:  # tried again when as much has been written once more
                log.error("checkpoint_failed", error=str(error))

    async def _pass(self) -> int:
        self._written = self._committer.written
        return await trio.to_thread.run_sync(self._checkpoint_and_sync)

    def _checkpoint_and_sync(self) -> int:
        pages = _checkpoint(self._db)
        # SQLite syncs the file only when a pass has moved everything. Left to the one between two commits, that
        # would take as long as all passes before it wrote: 30 ms for 64 MiB, instead of 3.
        os.fdatasync(self._file)
        return pages

    async def _begin_anew(self) -> bool:
        """Finish the checkpoint between two commits; gives whether the next one begins the log anew."""
        for _ in range(MOST_PASSES):
            if self._committer.written - self._written <= FINISH_BYTES:
                break
            await self._pass()
        self._written = self._committer.written
        return await self._committer.between_commits(_restart)


def _checkpoint(db: sqlite3.Connection) -> int:
    """Move what can be moved without waiting for anybody; gives the length of the log in pages."""
    _busy, pages, _moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)


def _restart(db: sqlite3.Connection) -> bool:
    """Move all that is left, and wait a little until nobody reads from the log any more; gives whether nobody does."""
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout={READERS_MS}")
    try:
        busy, _pages, _moved = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout={patience}")
    return not busy
