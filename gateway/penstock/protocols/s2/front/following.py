"""Reads that follow the tail: batches, heartbeats between them, and the end by a drain."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from penstock.core.back import Following, ReadSession
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition

__all__ = ["FollowingSession"]


class FollowingSession:
    """Read session with heartbeats.

    A heartbeat is due as soon as the read begins to follow, and after a random time in `heartbeat_seconds` without
    records (S2 fact sheet 2.4); random, so that a thousand followers do not send theirs together.

    A heartbeat promises that all records before its tail have been delivered: clients that reconnect begin there. So
    none is sent while the read is behind, or before the back has reported its position.

    `room` is the exchange's: nothing is read for a client that does not receive. A reader waiting at the tail reserves
    no room, because the batch that it will get is shared by all who wait there.
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
        """Return the next batch, a tail if a heartbeat is due, or None at the end.

        Raises OperationFailed if the stream fails, and SERVER_DRAINING when a drain's grace time is over.
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
