"""Reads that may go on for ever: batches, heartbeats between them, and what a drain does to them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from penstock.backs.base import Following, ReadSession
from penstock.fronts.draining import SHUTTING_DOWN, Draining
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition

__all__ = ["Follower"]


class Follower:
    """A read session with heartbeats.

    A heartbeat is due at once when the read begins to follow, and after every random time in `heartbeat_seconds`
    without records (S2 fact sheet 2.4): at random, so that a thousand followers do not beat together.

    A heartbeat says that all before its tail has been delivered: clients that come back begin there. So none is given
    while the read is behind, or has not said yet where it stands.

    `room` is the exchange's: nothing is read for a client that takes nothing. A reader at the tail keeps no room while
    it waits: the batch that it will be given is that of all who wait there.
    """

    def __init__(
        self,
        session: ReadSession,
        room: Callable[[bool], Awaitable[None]],
        heartbeat_seconds: tuple[float, float],
        draining: Draining,
    ) -> None:
        self._session = session
        self._room = room
        self._heartbeat_seconds = heartbeat_seconds
        self._draining = draining
        self._begun = False

    async def next(self) -> RecordBatch | StreamPosition | None:
        """The next batch, a tail where a heartbeat is due, None at the end.

        Raises OperationFailed where the stream fails, and with SERVER_DRAINING when a drain's grace time is over.
        """
        while not self._draining.over:
            behind = self._session.behind()
            await self._room(behind)
            if not behind and self._session.behind():  # records came while it waited
                await self._room(True)
            with self._draining.interrupts(random.uniform(*self._heartbeat_seconds)) as scope:
                event = await self._session.next()
            if not scope.cancelled_caught:
                self._begun = True
                return event.tail if isinstance(event, Following) else event
            if self._begun and not self._session.behind():
                return self._session.tail()
        raise OperationFailed(SHUTTING_DOWN)
