"""Appends that were handed over to a writer, and their outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import trio

from penstock.model.byte_operations import NO_ATTRIBUTE
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.net.retries import worth_retrying

__all__ = ["AppendInFlight", "UnsettledAppends", "ends_from", "in_order", "raise_or"]

COST: Final = 512
"""Approximate memory in bytes that an append in flight takes beside its data."""
_TOGETHER: Final = 1 * MIB
"""Bytes up to which appends share a message."""


class AppendInFlight:
    """One append.

    `number`: the writer's position after it. `count`: its events. `expected`: the length that the segment must have.
    `sends`: how often it was sent.
    """

    __slots__ = (
        "count",
        "data",
        "end_offset",
        "expected",
        "failure",
        "mismatched",
        "number",
        "over",
        "sends",
        "sent_at",
    )

    def __init__(self, data: bytes, number: int, count: int, expected: int | None) -> None:
        self.data = data
        self.number = number
        self.count = count
        self.expected = expected
        self.sends = 0
        self.sent_at = 0.0
        self.mismatched = False
        """True once the server said that the condition does not hold, after the append had been sent more than once."""
        self.over = trio.Event()
        self.end_offset: int | None = None
        self.failure: Failure | None = None

    @property
    def cost(self) -> int:
        """Bytes that count towards what is in flight."""
        return len(self.data) + COST

    def stored(self, end_offset: int | None) -> None:
        """Settle it as stored. `end_offset`: the end of its bytes if known."""
        self.end_offset = end_offset
        self.over.set()

    def failed(self, failure: Failure) -> None:
        """Settle it as failed: it is not stored, or that is unknown."""
        self.failure = self._as_far_as_sent(failure)
        self.over.set()

    def _as_far_as_sent(self, failure: Failure) -> Failure:
        """Return the failure that fits: a lost server may have stored what was sent to it, and nothing else."""
        if failure.code is FailureCode.HOT_SERVER and self.sends:
            return Failure(FailureCode.UNAVAILABLE, failure.message, failure.details)
        if worth_retrying(failure) and failure.side_effect_possible and not self.sends:
            return Failure(FailureCode.HOT_SERVER, failure.message, failure.details)
        return failure


class UnsettledAppends:
    """The unsettled appends of one writer, in order; the first `sent` of them were sent on its connection.

    `one_in_flight`: as in `SegmentBackSettings`.
    """

    def __init__(self, *, one_in_flight: bool = False) -> None:
        self._one_in_flight = one_in_flight
        self._slots: deque[AppendInFlight] = deque()
        self._room = trio.lowlevel.ParkingLot()
        self._size = 0
        self.sent = 0
        self.stored = NO_ATTRIBUTE
        """Number of the last append that is known to be stored."""
        self.end: int | None = None
        """End of that append's bytes, if known."""
        self.moved_at = 0.0
        """Time of the last acknowledgement, on trio's clock."""

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def first(self) -> AppendInFlight:
        """The oldest append; there must be one."""
        return self._slots[0]

    @property
    def last(self) -> AppendInFlight:
        """The newest append; there must be one."""
        return self._slots[-1]

    @property
    def last_number(self) -> int:
        """Number of the newest append, or of the last stored one if none is left."""
        return self._slots[-1].number if self._slots else self.stored

    @property
    def any_sent(self) -> bool:
        """True if the server may have received any of them."""
        return any(slot.sends for slot in self._slots)

    async def room(self, size: int, most: int) -> None:
        """Wait until `size` more bytes make at most `most` in all; a single append is always let in."""
        while self._size and self._size + size > most:
            await self._room.park()

    def add(self, slot: AppendInFlight) -> None:
        """Add an append at the end."""
        self._slots.append(slot)
        self._size += slot.cost

    @property
    def next_to_send(self) -> AppendInFlight | None:
        """The next append to send, if any.

        None follows a conditional one that is unsettled: if the connection is lost, the number of a stored append
        tells that those before it are stored, unless one of them may have been refused.
        """
        if self.sent == len(self._slots):
            return None
        if self.sent and (self._one_in_flight or self._slots[self.sent - 1].expected is not None):
            return None
        return self._slots[self.sent]

    def unsent(self) -> Iterator[Sequence[AppendInFlight]]:
        """Yield the appends that are to be sent now, those of one message together, and count them as sent after
        that."""
        while (slot := self.next_to_send) is not None:
            slots = self._with_those_behind() if self._one_in_flight and slot.expected is None else (slot,)
            yield slots
            for each in slots:
                each.sends += 1
                each.sent_at = trio.current_time()
            self.sent += len(slots)

    def _with_those_behind(self) -> Sequence[AppendInFlight]:
        """Return the next append and those behind it that fit into one message, up to the next condition."""
        slots: list[AppendInFlight] = []
        size = 0
        for slot in islice(self._slots, self.sent, None):
            size += len(slot.data)
            if slots and (slot.expected is not None or size > _TOGETHER):
                break
            slots.append(slot)
        return slots

    def up_to(self, number: int) -> list[AppendInFlight]:
        """Return the appends up to this number."""
        return [slot for slot in self._slots if slot.number <= number]

    def acknowledge(self, number: int, end: int | None) -> None:
        """Settle the appends up to `number` as stored; the last one ends at `end`.

        The ends of the others follow from their lengths if they were sent in one message, or if no other writer
        appended in between; else they are unknown.
        """
        done = sum(1 for slot in islice(self._slots, self.sent) if slot.number <= number)
        slots = list(islice(self._slots, done))
        together = sum(len(slot.data) for slot in slots)
        ends: list[int | None] = [*[None] * (done - 1), end]
        if end is not None and (done == 1 or self._one_in_flight or self.end == end - together):
            ends = ends_from(end - together, slots)
        if slots:
            self.moved_at = trio.current_time()
            self.settle(slots, ends)

    def settle(self, slots: Sequence[AppendInFlight], ends: Sequence[int | None]) -> None:
        """Settle the oldest appends as stored, with these ends."""
        for slot, end in zip(slots, ends, strict=True):
            self._pop_first()
            slot.stored(end)
            self.stored, self.end = slot.number, end

    def find(self, number: int) -> AppendInFlight | None:
        """Return the append with this number, if any."""
        return next((slot for slot in self._slots if slot.number == number), None)

    def mismatched(self) -> list[AppendInFlight]:
        """Return the appends whose condition the server said does not hold."""
        return [slot for slot in self._slots if slot.mismatched]

    def refuse(self, slot: AppendInFlight, failure: Failure) -> None:
        """Remove one append and settle it as failed."""
        self.sent -= self._slots.index(slot) < self.sent
        self._slots.remove(slot)
        self._leave(slot)
        slot.failed(failure)

    def fail_all(self, failure: Failure) -> None:
        """Settle all appends as failed; the end is unknown then."""
        while self._slots:
            self._pop_first().failed(failure)
        self.end = None

    def _pop_first(self) -> AppendInFlight:
        slot = self._slots.popleft()
        self.sent = max(0, self.sent - 1)
        self._leave(slot)
        return slot

    def _leave(self, slot: AppendInFlight) -> None:
        self._size -= slot.cost
        self._room.unpark_all()


def ends_from(start: int, slots: Sequence[AppendInFlight]) -> list[int | None]:
    """Return the ends of consecutive appends that begin at `start`."""
    ends: list[int | None] = []
    for slot in slots:
        start += len(slot.data)
        ends.append(start)
    return ends


def in_order(slots: deque[AppendInFlight]) -> Iterator[AppendInFlight]:
    """Remove and yield the stored appends, up to the first that is unsettled or has failed."""
    while slots and slots[0].over.is_set() and slots[0].failure is None:
        yield slots.popleft()


def raise_or(slot: AppendInFlight) -> AppendInFlight:
    """Return a settled append. Raises OperationFailed if it failed."""
    if slot.failure is not None:
        raise OperationFailed(slot.failure)
    return slot
