"""One reader at a stream's tail, for all sessions that follow it."""

from __future__ import annotations

import trio

from penstock.backs.indexed.state import StreamState
from penstock.positions.marks import Mark
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["Follower"]


class Follower:
    """Reads on while anybody follows; what it finds is in `StreamState.recent`. `nursery`: where it runs."""

    def __init__(self, stream: StreamState, nursery: trio.Nursery) -> None:
        self._stream = stream
        self._nursery = nursery
        self._users = 0
        self._scope: trio.CancelScope | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._failure: Failure | None = None
        self.position = 0

    def join(self, at: Mark) -> None:
        """Somebody follows from now on, who is at `at`: where reading begins, if nobody did before."""
        self._users += 1
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._failure = None
            self.position = at.seq_num
            self._nursery.start_soon(self._run, self._scope, at)

    def leave(self) -> None:
        """Somebody does not follow any more."""
        self._users -= 1
        if not self._users:
            if self._scope is not None:
                self._scope.cancel()
                self._scope = None
            self._stream.recent.clear()

    async def wait(self, seq_num: int) -> None:
        """Wait until the record with this number may have been read. Raises what reading failed with."""
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
        begin, scanned = await stream.scan_end(at, wait=seconds)
        if not scanned.bodies:
            if scanned.end:
                await trio.sleep(seconds)  # nothing will ever come; clients wait all the same
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
