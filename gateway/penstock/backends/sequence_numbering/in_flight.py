"""Appends of this gateway that are in flight: the timestamps that their records will get, and waiting for their end."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append

__all__ = ["AppendsInFlight"]


class AppendsInFlight:
    """The appends in flight to one stream, each with a ticket.

    Timestamps are decided when an append is sent, so that an exact one can be refused in time.
    """

    def __init__(self) -> None:
        self._tickets: dict[int, int] = {}  # ticket to the append's last timestamp, in the order of sending
        self._unacknowledged: dict[int, None] = {}  # tickets, in the order of sending
        self._next = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def newest(self) -> int:
        """The last ticket that was given; -1 if none was."""
        return self._next - 1

    def begin(self, last: int) -> int:
        """Return a ticket for an append whose last record has the timestamp `last`; for servers that set timestamps."""
        ticket = self._next
        self._next += 1
        self._tickets[ticket] = last
        self._unacknowledged[ticket] = None
        return ticket

    def begin_stamped(self, append: Append, last: int, now: int) -> tuple[int, Sequence[int]]:
        """Return a ticket and the timestamps for an append to a stream whose last record has the timestamp `last`.

        The timestamps are those of the client, at most `now`, and never decrease. All are in ms. Raises
        NON_MONOTONIC_TIMESTAMP if the append asks for an exact timestamp before those of the stream.
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
        for requested in append.timestamps:
            last = max(last, now if requested is None else min(requested, now))
            timestamps.append(last)
        return timestamps

    def end(self, ticket: int) -> None:
        """End an append: its records have numbers, or the server will never acknowledge them."""
        self.acknowledged(ticket)
        if self._tickets.pop(ticket, None) is not None:
            self._changed.unpark_all()

    async def settled(self) -> None:
        """Wait until all appends that are in flight now have ended."""
        newest = self._next
        while self._tickets and next(iter(self._tickets)) < newest:
            await self._changed.park()

    def acknowledged(self, ticket: int) -> None:
        """Note that the server has acknowledged an append, whose records are about to be numbered."""
        if ticket in self._unacknowledged:
            del self._unacknowledged[ticket]
            self._changed.unpark_all()

    async def acknowledged_before(self, ticket: int) -> None:
        """Wait until all appends that were sent before this one are acknowledged or have ended."""
        while self._unacknowledged and next(iter(self._unacknowledged)) < ticket:
            await self._changed.park()
