"""Appends of this gateway that are on their way: the timestamps that they shall have, and when they are all there."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.operations import Append

__all__ = ["UnderWay"]


class UnderWay:
    """Of one stream. Timestamps are decided when an append is sent, so that an exact one can be refused in time."""

    def __init__(self) -> None:
        self._tickets: dict[int, int] = {}  # and the last timestamp that each shall have; in the order of sending
        self._unacknowledged: dict[int, None] = {}  # in that order, too
        self._next = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def newest(self) -> int:
        """The ticket that was given last; -1: none was."""
        return self._next - 1

    def begin(self, last: int) -> int:
        """An append is sent to a server that stamps it itself. Gives a ticket."""
        ticket = self._next
        self._next += 1
        self._tickets[ticket] = last
        self._unacknowledged[ticket] = None
        return ticket

    def begin_stamped(self, append: Append, last: int, now: int) -> tuple[int, Sequence[int]]:
        """An append is sent to a stream whose last record has the timestamp `last`. Gives a ticket, and the timestamps
        that its records shall have: what its client gave, at most `now`, never falling. All in ms.

        Raises NON_MONOTONIC_TIMESTAMP where one is asked for that lies before those of the stream.
        """
        last = max([last, *self._tickets.values()])
        timestamps = self._timestamps(append, last, now)
        return self.begin(timestamps[-1] if timestamps else last), timestamps

    def _timestamps(self, append: Append, last: int, now: int) -> Sequence[int]:
        count = len(append.bodies)
        exact = append.exact_timestamp
        if exact is not None:
            if exact < last:
                raise fail(
                    FailureCode.NON_MONOTONIC_TIMESTAMP,
                    f"timestamp {exact} is before {last}, that of the last record",
                    last=last,
                )
            return [exact] * count
        if append.timestamps is None:
            return [max(now, last)] * count
        timestamps = []
        for given in append.timestamps:
            last = max(last, now if given is None else min(given, now))
            timestamps.append(last)
        return timestamps

    def end(self, ticket: int) -> None:
        """It has its numbers, or will never be told of."""
        self.acknowledged(ticket)
        if self._tickets.pop(ticket, None) is not None:
            self._changed.unpark_all()

    async def settled(self) -> None:
        """Wait until all that are under way now have ended."""
        newest = self._next
        while self._tickets and next(iter(self._tickets)) < newest:
            await self._changed.park()

    def acknowledged(self, ticket: int) -> None:
        """The server has it, and it is about to get its numbers."""
        if ticket in self._unacknowledged:
            del self._unacknowledged[ticket]
            self._changed.unpark_all()

    async def acknowledged_before(self, ticket: int) -> None:
        """Wait until all that were sent before this one are acknowledged, or will never be."""
        while self._unacknowledged and next(iter(self._unacknowledged)) < ticket:
            await self._changed.park()
