"""Background deletion of expired records, of long empty streams, and of the rows that are trimmed or deleted.

The sweeper decides through the same paths as clients, and writes through the same committer, in bounded pieces.

What is deleted does not come back when a wrong clock is set right. So each sweep is as of a time that is little later
than that of the sweep before, and the first one than the newest change in the file. While the clock is far ahead, the
distance doubles with each sweep: after a second of a wrong year some minutes of records are gone, and the first sweeps
of a gateway that was off for a year catch up within ten minutes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog
import trio

from penstock.model.failures import OperationFailed
from penstock.store.catalog import StoreCatalog
from penstock.store.changes import HeadChange
from penstock.store.committer import Committer
from penstock.store.payload_files import PayloadFiles
from penstock.store.reader import ReaderThreads
from penstock.store.registry import Registry
from penstock.store.settings import Clock
from penstock.store.sweeps import DELETE_FILE, DueTrim, due_streams, empty_files, newest_change, purge_chunk
from penstock.store.trims import Trims

__all__ = ["Sweeper"]

log = structlog.get_logger()

PURGE_BYTES: Final = 256 * 1024
"""Approximate bytes that the purge of a chunk writes to the log: index pages and the free list, no payloads."""
LEAST_STEP_MS: Final = 5 * 60 * 1000
"""Most ms by which a sweep may move beyond the time that has passed since the one before; twice as many each time that
this is not enough."""
PURGE_PAUSE_SECONDS: Final = 0.5
"""Least pause between two purges: each looks through all streams, which takes 50 ms for 100,000."""


class Sweeper:
    """The task that sweeps every `interval_seconds`, and purges when nudged."""

    def __init__(
        self,
        registry: Registry,
        catalog: StoreCatalog,
        trims: Trims,
        committer: Committer,
        reader: ReaderThreads,
        files: PayloadFiles,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._trims = trims
        self._committer = committer
        self._reader = reader
        self._files = files
        self._clock = clock
        self._interval = interval_seconds
        self._nudged = trio.Event()
        self._swept_at: tuple[int, float] | None = None  # the time of the last sweep, by the clock and by trio's
        self._step = LEAST_STEP_MS
        self.behind_ms = 0
        """Distance in ms of the last sweep from a clock that was far ahead of the sweep before."""

    def nudge(self) -> None:
        """Start a purge soon, since something was trimmed or deleted."""
        self._nudged.set()

    @property
    def delay(self) -> str | None:
        """The reason why records expire later than they could, as a sentence; None if they do not."""
        if not self.behind_ms:
            return None
        return (
            f"the clock is far ahead of the newest change in the store, or of the last sweep: "
            f"records expire step by step, {self.behind_ms // 1000} s behind it"
        )

    async def run(self) -> None:
        """Sweep until cancelled. A failure (a full disk) is logged; the next try is an interval later."""
        expire_at = trio.current_time() + self._interval  # nudges do not delay it
        while True:
            try:
                await self.purge()
                with trio.move_on_at(expire_at):
                    await self._nudged.wait()
                self._nudged = trio.Event()
                if trio.current_time() >= expire_at:
                    expire_at = trio.current_time() + self._interval
                    await self.expire(await self._sweep_time())
                await trio.sleep(PURGE_PAUSE_SECONDS)
            except OperationFailed as error:
                log.error("sweep_failed", error=str(error))
                await trio.sleep(self._interval)

    async def _sweep_time(self) -> int:
        """Return the time in ms as of which the next sweep expires records: the clock's, unless that is far ahead."""
        now, passed = self._clock(), trio.current_time()
        swept, then = self._swept_at or (await self._reader.run(newest_change), passed)
        bound = swept + round((passed - then) * 1000) + self._step
        self.behind_ms = max(now - bound, 0) if swept else 0
        if self.behind_ms:
            log.warning("sweep_held_back", behind_seconds=self.behind_ms // 1000, as_of=bound)
            now, self._step = bound, 2 * self._step
        else:
            self._step = LEAST_STEP_MS
        self._swept_at = now, passed
        return now

    async def expire(self, now: int) -> None:
        """Trim the records that have expired at `now` (ms), and delete streams that were empty for long enough then."""
        after: int | None = 0
        while after is not None:
            due, following = await self._reader.run(partial(due_streams, after=after, now=now))
            changes = [change for some in due if (change := self._decide(some)) is not None]
            for change in changes:
                await change.ticket.wait()
            if not changes:
                after = following  # otherwise the same streams may have more expired records

    def _decide(self, due: DueTrim) -> HeadChange[None] | None:
        """Trim or delete a due stream, and return the change, or None if it is no longer due."""
        stream = self._registry.stream(due.ref)
        if stream is None or stream.id != due.id:
            return None
        if due.trim_to is not None:
            return self._trims.move(stream, due.trim_to)
        return self._catalog.delete(stream) if stream.head.next_seq == stream.head.trim_point else None

    async def purge(self) -> None:
        """Delete trimmed and deleted rows until none are left."""
        after = 0
        while (chunk := await self._reader.run(partial(purge_chunk, after=after))) is not None:
            after = chunk.after
            await self._committer.settle(None, chunk.statements, PURGE_BYTES)
            if chunk.places:
                await self._reader.passed()
                await trio.to_thread.run_sync(self._files.free, chunk.places)
        await self._remove_files()

    async def _remove_files(self) -> None:
        """Remove the files in which no payload is left. One to which payloads are appended is not among them."""
        before = self._files.number  # read first: a file that is full now may not be counted as used yet
        for number in await self._reader.run(partial(empty_files, before=before)):
            await self._committer.settle(None, [(DELETE_FILE, (number,))])
            await self._reader.passed()
            try:
                await trio.to_thread.run_sync(self._files.remove, number)
            except OSError as error:  # the next start tries again
                log.error("sweep_failed", error=str(error))
