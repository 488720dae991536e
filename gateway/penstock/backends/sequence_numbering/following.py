"""One reader at a stream's tail for all sessions that follow it."""

from __future__ import annotations

from functools import partial

import trio

from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.core.marks import Mark
from penstock.model.failures import Failure, OperationFailed

__all__ = ["StreamFollower"]


class StreamFollower:
    """Reads on in `nursery` while a session follows, and adds what it finds to `IndexedStream.recent`."""

    def __init__(self, stream: IndexedStream, nursery: trio.Nursery) -> None:
        self._stream = stream
        self._nursery = nursery
        self._users = 0
        self._scope: trio.CancelScope | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._failure: Failure | None = None
        self.position = 0

    def join(self, at: Mark) -> None:
        """Add a follower, which is at `at`; reading begins there if it is the only one."""
        self._users += 1
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._failure = None
            self.position = at.seq_num
            self._nursery.start_soon(self._run, self._scope, at)

    def leave(self) -> None:
        """Remove a follower; reading ends with the last one."""
        self._users -= 1
        if not self._users:
            if self._scope is not None:
                self._scope.cancel()
                self._scope = None
            self._stream.recent.clear()

    async def wait(self, seq_num: int) -> None:
        """Wait until the record with this number may have been read. Raises OperationFailed if reading failed."""
        if self.position <= seq_num:
            if self._failure is None:
                await self._news.park()
            if self._failure is not None:
                raise OperationFailed(self._failure)

    async def _run(self, scope: trio.CancelScope, at: Mark) -> None:
        try:
            with scope:
                while True:
                    at = await self._read_on(at)
        except OperationFailed as error:
            if self._scope is scope:
                self._failure = error.failure
                self._scope = None
                self._news.unpark_all()

    async def _read_on(self, at: Mark) -> Mark:
        stream = self._stream
        seconds = stream.settings.follow_seconds
        begin, scanned = await stream.patiently(partial(stream.scan_end, at, wait=seconds))
        if not scanned.bodies:
            if scanned.end:
                await trio.sleep(seconds)  # the stream has ended, but clients still wait
            else:
                await trio.lowlevel.checkpoint()
            return begin
        numbered = await stream.extend(begin, scanned)
        if len(numbered):
            stream.recent.add(numbered, stream.tail)
            begin = numbered.end
        else:
            begin = stream.end
        self.position = begin.seq_num
        self._news.unpark_all()
        return begin
