"""Appends that were handed over to a writer, and how they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import trio

from penstock_codecs.byte_operations import NO_ATTRIBUTE
from penstock_codecs.failures import Failure, FailureCode, OperationFailed

__all__ = ["Pending", "Slot", "ends_from", "in_order", "raise_or"]

COST: Final = 512
"""What an append in flight costs beside its bytes, about."""


class Slot:
    """One append. `number`: the writer's position after it; `count`: of events; `expected`: the length that the segment
    must have; `sends`: how often it was sent."""

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
        """The server said that the condition does not hold, after the append had been sent more than once."""
        self.over = trio.Event()
        self.end_offset: int | None = None
        self.failure: Failure | None = None

    @property
    def cost(self) -> int:
        """What it costs while it is in flight."""
        return len(self.data) + COST

    def stored(self, end_offset: int | None) -> None:
        """It is in the segment; `end_offset`: where its bytes end, where known."""
        self.end_offset = end_offset
        self.over.set()

    def failed(self, failure: Failure) -> None:
        """It is not, or nobody knows."""
        self.failure = self._as_far_as_sent(failure)
        self.over.set()

    def _as_far_as_sent(self, failure: Failure) -> Failure:
        """A lost server can have stored what was sent, and has nothing of what was not."""
        if failure.code is FailureCode.HOT_SERVER and self.sends:
            return Failure(FailureCode.UNAVAILABLE, failure.message, failure.details)
        if failure.retryable and failure.side_effect_possible and not self.sends:
            return Failure(FailureCode.HOT_SERVER, failure.message, failure.details)
        return failure


class Pending:
    """The appends of one writer that are under way, in order; the first `sent` of them are on its line."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._room = trio.lowlevel.ParkingLot()
        self._size = 0
        self.sent = 0
        self.stored = NO_ATTRIBUTE
        """The number of the last append that is known to be stored."""
        self.end: int | None = None
        """Where the bytes of that one end, where known."""
        self.moved_at = 0.0
        """When something was last acknowledged, on trio's clock."""

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def first(self) -> Slot:
        """The oldest; there must be one."""
        return self._slots[0]

    @property
    def last(self) -> Slot:
        """The newest; there must be one."""
        return self._slots[-1]

    @property
    def last_number(self) -> int:
        """That of the newest, or of what was stored last."""
        return self._slots[-1].number if self._slots else self.stored

    @property
    def any_sent(self) -> bool:
        """Whether the server may have got any of them."""
        return any(slot.sends for slot in self._slots)

    async def room(self, size: int, most: int) -> None:
        """Wait until `size` bytes more are no more than `most` in all; one append is always let in."""
        while self._size and self._size + size > most:
            await self._room.park()

    def add(self, slot: Slot) -> None:
        """One more."""
        self._slots.append(slot)
        self._size += slot.cost

    def unsent(self) -> Iterator[Slot]:
        """Those that are not on the line, each of which is then."""
        while self.sent < len(self._slots):
            slot = self._slots[self.sent]
            yield slot
            slot.sends += 1
            slot.sent_at = trio.current_time()
            self.sent += 1

    def up_to(self, number: int) -> list[Slot]:
        """Those with that number and below."""
        return [slot for slot in self._slots if slot.number <= number]

    def acknowledge(self, number: int, end: int | None) -> None:
        """All up to `number` is stored, `end` is where the last of it ends. The others end where they should if nobody
        else appended between."""
        done = sum(1 for slot in islice(self._slots, self.sent) if slot.number <= number)
        slots = list(islice(self._slots, done))
        together = sum(len(slot.data) for slot in slots)
        ends: list[int | None] = [*[None] * (done - 1), end]
        if end is not None and (done == 1 or self.end == end - together):
            ends = ends_from(end - together, slots)
        if slots:
            self.moved_at = trio.current_time()
            self.settle(slots, ends)

    def settle(self, slots: Sequence[Slot], ends: Sequence[int | None]) -> None:
        """These, the oldest ones, are stored, and end there."""
        for slot, end in zip(slots, ends, strict=True):
            self._pop_first()
            slot.stored(end)
            self.stored, self.end = slot.number, end

    def find(self, number: int) -> Slot | None:
        """The one with that number."""
        return next((slot for slot in self._slots if slot.number == number), None)

    def mismatched(self) -> list[Slot]:
        """Those whose condition does not hold, it was said."""
        return [slot for slot in self._slots if slot.mismatched]

    def refuse(self, slot: Slot, failure: Failure) -> None:
        """This one alone has failed."""
        self.sent -= self._slots.index(slot) < self.sent
        self._slots.remove(slot)
        self._leave(slot)
        slot.failed(failure)

    def fail_all(self, failure: Failure) -> None:
        """None of them will be tried any more."""
        while self._slots:
            self._pop_first().failed(failure)

    def _pop_first(self) -> Slot:
        slot = self._slots.popleft()
        self.sent = max(0, self.sent - 1)
        self._leave(slot)
        return slot

    def _leave(self, slot: Slot) -> None:
        self._size -= slot.cost
        self._room.unpark_all()


def ends_from(start: int, slots: Sequence[Slot]) -> list[int | None]:
    """Where appends end that follow each other from `start` on."""
    ends: list[int | None] = []
    for slot in slots:
        start += len(slot.data)
        ends.append(start)
    return ends


def in_order(slots: deque[Slot]) -> Iterator[Slot]:
    """Takes those that are stored, up to the first that is under way or has failed."""
    while slots and slots[0].over.is_set() and slots[0].failure is None:
        yield slots.popleft()


def raise_or(slot: Slot) -> Slot:
    """The slot, which is over. Raises OperationFailed where it failed."""
    if slot.failure is not None:
        raise OperationFailed(slot.failure)
    return slot
