"""The unsettled appends to one stream, in order, and the numbers that they are sent with.

All appends to a stream that are made in the name of one client token stand in one line, whichever session they came
from, and go over one connection: so they are applied in the order in which they were handed over, and never in each
other's way, though each is sent on condition of the number that the gateway expects for it.

An append that may have been applied keeps its number when it is sent again, so that it cannot be applied twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

import trio

from penstock.backs.delivery import Delivery
from penstock.backs.s2.pending import Pending
from penstock.backs.s2.shared import Shared
from penstock.store.admission import Admission
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.model import RecordId, StreamPosition, StreamRef
from penstock_codecs.operations import Appended

__all__ = ["Line", "Need"]

_GATES: Final = 2
"""Room for the stream's appends, and for those of all streams."""


class Need(Enum):
    """Why no append can be sent just now."""

    WORK = auto()
    """There is none, or what is in flight must be acknowledged first."""
    TAIL = auto()
    """The stream's tail must be asked for."""


class Line:
    """See the module. `waiting` are to be sent, `flying` were sent on the connection that there is now."""

    def __init__(self, shared: Shared, stream: StreamRef) -> None:
        self.stream = stream
        self.waiting: deque[Pending] = deque()
        self.flying: deque[Pending] = deque()
        self.acknowledged = 0
        """How many appends were acknowledged."""
        self.end = 0
        """The stream is known to have had so many records."""
        self._shared = shared
        self._room = Admission(shared.settings.stream_inflight_bytes)
        self._news = trio.lowlevel.ParkingLot()
        # What comes next once everything that was sent is applied, and what the last timestamp will be then, as far
        # as that is known.
        self._next: int | None = None
        self._stamp: int | None = None

    # ---- in ------------------------------------------------------------------------------------------------------

    def hand_over(self, pending: Pending) -> None:
        """Take its place; it is sent when there is room."""
        self._room.enter(pending)

    def admit(self, pending: Pending) -> None:
        """There is room at one more gate."""
        pending.gates += 1
        if pending.gates < _GATES:
            self._shared.admission.enter(pending)
            return
        self.waiting.append(pending)
        pending.begin()
        self.wake()

    def withdraw(self, pending: Pending) -> bool:
        """Take it back unless it was sent; gives whether that was in time."""
        if pending.gates == 0:
            self._room.withdraw(pending)
        elif not pending.started:
            self._shared.admission.withdraw(pending)
            self._room.leave(pending.size)
        elif pending in self.waiting and not pending.doubtful:
            self.waiting.remove(pending)
            self._leave(pending)
        else:
            return False
        return True

    def wake(self) -> None:
        """Something has changed."""
        self._news.unpark_all()

    async def news(self) -> None:
        """Wait until something changes."""
        await self._news.park()

    @property
    def busy(self) -> bool:
        """Whether there are any."""
        return bool(self.waiting or self.flying)

    # ---- out -----------------------------------------------------------------------------------------------------

    def take(self) -> Pending | Need:
        """The next one to be sent, numbered, which is in flight from now on."""
        while self.waiting:
            pending = self.waiting[0]
            if pending.dropped:
                self.drop()
                continue
            if pending.append.exact_timestamp is not None and not pending.doubtful:
                need = self._check_exact(pending)
                if need is not None:
                    return need
                if pending.settled:
                    continue
            elif self._must_be_numbered(pending) and self._next is None:
                return Need.TAIL
            self.waiting.popleft()
            self._number(pending)
            self.flying.append(pending)
            return pending
        return Need.WORK

    def untake(self, pending: Pending) -> None:
        """The one taken last cannot be sent."""
        self.flying.pop()
        self._next, self._stamp = pending.number, None

    def drop(self) -> None:
        """The first one is not to be applied any more: one before it in its session has failed."""
        self._leave(self.waiting.popleft())

    def _must_be_numbered(self, pending: Pending) -> bool:
        """Whether the number is the gateway's own to find."""
        return (
            self._shared.settings.delivery is Delivery.EXACTLY_ONCE
            and pending.append.match_seq_num is None
            and not pending.doubtful
        )

    def _check_exact(self, pending: Pending) -> Need | None:
        """An exact timestamp needs to know the last one, and that nothing comes between: nothing else is in flight, or
        what is has exact timestamps too."""
        exact = pending.append.exact_timestamp
        assert exact is not None
        known = self._next is not None and self._stamp is not None
        if known and exact >= self._stamp:  # type: ignore[operator]  # it is known
            return None
        if self.flying:
            return Need.WORK
        if not known:
            return Need.TAIL
        self.waiting.popleft()
        message = f"timestamp {exact} is before {self._stamp}, that of the last record"
        self.fail(pending, Failure(FailureCode.NON_MONOTONIC_TIMESTAMP, message, {"last": self._stamp}))
        return None

    def _number(self, pending: Pending) -> None:
        append = pending.append
        if not pending.doubtful:
            pending.number = append.match_seq_num
            if pending.number is None and (self._must_be_numbered(pending) or append.exact_timestamp is not None):
                pending.number = self._next
        self._next = None if pending.number is None else pending.number + pending.count
        self._stamp = append.exact_timestamp

    def saw_tail(self, tail: StreamPosition) -> None:
        """The stream ends here; nothing is in flight."""
        self._shared.places.of(self.stream).saw_tail(tail)
        self.end = tail.seq_num  # less than before where it was made anew
        self._next, self._stamp = tail

    def forget_tail(self, next_seq_num: int | None = None) -> None:
        """Where the stream ends is not known, or only the number that comes next is."""
        self._next, self._stamp = next_seq_num, None

    # ---- settled -------------------------------------------------------------------------------------------------

    async def acknowledge(self, appended: Appended) -> None:
        """The oldest one in flight was applied."""
        pending = self.flying.popleft()
        if not self.flying and self._next == appended.end.seq_num:
            self._stamp = appended.end.timestamp
        await self.succeed(pending, appended)

    async def succeed(self, pending: Pending, appended: Appended) -> None:
        """It was applied."""
        self.acknowledged += 1
        self.end = max(self.end, appended.end.seq_num)
        exact = pending.append.exact_timestamp
        if exact is not None and not appended.start.timestamp == appended.end.timestamp == exact:
            message = f"{self._shared.calls.where}: records for timestamp {exact} were stamped {appended.end.timestamp}"
            self.fail(pending, Failure(FailureCode.OTHER, message))
            return
        last_id = None
        try:
            last_id = await self._last_id(pending, appended)
        finally:  # it was applied, also where the connection is given up meanwhile
            self._leave(pending)
            pending.succeed(Appended(appended.start, appended.end, appended.tail, last_id))
            self.wake()

    async def _last_id(self, pending: Pending, appended: Appended) -> RecordId | None:
        """The identifier of its last record, where that is known or somebody wants it."""
        places = self._shared.places.of(self.stream)
        (start, first), (end, last) = appended.start, appended.end
        places.saw_ends(start, first, end, last)
        given = pending.append.timestamps
        if first != last and given is not None and (first, last) == (given[0], given[-1]) and _rises(given):
            places.learn(last, start + given.index(last))  # they were taken as they are
        known = places.record_id(end - 1, last)
        if known is None and pending.wants_id:
            try:
                return await self._shared.locating.record_id(self.stream, end - 1, last)
            except OperationFailed:
                return None
        return known

    def fail(self, pending: Pending, failure: Failure) -> None:
        """It is in neither queue any more."""
        self._leave(pending)
        pending.fail(failure)
        self.wake()

    def fail_all(self, failure_of: Callable[[Pending], Failure]) -> None:
        """None of them will be tried any more."""
        self.put_back()
        self.forget_tail()
        failing, self.waiting = self.waiting, deque()
        for pending in failing:
            self.fail(pending, failure_of(pending))

    def put_back(self) -> None:
        """The connection is gone: what was in flight is to be sent again, before all others."""
        self.waiting.extendleft(reversed(self.flying))
        self.flying.clear()

    def _leave(self, pending: Pending) -> None:
        self._shared.admission.leave(pending.size)
        self._room.leave(pending.size)


def _rises(given: Sequence[int | None]) -> bool:
    """Whether all are given, and none is before the one before it."""
    timestamps = [timestamp for timestamp in given if timestamp is not None]
    return len(timestamps) == len(given) and timestamps == sorted(timestamps)
