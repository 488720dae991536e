"""The queue of unsettled appends to one stream, and the sequence numbers that they are sent with.

All appends to a stream that are made with one client token share one queue, whichever session they came from, and go
over one connection. So they are applied in the order in which they were handed over and never conflict with each other,
though each is sent on condition of the sequence number that the gateway expects for it.

An append that may have been applied keeps its number when it is sent again, so that it cannot be applied twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

import trio

from penstock.core.delivery import Delivery
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended
from penstock.model.records import RecordId, StreamPosition, StreamRef
from penstock.store.admission import ByteBudget
from penstock_s2.back.pending import PendingAppend
from penstock_s2.back.shared import Shared

__all__ = ["AppendQueue", "Need"]

_GATES: Final = 2
"""Admissions that an append must pass: the stream's own, then that of all streams."""


class Need(Enum):
    """Reason why no append can be sent now."""

    WORK = auto()
    """None is waiting, or those in flight must be acknowledged first."""
    TAIL = auto()
    """The stream's tail must be requested first."""


class AppendQueue:
    """Queue of the unsettled appends to one stream: `waiting` to be sent, `in_flight` sent on the current
    connection."""

    def __init__(self, shared: Shared, stream: StreamRef) -> None:
        self.stream = stream
        self.waiting: deque[PendingAppend] = deque()
        self.in_flight: deque[PendingAppend] = deque()
        self.acknowledged = 0
        """Number of appends that were acknowledged."""
        self.end = 0
        """Highest known end of the stream, as a sequence number."""
        self.lingers = True
        """True while an idle session is kept open for the next append; False once the back is closing."""
        self._shared = shared
        self._room = ByteBudget(shared.settings.stream_inflight_bytes)
        self._news = trio.lowlevel.ParkingLot()
        # The next sequence number and the last timestamp once everything that was sent is applied; None if unknown.
        self._next: int | None = None
        self._stamp: int | None = None

    # ---- enqueueing ----------------------------------------------------------------------------------------------

    def hand_over(self, pending: PendingAppend) -> None:
        """Enqueue an append; it is sent when there is room."""
        self._room.enter(pending)

    def admit(self, pending: PendingAppend) -> None:
        """Pass one more admission; after the last, the append is ready to be sent."""
        pending.gates += 1
        if pending.gates < _GATES:
            self._shared.admission.enter(pending)
            return
        self.waiting.append(pending)
        pending.begin()
        self.wake()

    def withdraw(self, pending: PendingAppend) -> bool:
        """Withdraw an append unless it was sent. Returns whether it was withdrawn."""
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
        """Wake the tasks that wait in `news`."""
        self._news.unpark_all()

    def stop_lingering(self) -> None:
        """End the session as soon as nothing is in flight."""
        self.lingers = False
        self.wake()

    async def news(self) -> None:
        """Wait until something changes."""
        await self._news.park()

    @property
    def busy(self) -> bool:
        """True while appends are waiting or in flight."""
        return bool(self.waiting or self.in_flight)

    # ---- sending -------------------------------------------------------------------------------------------------

    def take(self) -> PendingAppend | Need:
        """Return the next append to send, numbered and counted as in flight, or the reason why there is none."""
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
            self.in_flight.append(pending)
            return pending
        return Need.WORK

    def untake(self, pending: PendingAppend) -> None:
        """Undo the last `take`: the append cannot be sent."""
        self.in_flight.pop()
        self._next, self._stamp = pending.number, None

    def drop(self) -> None:
        """Discard the first waiting append: an earlier one of its session has failed."""
        self._leave(self.waiting.popleft())

    def _must_be_numbered(self, pending: PendingAppend) -> bool:
        """Return whether the gateway must find the sequence number to condition this append on."""
        return (
            self._shared.settings.delivery is Delivery.EXACTLY_ONCE
            and pending.append.match_seq_num is None
            and not pending.doubtful
        )

    def _check_exact(self, pending: PendingAppend) -> Need | None:
        """Return what an append with an exact timestamp must wait for, if anything.

        The last timestamp must be known and nothing may come between: nothing else is in flight, or only appends with
        exact timestamps. The append is failed if its timestamp is before that of the last record.
        """
        exact = pending.append.exact_timestamp
        assert exact is not None
        known = self._next is not None and self._stamp is not None
        if known and exact >= self._stamp:  # type: ignore[operator]  # it is known
            return None
        if self.in_flight:
            return Need.WORK
        if not known:
            return Need.TAIL
        self.waiting.popleft()
        message = f"timestamp {exact} is before {self._stamp}, that of the last record"
        self.fail(pending, Failure(FailureCode.NON_MONOTONIC_TIMESTAMP, message, {"last": self._stamp}))
        return None

    def _number(self, pending: PendingAppend) -> None:
        append = pending.append
        if not pending.doubtful:
            pending.number = append.match_seq_num
            if pending.number is None and (self._must_be_numbered(pending) or append.exact_timestamp is not None):
                pending.number = self._next
        self._next = None if pending.number is None else pending.number + pending.count
        self._stamp = append.exact_timestamp

    def saw_tail(self, tail: StreamPosition) -> None:
        """Note the stream's tail, while nothing is in flight."""
        self._shared.places.of(self.stream).saw_tail(tail)
        self.end = tail.seq_num  # lower than before if the stream was recreated
        self._next, self._stamp = tail

    def forget_tail(self, next_seq_num: int | None = None) -> None:
        """Discard the known tail; `next_seq_num` is the next sequence number if that is still known."""
        self._next, self._stamp = next_seq_num, None

    # ---- settling ------------------------------------------------------------------------------------------------

    async def acknowledge(self, appended: Appended) -> None:
        """Settle the oldest append in flight: the server has applied it."""
        pending = self.in_flight.popleft()
        if not self.in_flight and self._next == appended.end.seq_num:
            self._stamp = appended.end.timestamp
        await self.succeed(pending, appended)

    async def succeed(self, pending: PendingAppend, appended: Appended) -> None:
        """Report an append to its client as applied. It must have left both queues."""
        self.acknowledged += 1
        self.end = max(self.end, appended.end.seq_num)
        exact = pending.append.exact_timestamp
        if exact is not None and not appended.start.timestamp == appended.end.timestamp == exact:
            message = f"{self._shared.calls.where}: records for timestamp {exact} were stamped {appended.end.timestamp}"
            self.fail(pending, Failure(FailureCode.UPSTREAM_FAULT, message))
            return
        last_id = None
        try:
            last_id = await self._last_id(pending, appended)
        finally:  # it was applied, even if the connection is given up meanwhile
            self._leave(pending)
            pending.succeed(Appended(appended.start, appended.end, appended.tail, last_id))
            self.wake()

    async def _last_id(self, pending: PendingAppend, appended: Appended) -> RecordId | None:
        """Return the identifier of the append's last record if it is known, or can be found and the client wants it."""
        places = self._shared.places.of(self.stream)
        (start, first), (end, last) = appended.start, appended.end
        places.saw_ends(start, first, end, last)
        requested = pending.append.timestamps
        if (
            first != last
            and requested is not None
            and (first, last) == (requested[0], requested[-1])
            and _rises(requested)
        ):
            places.learn(last, start + requested.index(last))  # the server kept the given timestamps
        known = places.record_id(end - 1, last)
        if known is None and pending.wants_id:
            try:
                return await self._shared.locating.record_id(self.stream, end - 1, last)
            except OperationFailed:
                return None
        return known

    def fail(self, pending: PendingAppend, failure: Failure) -> None:
        """Report an append to its client as failed. It must have left both queues."""
        self._leave(pending)
        pending.fail(failure)
        self.wake()

    def fail_all(self, failure_of: Callable[[PendingAppend], Failure]) -> None:
        """Fail all appends that are waiting or in flight."""
        self.put_back()
        self.forget_tail()
        failing, self.waiting = self.waiting, deque()
        for pending in failing:
            self.fail(pending, failure_of(pending))

    def put_back(self) -> None:
        """Move the appends in flight back to the front of `waiting`, because the connection was lost."""
        self.waiting.extendleft(reversed(self.in_flight))
        self.in_flight.clear()

    def _leave(self, pending: PendingAppend) -> None:
        self._shared.admission.leave(pending.size)
        self._room.leave(pending.size)


def _rises(requested: Sequence[int | None]) -> bool:
    """Return whether all timestamps are given and in ascending order."""
    timestamps = [timestamp for timestamp in requested if timestamp is not None]
    return len(timestamps) == len(requested) and timestamps == sorted(timestamps)
