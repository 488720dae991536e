"""Reads that follow the tail: batches, heartbeats between them, and the end by a drain."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from random import random
from time import perf_counter
from typing import Final, Protocol

import trio

from penstock.core.back import Following, ReadSession
from penstock.core.rereading import BatchExtent
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.records import RecordBatch, StreamPosition
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.exchange import Refetch
from penstock.wire.http import Buffer

__all__ = ["TIME_OVER", "FollowedExchange", "FollowingSession", "Heartbeats"]

TIME_OVER: Final = Failure(FailureCode.SERVER_DRAINING, "the time of an event stream is over: reconnect to read on")
"""The end of a session that was open for its longest time."""

_GATHER_SECONDS: Final = 0.001
"""Time after which no further batch is sent together with those before it."""
_SENDS_PER_CHECKPOINT: Final = 100
"""Heartbeats between checkpoints: they take 2 to 5 ms."""
_ROUND_SECONDS: Final = 0.5
"""Heartbeats that are due in the same half second are sent together: what one uses is at hand for the next."""


class Heartbeats:
    """Sends the heartbeats of all followers of a front, in one system task while there are any.

    To wake the task of a follower for each of them took ten times the processor time. `seconds`: the range of the
    random time after which a heartbeat is due. It is random so that a thousand followers do not send theirs together.
    """

    def __init__(self, seconds: tuple[float, float]) -> None:
        self._least, most = seconds
        self._range = max(0.0, most - self._least - _ROUND_SECONDS)
        self._rounds: dict[int, list[FollowingSession]] = {}  # each begins at its number times _ROUND_SECONDS
        self._running = False

    def expect(self, follower: FollowingSession) -> None:
        """Call `beat` of the follower after a random time, and again, while it `waits`."""
        self._set_due(follower, trio.current_time())
        if not follower.queued:
            self._put(follower)
            if not self._running:
                self._running = True
                trio.lowlevel.spawn_system_task(self._run)

    def _set_due(self, follower: FollowingSession, now: float) -> None:
        follower.due = int((now + self._least + random() * self._range) / _ROUND_SECONDS) + 1

    def _put(self, follower: FollowingSession) -> None:
        follower.queued = True
        self._rounds.setdefault(follower.due, []).append(follower)

    async def _run(self) -> None:
        try:
            while self._rounds:
                # What is put into a round meanwhile is not due before this task wakes.
                await trio.sleep_until(
                    min(min(self._rounds) * _ROUND_SECONDS, trio.current_time() + max(self._least, _ROUND_SECONDS))
                )
                now = trio.current_time()
                for number in [number for number in self._rounds if number * _ROUND_SECONDS <= now]:
                    await self._send(number, now)
        finally:
            self._running = False

    async def _send(self, number: int, now: float) -> None:
        for count, follower in enumerate(self._rounds.pop(number), 1):
            if count % _SENDS_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()
            follower.queued = False
            if follower.waits:
                if follower.due == number:
                    self._set_due(follower, now)
                    follower.beat()
                self._put(follower)  # in a later round, also where a record came meanwhile


class FollowedExchange(Protocol):
    """The part of an `Exchange` that a follower needs; see there."""

    async def room(self, keep: bool = True) -> None:
        """See `Exchange.room`."""

    def spare(self) -> int:
        """See `Exchange.spare`."""

    async def send(self, pieces: Sequence[Buffer], refetch: Refetch | None = None) -> None:
        """See `Exchange.send`."""

    def send_now(self, piece: bytes) -> bool:
        """See `Exchange.send_now`."""


class FollowingSession:
    """Read session with heartbeats.

    A heartbeat is due as soon as the read begins to follow, and after a random time without records (S2 fact sheet,
    2.4). The task of `heartbeats` sends it while this session waits; if that cannot be done without waiting, `next`
    returns the tail. `encode` returns what is sent for a batch, or for the tail as a heartbeat.

    A heartbeat promises that all records before its tail have been delivered: clients that reconnect begin there. So
    none is sent while the read is behind, or before the back has reported its position.

    Nothing is read for a client that does not receive: `exchange` has room first. A reader waiting at the tail reserves
    none, because the batch that it will get is shared by all who wait there.

    `max_seconds`: time after which `next` raises TIME_OVER.
    """

    __slots__ = (
        "_begun",
        "_draining",
        "_encode",
        "_ends_at",
        "_exchange",
        "_heartbeats",
        "_scope",
        "_session",
        "due",
        "queued",
        "waits",
    )

    def __init__(
        self,
        session: ReadSession,
        exchange: FollowedExchange,
        encode: Callable[[RecordBatch | StreamPosition], list[bytes]],
        heartbeats: Heartbeats,
        draining: Draining,
        max_seconds: float | None = None,
    ) -> None:
        self._session = session
        self._exchange = exchange
        self._encode = encode
        self._heartbeats = heartbeats
        self._draining = draining
        self._ends_at = math.inf if max_seconds is None else trio.current_time() + max_seconds
        self._begun = False
        self._scope: trio.CancelScope
        self.due = 0
        """The round of `heartbeats` in which the next one is due."""
        self.queued = False
        """True while it is in a round."""
        self.waits = False
        """True while the session waits, and has begun to follow."""

    async def next(self) -> RecordBatch | StreamPosition | None:
        """Return the next batch, a tail if a heartbeat is to be sent, or None at the end.

        Raises OperationFailed if the stream fails, and SERVER_DRAINING when a drain's grace time or that of the session
        is over.
        """
        while not self._draining.over:
            if (seconds := self._ends_at - trio.current_time()) <= 0:
                raise OperationFailed(TIME_OVER)
            behind = self._session.behind()
            await self._exchange.room(behind)
            if not behind and self._session.behind():  # records came while it waited
                await self._exchange.room(True)
            with self._draining.interrupts(seconds) as self._scope:
                if self._begun:
                    self.waits = True
                    self._heartbeats.expect(self)
                try:
                    event = await self._session.next()
                finally:
                    self.waits = False
            if not self._scope.cancelled_caught:
                self._begun = True
                return event.tail if isinstance(event, Following) else event
            if self._begun and not self._session.behind() and trio.current_time() < self._ends_at:
                return self._session.tail()
        raise OperationFailed(SHUTTING_DOWN)

    async def deliver(
        self,
        reread: Callable[[Sequence[BatchExtent]], Awaitable[Sequence[RecordBatch]]],
        encoder: Callable[[], Callable[[RecordBatch], list[bytes]]],
    ) -> None:
        """Send all that `next` returns, until its end, and with a batch those that are in memory. Raises as `next`, and
        OperationFailed for a damaged batch, once all before it is sent.

        `reread` reads delivered batches again. `encoder` returns what will encode batches, from the present state of
        the answer on, as `encode` is about to.
        """
        batch: RecordBatch | None
        while (event := await self.next()) is not None:
            refetch = None
            if isinstance(event, RecordBatch):
                extents = [BatchExtent.of(event)]
                refetch = partial(_encode_again, reread, extents, encoder())
            pieces = self._encode(event)
            try:
                for batch in self.more(event):
                    extents.append(BatchExtent.of(batch))
                    pieces += self._encode(batch)
            finally:
                batch = event = None  # not to be kept while it waits for the client
                await self._exchange.send(pieces, refetch)
            del pieces, refetch  # not to be kept while it waits for the next batch

    def more(self, first: RecordBatch | StreamPosition) -> Iterator[RecordBatch]:
        """Yield the batches after `first` that are in memory, as far as there is room to send them with it.

        Each pass through the scheduler takes as long as sending some 100 KiB. What is encoded for long is given one at
        a time: other tasks wait meanwhile.
        """
        if isinstance(first, RecordBatch):
            room = self._exchange.spare()
            until = perf_counter() + _GATHER_SECONDS
            while room > 0 and perf_counter() < until and (batch := self._session.ready()) is not None:
                room -= batch.metered
                yield batch

    def beat(self) -> None:
        """Send a heartbeat, in the task of all. If that is impossible the follower's own task does."""
        session = self._session
        try:
            done = session.behind() or self._exchange.send_now(b"".join(self._encode(session.tail())))
        except Exception:  # the follower's own task will meet it, and ends nothing but itself
            done = False
        if not done:
            self._scope.cancel()


async def _encode_again(
    reread: Callable[[Sequence[BatchExtent]], Awaitable[Sequence[RecordBatch]]],
    extents: Sequence[BatchExtent],
    encode: Callable[[RecordBatch], list[bytes]],
) -> list[bytes]:
    return [piece for batch in await reread(extents) for piece in encode(batch)]
