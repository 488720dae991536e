"""Append sessions and single appends, from being handed over until they are acknowledged.

Appends to a stream are sequenced in the order in which they are handed over, whether they had to wait for room or not,
over all sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import trio

from penstock.core.back import AppendSession
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.store.admission import ByteBudget
from penstock.store.committer import Ticket
from penstock.store.heads import StoredStream
from penstock_codecs.byte_layout import Run
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.limits import KIB
from penstock_codecs.operations import Append, Appended

__all__ = [
    "RECORD_OVERHEAD_BYTES",
    "AppendChain",
    "BytesAndRuns",
    "KeyedAppend",
    "StoreAppend",
    "StoreAppendSession",
    "Work",
    "append_alone",
]

MAX_UNRECEIVED: Final = 4096
"""Most appends of one session that are not yet received; `send` waits while there are more."""
SENDS_PER_PASS: Final = 64
"""Number of appends after which `send` lets other tasks run: each takes about 40 us, and 4,096 blocked all other tasks
for 160 ms."""
BYTES_PER_SEND: Final = 64 * KIB
"""Bytes in flight for which an append counts as one append more."""
RECORD_OVERHEAD_BYTES: Final = 64
"""Approximate memory of a record besides its metered bytes; it counts as bytes in flight."""


class KeyedAppend(NamedTuple):
    """An append, and the key that its client presented."""

    append: Append
    key: EncryptionKey


class BytesAndRuns(NamedTuple):
    """An append of bytes, and the runs of records that it becomes."""

    append: AppendBytes
    runs: Sequence[Run]


Work = Append | KeyedAppend | BytesAndRuns
"""An append that waits for room."""


def _keyed(append: Append | AppendBytes, key: EncryptionKey | None) -> Append | AppendBytes | KeyedAppend:
    return KeyedAppend(append, key) if key is not None and isinstance(append, Append) else append


class _Appends(Protocol):
    """Takes appends in order: `penstock.store.appends`."""

    @property
    def admission(self) -> ByteBudget:
        """The admission of appends."""

    def requested(
        self,
        append: Append | AppendBytes | KeyedAppend,
        target: StoredStream | None,
        chain: AppendChain,
        ticket: Ticket[Appended],
    ) -> StoreAppend:
        """See `StoreAppends.requested`."""

    def sequence(self, request: StoreAppend, work: Work, target: StoredStream | None) -> None:
        """See `StoreAppends.sequence`."""

    def refuse(self, request: StoreAppend, failure: Failure) -> None:
        """See `StoreAppends.refuse`."""


class AppendChain:
    """The appends of one session: after the first failure none is applied."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class StoreAppend:
    """One append, from being handed over until it is acknowledged. `size`: bytes of the budget that it takes."""

    __slots__ = ("_appends", "_chain", "_start", "_target", "_work", "size", "ticket")

    def __init__(
        self,
        appends: _Appends,
        work: Work,
        size: int,
        target: StoredStream | None,
        chain: AppendChain,
        ticket: Ticket[Appended],
    ) -> None:
        self._appends = appends
        self._work: Work | None = work  # dropped when it starts: an acknowledgement may wait long to be received
        self._start: trio.Event | None = None  # made only if it must wait
        self._target = target
        self._chain = chain
        self.size = size
        self.ticket = ticket

    def start(self) -> bool:
        """Sequence the append; see `Applicant.start`."""
        work, self._work = self._work, None
        if self._start is not None:
            self._start.set()
        if self._chain.broken or work is None:
            return False
        try:
            self._appends.sequence(self, work, self._target)
        except OperationFailed as error:
            self.break_chain()
            self._appends.refuse(self, error.failure)
            return False
        return True

    @property
    def started(self) -> bool:
        """True if it no longer waits for room."""
        return self._work is None

    async def wait_started(self) -> None:
        """Wait until it has been started."""
        self._start = trio.Event()
        await self._start.wait()

    def break_chain(self) -> None:
        """Break the chain: no append that was sent after this one is applied."""
        self._chain.broken = True

    def withdraw(self) -> bool:
        """Withdraw the append unless it was started. Return whether it was withdrawn."""
        if self.started:
            return False
        self._appends.admission.withdraw(self)
        return True


async def append_alone(appends: _Appends, append: Append | AppendBytes) -> Appended:
    """Carry out one append; it is sequenced before the first checkpoint unless it must wait for room.

    Cancelling withdraws an append that waits for room; a later one may still become durable.
    """
    request = appends.requested(_keyed(append, CLIENT.get().encryption_key), None, AppendChain(), Ticket())
    appends.admission.enter(request)
    try:
        return await request.ticket.wait()
    except trio.Cancelled:
        request.withdraw()
        raise


class StoreAppendSession(AppendSession):
    """An append session, bound to the stream that it found, not to one that takes its name later."""

    def __init__(self, appends: _Appends, target: StoredStream, key: EncryptionKey | None) -> None:
        self._appends = appends
        self._key = key
        self._target = target
        self._chain = AppendChain()
        self._requests: deque[StoreAppend] = deque()
        self._settled = trio.lowlevel.ParkingLot()  # unparked when a request is settled, and at the end
        self._received = trio.lowlevel.ParkingLot()  # unparked when acknowledgements are received
        self._sends = 0
        self._failure: Failure | None = None
        self._closed = False

    async def send(self, append: Append | AppendBytes) -> None:
        """Send the next append; see `AppendSession.send`. Raises INVALID for an append at an offset."""
        if isinstance(append, AppendBytes) and append.match_offset is not None:
            raise fail(FailureCode.INVALID, "an append at an offset cannot be sent in a session")
        while len(self._requests) >= MAX_UNRECEIVED and not self._chain.broken:
            await self._received.park()
        if self._chain.broken:
            await trio.lowlevel.checkpoint()
            return
        ticket: Ticket[Appended] = Ticket(self._settled.unpark_all)
        request = self._appends.requested(_keyed(append, self._key), self._target, self._chain, ticket)
        self._requests.append(request)
        self._appends.admission.enter(request)
        if request.started:
            # Nearly always. A pass through the scheduler for each append would cost more than the append itself.
            self._sends += 1 + request.size // BYTES_PER_SEND
            if self._sends < SENDS_PER_PASS:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._sends = 0
                await trio.lowlevel.checkpoint()
            return
        try:
            await request.wait_started()
        except trio.Cancelled:
            if request.withdraw() and self._failure is None:  # after a failure the requests were cleared already
                self._requests.remove(request)
                self._settled.unpark_all()
            raise

    def close(self) -> None:
        """Declare that nothing more will be sent; see `AppendSession.close`."""
        self._closed = True
        self._settled.unpark_all()

    async def receive(self) -> list[Appended]:
        """Wait for acknowledgements and return those that are ready; see `AppendSession.receive`."""
        await trio.lowlevel.checkpoint_if_cancelled()  # not after they are taken: they would be lost
        while True:
            if acknowledged := self._take_acknowledged():
                return acknowledged
            if self._requests and (failure := self._requests[0].ticket.failure) is not None:
                self._failure = failure
                self._requests.clear()
                self._received.unpark_all()
            if self._failure is not None:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if self._closed and not self._requests:
                await trio.lowlevel.checkpoint()
                return []
            await self._settled.park()

    def _take_acknowledged(self) -> list[Appended]:
        acknowledged = []
        while self._requests and (appended := self._requests[0].ticket.result) is not None:
            acknowledged.append(appended)
            self._requests.popleft()
        if acknowledged:
            self._received.unpark_all()
        return acknowledged
