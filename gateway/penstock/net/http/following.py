"""Reads that follow the tail: batches, heartbeats between them, and the end by a drain."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterator
from heapq import heappop, heappush
from time import perf_counter
from typing import Final, Protocol

import trio

from penstock.core.back import Following, ReadSession
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition

__all__ = ["FollowingSession", "Heartbeats", "SendsWithinRoom"]

_GATHER_SECONDS: Final = 0.001
"""Time after which no further batch is sent together with those before it."""
_TOGETHER_SECONDS: Final = 0.2
"""Time in which heartbeats that are due are sent together, in one pass of the scheduler."""


class _Beat:
    """The next heartbeat of a follower. `send` sends it; None while the follower does not wait."""

    __slots__ = ("due", "queued", "send", "within")

    def __init__(self, within: tuple[float, float]) -> None:
        self.send: Callable[[], None] | None = None
        self.within = within
        self.due = math.inf
        self.queued = False


class Heartbeats:
    """Sends the heartbeats of all followers of a front, in one system task while there are any.

    To wake the task of a follower for each of them took ten times the processor time.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, _Beat]] = []
        self._number = 0  # orders heartbeats that are due at the same time
        self._least = math.inf  # the shortest time after which any heartbeat is due
        self._running = False

    def expect(self, beat: _Beat, send: Callable[[], None]) -> None:
        """Call `send` after a random time, and again, until `beat.send` is None. The time is random so that a thousand
        followers do not send theirs together."""
        beat.send = send
        least, most = beat.within
        beat.due = trio.current_time() + random.uniform(least, max(least, most - _TOGETHER_SECONDS))
        if not beat.queued:
            self._least = min(self._least, beat.within[0])
            self._put(beat)
            if not self._running:
                self._running = True
                trio.lowlevel.spawn_system_task(self._run)

    def _put(self, beat: _Beat) -> None:
        beat.queued = True
        self._number += 1
        heappush(self._queue, (beat.due, self._number, beat))

    async def _run(self) -> None:
        try:
            while self._queue:
                # What is put into the queue meanwhile is not due before this task wakes.
                pause = min(self._queue[0][0] - trio.current_time(), self._least)
                await trio.sleep(max(pause, min(max(self._least, 0.01), _TOGETHER_SECONDS)))
                self._send_due(trio.current_time())
        finally:
            self._running = False

    def _send_due(self, now: float) -> None:
        while self._queue and self._queue[0][0] <= now:
            _, _, beat = heappop(self._queue)
            beat.queued = False
            if beat.send is None:
                continue
            if beat.due > now:  # a record came meanwhile
                self._put(beat)
            else:
                self.expect(beat, beat.send)
                beat.send()


class SendsWithinRoom(Protocol):
    """The part of an `Exchange` that a follower needs."""

    async def room(self, keep: bool = True) -> None:
        """See `Exchange.room`."""

    def spare(self) -> int:
        """See `Exchange.spare`."""


class FollowingSession:
    """Read session with heartbeats.

    A heartbeat is due as soon as the read begins to follow, and after a random time in `heartbeat_seconds` without
    records (S2 fact sheet, 2.4). `send_now` sends it while this session waits; it returns False if that cannot be done
    without waiting, and then `next` returns the tail.

    A heartbeat promises that all records before its tail have been delivered: clients that reconnect begin there. So
    none is sent while the read is behind, or before the back has reported its position.

    Nothing is read for a client that does not receive: `exchange` has room first. A reader waiting at the tail reserves
    none, because the batch that it will get is shared by all who wait there.
    """

    __slots__ = (
        "_beat",
        "_begun",
        "_context",
        "_draining",
        "_heartbeats",
        "_room",
        "_send_now",
        "_session",
        "_spare",
        "_waiting",
    )

    def __init__(
        self,
        session: ReadSession,
        exchange: SendsWithinRoom,
        send_now: Callable[[StreamPosition], bool],
        heartbeats: Heartbeats,
        heartbeat_seconds: tuple[float, float],
        draining: Draining,
    ) -> None:
        self._session = session
        self._room, self._spare = exchange.room, exchange.spare
        self._send_now = send_now
        self._heartbeats = heartbeats
        self._beat = _Beat(heartbeat_seconds)
        # The task of the heartbeats has nothing of this request's; it runs while this task waits.
        self._context = trio.lowlevel.current_task().context
        self._draining = draining
        self._begun = False
        self._waiting = trio.CancelScope()

    async def next(self) -> RecordBatch | StreamPosition | None:
        """Return the next batch, a tail if a heartbeat is to be sent, or None at the end.

        Raises OperationFailed if the stream fails, and SERVER_DRAINING when a drain's grace time is over.
        """
        while not self._draining.over:
            behind = self._session.behind()
            await self._room(behind)
            if not behind and self._session.behind():  # records came while it waited
                await self._room(True)
            with self._draining.interrupts() as self._waiting:
                if self._begun:
                    self._heartbeats.expect(self._beat, self._on_due)
                try:
                    event = await self._session.next()
                finally:
                    self._beat.send = None
            if not self._waiting.cancelled_caught:
                self._begun = True
                return event.tail if isinstance(event, Following) else event
            if self._begun and not self._session.behind():
                return self._session.tail()
        raise OperationFailed(SHUTTING_DOWN)

    async def deliver(
        self,
        send: Callable[[list[bytes]], Awaitable[None]],
        encode: Callable[[RecordBatch | StreamPosition], list[bytes]],
    ) -> None:
        """Send all that `next` returns, encoded, until its end, and with a batch those that are in memory. Raises as
        `next`, and OperationFailed for a damaged batch, once all before it is sent."""
        while (event := await self.next()) is not None:
            pieces = encode(event)
            try:
                for batch in self.more(event):
                    pieces += encode(batch)
            finally:
                await send(pieces)
            del event, pieces  # not to be kept while waiting for the next

    def more(self, first: RecordBatch | StreamPosition) -> Iterator[RecordBatch]:
        """Yield the batches after `first` that are in memory, as far as there is room to send them with it.

        Each pass through the scheduler takes as long as sending some 100 KiB. What is encoded for long is given one at
        a time: other tasks wait meanwhile.
        """
        if isinstance(first, RecordBatch):
            room = self._spare()
            until = perf_counter() + _GATHER_SECONDS
            while room > 0 and perf_counter() < until and (batch := self._session.ready()) is not None:
                room -= batch.metered
                yield batch

    def _on_due(self) -> None:
        self._context.run(self._send_heartbeat)

    def _send_heartbeat(self) -> None:
        try:
            done = self._session.behind() or self._send_now(self._session.tail())
        except Exception:  # the follower's own task will meet it, and ends nothing but itself
            done = False
        if not done:
            self._waiting.cancel()
