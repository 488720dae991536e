"""The background's work: expired records, long empty streams, and the rows of what is trimmed or deleted.

It decides through the same paths as clients do and writes through the same committer, in bounded pieces.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog
import trio

from penstock.store.catalog import Catalog
from penstock.store.changes import HeadChange
from penstock.store.committer import Change, Committer, Statement, Ticket
from penstock.store.reader import Reader
from penstock.store.registry import Registry
from penstock.store.settings import Clock
from penstock.store.sweeps import Due, due_streams, purge_chunk
from penstock.store.trims import Trims
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["Sweeper"]

log = structlog.get_logger()

PURGE_BYTES: Final = 256 * 1024
"""What the purge of a chunk writes to the log, about: index pages and the list of free pages, not the payloads."""
PURGE_PAUSE_SECONDS: Final = 0.5
"""Between two purges, however often it is nudged: each looks through all streams, which takes 50 ms for 100,000."""


class _Purge(Change):
    """Rows on their way out."""

    __slots__ = ("ticket",)

    def __init__(self, statements: list[Statement]) -> None:
        super().__init__(statements, PURGE_BYTES)
        self.ticket: Ticket[None] = Ticket()

    def publish(self) -> None:
        self.ticket.resolve(None)

    def reject(self, failure: Failure) -> None:
        self.ticket.fail(failure)


class Sweeper:
    """One task. `nudge` says that there is something to purge."""

    def __init__(
        self,
        registry: Registry,
        catalog: Catalog,
        trims: Trims,
        committer: Committer,
        reader: Reader,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._trims = trims
        self._committer = committer
        self._reader = reader
        self._clock = clock
        self._interval = interval_seconds
        self._nudged = trio.Event()

    def nudge(self) -> None:
        """Something was trimmed or deleted: purge it soon."""
        self._nudged.set()

    async def run(self) -> None:
        """Sweep until cancelled. A failure (a full disk) is logged, and tried again an interval later."""
        expire_at = trio.current_time() + self._interval  # however often it is nudged
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
        """Trim what is older than its stream keeps, and delete streams that have been empty for long enough."""
        after: int | None = 0
        while after is not None:
            due, following = await self._reader.run(partial(due_streams, after=after, now=self._clock()))
            changes = [change for some in due if (change := self._decide(some)) is not None]
            for change in changes:
                await change.ticket.wait()
            if not changes:
                after = following  # else there may be more that is due for the same streams

    def _decide(self, due: Due) -> HeadChange[None] | None:
        """Do what is due; None where it no longer is."""
        stream = self._registry.stream(due.ref)
        if stream is None or stream.id != due.id:
            return None
        if due.trim_to is not None:
            return self._trims.move(stream, due.trim_to)
        return self._catalog.delete(stream) if stream.head.next_seq == stream.head.trim_point else None

    async def purge(self) -> None:
        """Delete the rows of what is trimmed or deleted, until none is left."""
        after = 0
        while (chunk := await self._reader.run(partial(purge_chunk, after=after))) is not None:
            statements, after = chunk
            change = _Purge(list(statements))
            self._committer.add(change)
            await change.ticket.wait()
