"""Background deletion of expired records, of long empty streams, and of the rows that are trimmed or deleted.

The sweeper decides through the same paths as clients, and writes through the same committer, in bounded pieces.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog
import trio

from penstock.store.catalog import StoreCatalog
from penstock.store.changes import HeadChange
from penstock.store.committer import Committer
from penstock.store.payload_files import PayloadFiles
from penstock.store.reader import ReaderThreads
from penstock.store.registry import Registry
from penstock.store.settings import Clock
from penstock.store.sweeps import DELETE_FILE, DueTrim, due_streams, empty_files, purge_chunk
from penstock.store.trims import Trims
from penstock_codecs.failures import OperationFailed

__all__ = ["Sweeper"]

log = structlog.get_logger()

PURGE_BYTES: Final = 256 * 1024
"""Approximate bytes that the purge of a chunk writes to the log: index pages and the free list, no payloads."""
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

    def nudge(self) -> None:
        """Start a purge soon, since something was trimmed or deleted."""
        self._nudged.set()

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
                    await self.expire()
                await trio.sleep(PURGE_PAUSE_SECONDS)
            except OperationFailed as error:
                log.error("sweep_failed", error=str(error))
                await trio.sleep(self._interval)

    async def expire(self) -> None:
        """Trim expired records, and delete streams that have been empty for long enough."""
        after: int | None = 0
        while after is not None:
            due, following = await self._reader.run(partial(due_streams, after=after, now=self._clock()))
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
